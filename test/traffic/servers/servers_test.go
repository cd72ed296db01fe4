package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/podops-dev/podops/test/await"
)

// patience is the timeout of events that take milliseconds on an idle machine.
const patience = 20 * time.Second

// addressed is a loopback address that no other test uses.
const addressed = "127.64.201.7"

func newFleet(t *testing.T) *Set {
	t.Helper()
	f := New(freePort(t), 0, logr.Discard())
	t.Cleanup(f.Close)
	return f
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", addressed+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func (f *Set) url(path string) string {
	return "http://" + net.JoinHostPort(addressed, strconv.Itoa(f.port)) + path
}

// refused reports whether nothing listens.
func (f *Set) refused() bool {
	_, err := net.DialTimeout("tcp", net.JoinHostPort(addressed, strconv.Itoa(f.port)), patience)
	return errors.Is(err, syscall.ECONNREFUSED)
}

func get(t *testing.T, url string) (status int, pod, body string, err error) {
	t.Helper()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(url)
	if err != nil {
		return 0, "", "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, answer.Header.Get(PodHeader), string(text), err
}

func TestServerListensFromTheFirstStartToDeletion(t *testing.T) {
	f := newFleet(t)
	handler := f.Handler()
	pending := runs("web-0", "", 0)
	pending.Status.Phase = corev1.PodPending
	handler.OnAdd(pending, true)
	if !f.refused() {
		t.Fatal("a pod without an address serves")
	}
	pod := runs("web-0", addressed, 0)
	handler.OnUpdate(pending, pod)
	status, name, body, err := get(t, f.url("/"))
	if err != nil || status != http.StatusOK || name != "web-0" || body != Body("web-0") {
		t.Fatalf("a running pod answers %d %q %q, %v", status, name, body, err)
	}
	deleted := pod.DeepCopy()
	deleted.DeletionTimestamp = &deleted.CreationTimestamp
	handler.OnUpdate(pod, deleted)
	if !f.refused() {
		t.Error("a deleted pod serves")
	}
	handler.OnDelete(deleted)
	if diff := cmp.Diff(Counts{Started: 1, Killed: 1}, f.Counts()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if err := f.Err(); err != nil {
		t.Error(err)
	}
}

func TestAServerEndsWithAPodWhoseDeletionWasMissed(t *testing.T) {
	f := newFleet(t)
	pod := runs("web-0", addressed, 0)
	f.Handler().OnAdd(pod, true)
	f.Handler().OnDelete(toolscache.DeletedFinalStateUnknown{Key: "default/web-0", Obj: pod})
	if !f.refused() {
		t.Error("a deleted pod serves")
	}
}

// TestServerCutsOpenRequests ends a pod in the middle of the body of an answer.
func TestServerCutsOpenRequests(t *testing.T) {
	for name, end := range map[string]func(*Set, *corev1.Pod){
		"deletion":   func(f *Set, pod *corev1.Pod) { f.Handler().OnDelete(pod) },
		"a restart":  func(f *Set, pod *corev1.Pod) { f.Handler().OnUpdate(pod, runs(pod.Name, addressed, 1)) },
		"everything": func(f *Set, _ *corev1.Pod) { f.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			pod := runs("web-0", addressed, 0)
			f.Handler().OnAdd(pod, true)
			answer, err := (&http.Client{Timeout: patience}).Get(f.url("/?work=20s"))
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			end(f, pod)
			body, err := io.ReadAll(answer.Body)
			if err == nil {
				t.Errorf("the answer is whole: %q", body)
			}
			if want := Body("web-0")[:len(Body("web-0"))/2]; string(body) != want {
				t.Errorf("got %q, want what was sent before the end: %q", body, want)
			}
		})
	}
}

func TestServerAfterARestartAnswersAtTheSameAddress(t *testing.T) {
	f := newFleet(t)
	f.Handler().OnAdd(runs("web-0", addressed, 0), true)
	for n := range int32(20) {
		f.Handler().OnUpdate(runs("web-0", addressed, n), runs("web-0", addressed, n+1))
		if status, _, _, err := get(t, f.url("/")); err != nil || status != http.StatusOK {
			t.Fatalf("restart %d: %d, %v", n+1, status, err)
		}
	}
	if diff := cmp.Diff(Counts{Running: 1, Started: 21, Killed: 20}, f.Counts()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestWorkTakesTimeAndIsBounded(t *testing.T) {
	f := newFleet(t)
	f.Handler().OnAdd(runs("web-0", addressed, 0), true)
	began := time.Now()
	if status, _, body, err := get(t, f.url("/?work=100ms")); err != nil || status != http.StatusOK || body != Body("web-0") {
		t.Errorf("got %d %q, %v", status, body, err)
	}
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("work of 100ms took %s", took)
	}
	for _, work := range []string{"1h", "-1s", "soon"} {
		status, _, body, err := get(t, f.url("/?work="+work))
		if err != nil || status != http.StatusBadRequest || !strings.Contains(body, "?work=250ms") {
			t.Errorf("work=%s: got %d %q, %v; want 400 and the way out", work, status, body, err)
		}
	}
}

func TestTheErrorOfAServerNamesItsPod(t *testing.T) {
	f := newFleet(t)
	f.Handler().OnAdd(runs("web-0", addressed, 0), true)
	f.Handler().OnAdd(runs("web-1", addressed, 0), true)
	if err := f.Err(); err == nil || !strings.Contains(err.Error(), "web-1") {
		t.Errorf("got %v, want an error that names web-1", err)
	}
}

func TestErrorsAreBounded(t *testing.T) {
	f := newFleet(t)
	f.Handler().OnAdd(runs("web-0", addressed, 0), true)
	for n := range 3 * maxErrors {
		f.Handler().OnAdd(runs(fmt.Sprintf("other-%d", n), addressed, 0), true)
	}
	if got := len(strings.Split(f.Err().Error(), "\n")); got != maxErrors {
		t.Errorf("%d errors are kept, want %d", got, maxErrors)
	}
}

func TestClosedFleetStartsNothing(t *testing.T) {
	f := newFleet(t)
	f.Close()
	f.Handler().OnAdd(runs("web-0", addressed, 0), true)
	if !f.refused() {
		t.Error("a closed Set serves")
	}
}

func TestFleetFollowsAWatch(t *testing.T) {
	f := newFleet(t)
	source := fcache.NewFakeControllerSource()
	_, controller := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: source, ObjectType: &corev1.Pod{}, Handler: f.Handler(),
	})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go controller.RunWithContext(ctx)
	source.Add(runs("web-0", addressed, 0))
	await.Until(t, "the pod serves", func() bool { return f.Counts().Running == 1 })
	source.Delete(runs("web-0", addressed, 0))
	await.Until(t, "the pod serves no longer", func() bool { return f.Counts().Running == 0 && f.refused() })
}
