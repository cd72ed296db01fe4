package resourceconsist

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/podops-dev/podops/test/builders"
)

// TestFinalizersFollowTheProviderDespiteFailures checks, for any failures and any order of
// pod events: no preparing pod lacks its finalizer while a load balancer sends it traffic,
// no pod gets one without traffic, and once nothing fails any more every pod reaches its
// expected state.
func TestFinalizersFollowTheProviderDespiteFailures(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const pods = 3
		w := newCluster(t, nil, workload(pods)...)
		name := func(i int) string { return fmt.Sprintf("p%03d", i) }
		states := map[string]func(string) *builders.PodBuilder{
			"serves":   func(n string) *builders.PodBuilder { return webPod(n).Available() },
			"prepares": func(n string) *builders.PodBuilder { return webPod(n).Available().Preparing("x", "update") },
			"unready":  func(n string) *builders.PodBuilder { return webPod(n).Gate(true).Unready(builders.Epoch) },
			"leaves":   func(n string) *builders.PodBuilder { return webPod(n).Available().Label("app", "other") },
		}
		last := map[string]string{}
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			pod, state := name(rapid.IntRange(0, pods-1).Draw(rt, "pod")), rapid.SampledFrom([]string{"serves", "prepares", "unready", "leaves"}).Draw(rt, "state")
			w.becomes(states[state](pod))
			last[pod] = state
			clear(w.lb.fail)
			for i := range rapid.IntRange(0, 3).Draw(rt, "failures") {
				verb := rapid.SampledFrom([]string{
					"GetSelectedEmployeeNames", "GetExpectedEmployer", "GetCurrentEmployer", "GetExpectedEmployee", "GetCurrentEmployee",
					"CreateEmployer", "CreateEmployees", "UpdateEmployees", "DeleteEmployees",
					"CreateEmployees " + pod + "-uid", "UpdateEmployees " + pod + "-uid", "DeleteEmployees " + pod + "-uid",
				}).Draw(rt, "verb")
				w.lb.fail[verb] = errors.New("failure " + strconv.Itoa(i))
			}
			w.lb.whole = rapid.Bool().Draw(rt, "whole batches")
			before := map[string]bool{}
			for i := range pods {
				before[name(i)] = w.protected(name(i))
			}
			_, _ = w.reconcile()
			for i := range pods {
				now, takes := w.protected(name(i)), w.lb.servers[name(i)+"-uid"].on
				if now && !before[name(i)] && !takes {
					rt.Fatalf("%s got a finalizer without traffic", name(i))
				}
				if !now && before[name(i)] && takes {
					rt.Fatalf("%s lost its finalizer with traffic", name(i))
				}
			}
			w.clock.Step(lastRetry)
		}
		clear(w.lb.fail)
		for range 4 {
			_, _ = w.reconcile()
			w.clock.Step(lastRetry)
		}
		for i := range pods {
			pod, server := name(i), w.lb.servers[name(i)+"-uid"]
			switch state := last[pod]; {
			case (state == "" || state == "serves") && (!w.protected(pod) || !server.on),
				state == "prepares" && (w.protected(pod) || server.on),
				state == "unready" && server.on,
				state == "leaves" && (w.protected(pod) || w.expects(pod) || server.id != ""):
				rt.Fatalf("%s %s: protected %v, expects %v, server %+v", pod, state, w.protected(pod), w.expects(pod), server)
			}
		}
	})
}
