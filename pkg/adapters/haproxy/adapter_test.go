package haproxy_test

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/adapters/haproxy"
	"github.com/podops-dev/podops/pkg/adapters/haproxy/runtimeapi"
	"github.com/podops-dev/podops/test/await"
)

func TestARolloutUnderLoadLosesNoRequest(t *testing.T) {
	w := newHarness(t, nil)
	const pods = 4
	origins := map[int]*origin{}
	for n := range pods {
		origins[n] = w.listen(n)
		w.pod(n, true)
	}
	w.await("all pods have traffic", allOn(0, 1, 2, 3))
	load := w.load(4)
	for n := range pods {
		load.awaitMore(t, 200)
		w.pod(n, false)
		w.await("traffic is off", func(p map[string]haproxy.ServerStatus) bool { return p[podName(n)].Off })
		before := origins[n].requests.Load()
		load.awaitMore(t, 200)
		if after := origins[n].requests.Load(); after != before {
			t.Errorf("pod %d got %d requests after its traffic was confirmed off", n, after-before)
		}
		origins[n].stop()
		w.removePod(n)
		w.await("the server is removed", func(p map[string]haproxy.ServerStatus) bool { return len(p) == pods-1 })
		load.awaitMore(t, 200)
		origins[n] = w.listen(n)
		w.pod(n, true)
		w.await("traffic is on again", allOn(n))
	}
	load.awaitMore(t, 200)
	requests, failures := load.end()
	if len(failures) > 0 {
		t.Errorf("%d of %d requests failed, the first: %s", len(failures), requests, failures[0])
	}
	for n, origin := range origins {
		if origin.requests.Load() == 0 {
			t.Errorf("pod %d got no request after its traffic was confirmed on", n)
		}
	}
}

// TestAChangeOfThePortLosesNoRequest has pods that listen on both ports, and a check that takes a while.
func TestAChangeOfThePortLosesNoRequest(t *testing.T) {
	w := newHarness(t, map[string]string{haproxy.CheckIntervalAnnotationKey: "500ms"})
	former := w.port
	for n := range 4 {
		w.listen(n)
		w.pod(n, true)
	}
	w.await("all pods have traffic", allOn(0, 1, 2, 3))
	load := w.load(4)
	load.awaitMore(t, 200)
	for w.port == former {
		w.port = freePort(t)
	}
	for n := range 4 {
		w.listen(n)
	}
	w.annotate(haproxy.PortAnnotationKey, strconv.Itoa(w.port))
	w.await("all pods have traffic at the other port", func(picture map[string]haproxy.ServerStatus) bool {
		return allOn(0, 1, 2, 3)(picture) && !slices.ContainsFunc(slices.Collect(maps.Values(picture)), func(s haproxy.ServerStatus) bool {
			return int(s.Address.Port()) != w.port
		})
	})
	load.awaitMore(t, 200)
	if requests, failures := load.end(); len(failures) > 0 {
		t.Errorf("%d of %d requests failed, the first: %s", len(failures), requests, failures[0])
	}
}

func TestAPortWhereNoPodListensIsWithdrawn(t *testing.T) {
	w := newHarness(t, map[string]string{haproxy.CheckIntervalAnnotationKey: "100ms"})
	for n := range 4 {
		w.listen(n)
		w.pod(n, true)
	}
	w.await("all pods have traffic", allOn(0, 1, 2, 3))
	load := w.load(4)
	w.annotate(haproxy.PortAnnotationKey, strconv.Itoa(freePort(t)))
	for range 50 { // with requests in between
		if err := w.reconcile(); err != nil {
			t.Fatal(err)
		}
		load.awaitMore(t, 20)
	}
	w.await("all pods but the first that was moved have traffic", func(picture map[string]haproxy.ServerStatus) bool {
		return !picture[podName(0)].On && allOn(1, 2, 3)(picture)
	})
	w.annotate(haproxy.PortAnnotationKey, strconv.Itoa(w.port))
	w.await("all pods have traffic again", allOn(0, 1, 2, 3))
	if requests, failures := load.end(); len(failures) > 0 {
		t.Errorf("%d of %d requests failed, the first: %s", len(failures), requests, failures[0])
	}
}

// TestKillingServersWithoutDrainingLosesRequests is the counterpart of the test above: it
// shows that the load detects lost requests.
func TestKillingServersWithoutDrainingLosesRequests(t *testing.T) {
	w := newHarness(t, nil)
	origins := []*origin{w.listen(0), w.listen(1)}
	w.pod(0, true)
	w.pod(1, true)
	w.await("all pods have traffic", allOn(0, 1))
	load := w.load(4)
	load.awaitMore(t, 200)
	origins[0].stop()
	load.awaitFailure(t)
}

// slow starts a request that stays with its server until the server releases it.
func (w *harness) slow(o *origin) (ended chan string) {
	w.t.Helper()
	ended = make(chan string, 1)
	go func() { ended <- send(&http.Transport{DisableKeepAlives: true}, "http://"+w.proxy.Front+"/slow") }()
	await.Receive(w.t, "the request is with its server", o.held)
	return ended
}

func TestTrafficIsNotOffWhileARequestIsOpen(t *testing.T) {
	w := newHarness(t, nil)
	origin := w.listen(0)
	w.pod(0, true)
	w.await("traffic is on", allOn(0))
	ended := w.slow(origin)
	w.pod(0, false)
	for range 5 {
		if err := w.reconcile(); err != nil {
			t.Fatal(err)
		}
		if got := w.picture()[podName(0)]; got.On || got.Off {
			t.Fatalf("with an open request: %+v, want neither on nor off", got)
		}
		if state := w.state(0); state != runtimeapi.StateDrain {
			t.Fatalf("with an open request the server is in %s, which would break sticky sessions", state)
		}
	}
	origin.release()
	if failure := await.Receive(t, "the request ends", ended); failure != "" {
		t.Errorf("the request failed: %s", failure)
	}
	w.await("traffic is off", func(p map[string]haproxy.ServerStatus) bool { return p[podName(0)].Off })
}

func TestTrafficCountsAsOffAfterTheDrainTimeout(t *testing.T) {
	w := newHarness(t, nil)
	origin := w.listen(0)
	w.pod(0, true)
	w.await("traffic is on", allOn(0))
	ended := w.slow(origin)
	w.pod(0, false)
	for range 2 {
		if err := w.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	w.clock.SetTime(w.clock.Now().Add(drainTimeout - time.Second))
	if err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	if w.picture()[podName(0)].Off {
		t.Fatal("traffic is off before the drain timeout is over")
	}
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	w.await("traffic counts as off", func(p map[string]haproxy.ServerStatus) bool { return p[podName(0)].Off })
	origin.release()
	if failure := await.Receive(t, "the request ends", ended); failure != "" {
		t.Errorf("the request was cut, although its server was not removed: %s", failure)
	}
}

func TestADrainingServerIsNotOff(t *testing.T) {
	w := newHarness(t, nil)
	w.listen(0)
	w.pod(0, true)
	w.await("traffic is on", allOn(0))
	w.setState(0, runtimeapi.StateDrain)
	if got := w.picture()[podName(0)]; got.On || got.Off {
		t.Errorf("a draining server without requests: %+v, want neither on nor off: sticky sessions may come back", got)
	}
	w.await("traffic is on again, as expected", allOn(0))
}

func TestEachOperationHasItsOwnDrainTimeout(t *testing.T) {
	w := newHarness(t, nil)
	origin := w.listen(0)
	w.pod(0, false)
	w.await("traffic is off", func(p map[string]haproxy.ServerStatus) bool { return p[podName(0)].Off })
	w.clock.SetTime(w.clock.Now().Add(2 * drainTimeout))
	w.pod(0, true)
	w.await("traffic is on", allOn(0))
	ended := w.slow(origin)
	w.pod(0, false)
	for range 3 {
		if err := w.reconcile(); err != nil {
			t.Fatal(err)
		}
		if w.picture()[podName(0)].Off {
			t.Fatal("the drain time of the first operation counts for the second")
		}
	}
	origin.release()
	if failure := await.Receive(t, "the request ends", ended); failure != "" {
		t.Errorf("the request failed: %s", failure)
	}
}

func TestARestartOfTheManagerRestartsTheDrainTimeout(t *testing.T) {
	w := newHarness(t, nil)
	origin := w.listen(0)
	w.pod(0, true)
	w.await("traffic is on", allOn(0))
	ended := w.slow(origin)
	w.pod(0, false)
	if err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	w.clock.SetTime(w.clock.Now().Add(2 * drainTimeout))
	w.restartManager()
	if err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	if w.picture()[podName(0)].Off {
		t.Error("an adapter without the start of a drain counts the server as off")
	}
	w.clock.SetTime(w.clock.Now().Add(drainTimeout))
	w.await("traffic counts as off", func(p map[string]haproxy.ServerStatus) bool { return p[podName(0)].Off })
	origin.release()
	await.Receive(t, "the request ends", ended)
}

func TestAServerIsRemovedAfterItsRequests(t *testing.T) {
	w := newHarness(t, nil)
	origin := w.listen(0)
	w.pod(0, true)
	w.await("traffic is on", allOn(0))
	ended := w.slow(origin)
	w.removePod(0)
	for range 3 {
		if err := w.reconcile(); err != nil {
			t.Fatal(err)
		}
		if len(w.picture()) != 1 {
			t.Fatal("the server is removed under a request")
		}
	}
	w.clock.SetTime(w.clock.Now().Add(drainTimeout))
	w.await("the server is removed, and its request cut", func(p map[string]haproxy.ServerStatus) bool { return len(p) == 0 })
	if failure := await.Receive(t, "the request ends", ended); failure == "" {
		t.Error("the request succeeded: nothing was cut, so the test does not show that the time is bounded")
	}
}

func TestServersAreAddedAgainAfterARestartOfHAProxy(t *testing.T) {
	w := newHarness(t, nil)
	w.listen(0)
	w.listen(1)
	w.pod(0, true)
	w.pod(1, false)
	w.await("as wanted", func(p map[string]haproxy.ServerStatus) bool { return p[podName(0)].On && p[podName(1)].Off })
	before := w.picture()
	w.proxy.Stop(t)
	if _, err := w.adapter.GetCurrentEmployee(t.Context(), w.service()); err == nil {
		t.Fatal("HAProxy does not answer, and the adapter returns no servers: all traffic would count as off")
	}
	w.proxy.Run(t)
	if len(w.picture()) != 0 {
		t.Fatal("HAProxy kept servers that were added at run time; this test shows nothing")
	}
	w.await("as before", func(p map[string]haproxy.ServerStatus) bool { return cmp.Equal(before, p, cmpAddresses()) })
	if failure := send(http.DefaultTransport, "http://"+w.proxy.Front+"/"); failure != "" {
		t.Errorf("a request after the restart: %s", failure)
	}
}

func TestTrafficIsOnOnlyAfterACheckPasses(t *testing.T) {
	w := newHarness(t, map[string]string{haproxy.CheckIntervalAnnotationKey: "10ms"})
	origin := w.listen(0)
	origin.healthy.Store(false)
	w.pod(0, true)
	for range 20 {
		if err := w.reconcile(); err != nil {
			t.Fatal(err)
		}
		if w.picture()[podName(0)].On {
			t.Fatal("traffic is on before the check passed")
		}
	}
	if origin.requests.Load() != 0 {
		t.Error("requests came before the check passed")
	}
	origin.healthy.Store(true)
	w.await("traffic is on once the check passes", allOn(0))

	w.pod(0, false)
	w.await("traffic is off", func(p map[string]haproxy.ServerStatus) bool { return p[podName(0)].Off })
	origin.healthy.Store(false)
	w.pod(0, true)
	for range 20 {
		if err := w.reconcile(); err != nil {
			t.Fatal(err)
		}
		if w.picture()[podName(0)].On {
			t.Fatal("traffic is on because of a check from before the operation")
		}
	}
	origin.healthy.Store(true)
	w.await("traffic is on again", allOn(0))
}

func TestTheWeightComesFromThePodOrElseFromTheService(t *testing.T) {
	w := newHarness(t, map[string]string{haproxy.WeightAnnotationKey: "7"})
	w.listen(0)
	w.pod(0, true)
	w.await("the weight of the Service", func(p map[string]haproxy.ServerStatus) bool { return p[podName(0)].On && p[podName(0)].Weight == 7 })
	w.annotate(haproxy.WeightAnnotationKey, "9")
	w.await("another weight", func(p map[string]haproxy.ServerStatus) bool { return p[podName(0)].Weight == 9 })
}

func TestInvalidAnnotationsDoNotKeepTrafficOn(t *testing.T) {
	w := newHarness(t, nil)
	w.listen(0)
	w.pod(0, true)
	w.await("traffic is on", allOn(0))
	for key, value := range map[string]string{
		haproxy.WeightAnnotationKey: "much", haproxy.DrainTimeoutAnnotationKey: "-1s", haproxy.BackendAnnotationKey: "other",
	} {
		w.annotate(key, value)
	}
	if err := w.reconcile(); err == nil || !strings.Contains(err.Error(), haproxy.WeightAnnotationKey) {
		t.Errorf("err = %v, want one that names the annotation", err)
	}
	w.pod(0, false)
	w.await("traffic is off", func(p map[string]haproxy.ServerStatus) bool { return p[podName(0)].Off })
}

func TestServersOfOthersAreNotChanged(t *testing.T) {
	w := newHarness(t, nil)
	w.listen(0)
	w.pod(0, true)
	w.await("traffic is on", allOn(0))
	others := []string{"static", "default_web_web-0", "default_web_web-0_1234", "default_webs_web-0_12345678", "default_web_web-0_1234567g"}
	for _, name := range others {
		w.add(name)
	}
	w.removePod(0)
	w.await("the server of the Service is removed", func(p map[string]haproxy.ServerStatus) bool { return len(p) == 0 })
	if diff := cmp.Diff(sorted(others), w.names()); diff != "" {
		t.Errorf("servers in HAProxy (-want +got):\n%s", diff)
	}
}

func TestADeletedServiceLeavesNothingBehind(t *testing.T) {
	w := newHarness(t, nil)
	w.listen(0)
	w.pod(0, true)
	w.await("traffic is on", allOn(0))
	for _, key := range []string{haproxy.RuntimeAnnotationKey, haproxy.BackendAnnotationKey} {
		w.annotate(key, "")
	}
	employers, err := w.adapter.GetCurrentEmployer(t.Context(), w.service())
	if err != nil || len(employers) != 1 {
		t.Fatalf("current employers: %v, %v, want the location in the record", employers, err)
	}
	if _, failed, err := w.adapter.DeleteEmployer(t.Context(), w.service(), employers); err == nil || len(failed) != 1 {
		t.Error("the record is removed while there are servers, which could not be found again")
	}
	for range 5 {
		if err := w.dismiss(); err != nil {
			t.Fatal(err)
		}
	}
	if names := w.names(); len(names) > 0 {
		t.Errorf("left in HAProxy: %q", names)
	}
	if _, _, err := w.adapter.DeleteEmployer(t.Context(), w.service(), employers); err != nil {
		t.Fatal(err)
	}
	if text, has := w.service().Annotations[haproxy.InUseAnnotationKey]; has {
		t.Errorf("the record remains: %q", text)
	}
}
