package approvals_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podops-dev/podops/test/approvals"
	"github.com/podops-dev/podops/test/await"
)

// begin creates a task and returns its id.
func (d harness) begin(path, trace string, pods ...string) string {
	d.Helper()
	answer := d.fields(d.post(path, trace, pods...).Body)
	if answer["success"] != true {
		d.Fatalf("the answer is %v", answer)
	}
	return fmt.Sprint(answer["taskId"])
}

// result returns the relevant fields of the answer to a poll.
func (d harness) result(id string) string {
	d.Helper()
	answer := d.fields(d.poll("task-id", id).Body)
	return fmt.Sprint(answer["success"], " ", answer["finished"], " ", answer["finishedNames"], " ", answer["stop"])
}

func TestTasks(t *testing.T) {
	for name, tc := range map[string]struct {
		path         string
		want         []string // success, finished, finishedNames, stop of each poll
		wantApproved []string
	}{
		"one pod with every poll": {
			path: "/poll", want: []string{"true false [a] <nil>", "true false [a b] <nil>", "true true [a b c] <nil>", "true true [a b c] <nil>"},
			wantApproved: []string{"a", "b", "c"},
		},
		"two pods with every poll": {
			path: "/poll?each=2", want: []string{"true false [a b] <nil>", "true true [a b c] <nil>"},
			wantApproved: []string{"a", "b", "c"},
		},
		"all pods at the end": {
			path: "/poll-slow?polls=3", want: []string{"true false <nil> <nil>", "true false <nil> <nil>", "true true [a b c] <nil>"},
			wantApproved: []string{"a", "b", "c"},
		},
		"giving up": {
			path: "/stop?polls=2", want: []string{"true false <nil> <nil>", "true false <nil> true", "true false <nil> true"}, wantApproved: []string{},
		},
		"without end": {path: "/never", want: []string{"true false <nil> <nil>", "true false <nil> <nil>"}, wantApproved: []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, nil)
			id := d.begin(tc.path, "t1", "a", "b", "c")
			for i, want := range tc.want {
				d.same(fmt.Sprintf("poll %d", i+1), d.result(id), want)
			}
			d.same("approvals, each once", d.approvedNames(), tc.wantApproved)
		})
	}
}

func TestThePostReturnsHowToPoll(t *testing.T) {
	d := open(t, nil)
	poll := d.fields(d.post("/poll", "t1", "a").Body)
	d.same("poll", []any{poll["poll"], poll["async"], poll["traceId"]}, []any{true, nil, nil})
	async := d.fields(d.post("/async", "t2", "a").Body)
	d.same("async", []any{async["poll"], async["async"], async["traceId"]}, []any{nil, true, "t2"})

	both := "/result?" + url.Values{"task-id": {fmt.Sprint(async["taskId"])}, "trace-id": {"t2"}}.Encode()
	d.same("a poll with both ids", d.do(http.MethodGet, d.server.URL(both), "").Status, 200)
	mixed := "/result?" + url.Values{"task-id": {fmt.Sprint(poll["taskId"])}, "trace-id": {"t2"}}.Encode()
	d.same("a poll with ids of two tasks", d.do(http.MethodGet, d.server.URL(mixed), "").Status, 404)
	d.same("a poll under a key of the rule", d.poll("job", fmt.Sprint(poll["taskId"])).Status, 200)
}

func TestARepeatedPostReturnsItsTask(t *testing.T) {
	d := open(t, nil)
	d.same("task", d.begin("/poll", "t1", "a"), d.begin("/poll", "t1", "a"))
	d.same("POSTs", d.Posts("shop"), map[string]int{"t1": 2})
	d.same("POSTs elsewhere", d.Posts("elsewhere"), map[string]int{})
}

func TestIdsOfTasksMayNeedEscapes(t *testing.T) {
	d := open(t, nil)
	id := d.begin("/poll?prefix=..%2F..%2Fx%3Fy%3Dz%26", "t1", "a")
	d.same("id", id[:len("../../x?y=z&")], "../../x?y=z&")
	d.same("poll", d.result(id), "true true [a] <nil>")
}

func TestDecisionsApproveAndRejectPods(t *testing.T) {
	d := open(t, nil)
	id := d.begin("/manual", "t1", "a", "b")
	d.same("before", d.result(id), "true false <nil> <nil>")
	d.same("waiting", waiting(d), []string{"a", "b"})

	if _, err := d.Decide("", "a", true); err != nil {
		t.Fatal(err)
	}
	d.same("approvals count from the decision", d.approvedNames(), []string{"a"})
	d.same("one approved", d.result(id), "true false [a] <nil>")
	d.same("by curl", d.do(http.MethodPost, d.server.URL("/decide?pod=b&ok=false"), "").Body, "refused: b\n")
	d.same("the other refused", d.result(id), "true false [a] true")
	d.same("waiting", waiting(d), []string(nil))
	d.same("approvals", d.approvedNames(), []string{"a"})
}

func waiting(d harness) []string {
	var names []string
	for _, held := range d.Waiting("shop") {
		names = append(names, held.Pod.Name)
	}
	return names
}

func TestInvalidDecisionsAreRejected(t *testing.T) {
	d := open(t, nil)
	d.begin("/manual", "t1", "a")
	d.begin("/poll", "t2", "b")
	elsewhere := `{"traceId": "t3", "stage": "PreCheck", "ruleName": "ok", "namespace": "elsewhere", "resources": [{"apiVersion": "v1", "kind": "Pod", "name": "a"}]}`
	d.same("status", d.do(http.MethodPost, d.server.URL("/manual"), elsewhere).Status, 200)
	for name, tc := range map[string]struct {
		query string
		want  int
	}{
		"nothing":                     {want: 400},
		"no answer":                   {query: "pod=a", want: 400},
		"an invalid answer":           {query: "pod=a&ok=perhaps", want: 400},
		"no pod":                      {query: "ok=true", want: 400},
		"a pod and all":               {query: "pod=a&all=true&ok=true", want: 400},
		"a pod that does not wait":    {query: "pod=c&ok=true", want: 404},
		"a pod of another path":       {query: "pod=b&ok=true", want: 404},
		"a pod of two namespaces":     {query: "pod=a&ok=true", want: 409},
		"a namespace without the pod": {query: "pod=a&namespace=nowhere&ok=true", want: 404},
	} {
		d.same(name, d.do(http.MethodPost, d.server.URL("/decide?"+tc.query), "").Status, tc.want)
	}
	d.same("no pod was approved", d.Approvals(""), []approvals.Approval(nil))
	d.same("with its namespace", d.do(http.MethodPost, d.server.URL("/decide?pod=a&namespace=elsewhere&ok=true"), "").Status, 200)
	d.same("all remaining pods, from the page", d.do(http.MethodPost, d.server.URL("/decide?all=true&ok=true&back=true"), "").Status, 303)
	d.same("approvals", d.approvedNames(), []string{"a"})
}

func TestThePageEscapesNames(t *testing.T) {
	d := open(t, nil)
	d.begin("/manual", "t1", "<script>")
	page := d.do(http.MethodGet, d.server.URL("/"), "").Body
	if slices.Contains([]bool{strings.Contains(page, "&lt;script&gt;"), strings.Contains(page, `name="ok" value="true"`), !strings.Contains(page, "<script>")}, false) {
		t.Error(page)
	}
}

func TestWatchIsCalledBeforeAndAfterTheDecision(t *testing.T) {
	var steps []string
	var d harness
	d = open(t, func(step approvals.Step, entry approvals.Entry) {
		steps = append(steps, fmt.Sprint(step, " ", entry.Path, " ", entry.TraceID, " ", entry.Decision, " ", len(d.Approvals(""))))
	})
	d.post("/approve", "t1", "a")
	if err := d.server.Close(t.Context()); err != nil { // answers have been written before Answered
		t.Fatal(err)
	}
	d.same("steps", steps, []string{"arrived /approve t1  0", "answered /approve t1 approved 1"})
}

func TestCloseCancelsHangingRequests(t *testing.T) {
	arrived := make(chan struct{})
	d := open(t, func(step approvals.Step, _ approvals.Entry) {
		if step == approvals.Arrived {
			arrived <- struct{}{}
		}
	})
	var clients sync.WaitGroup
	for _, path := range []string{"/hang", "/approve?after=10m"} {
		clients.Go(func() { d.post(path, path, "a") })
		await.Receive(t, "the request arrives", arrived)
	}
	ending, cut := context.WithTimeout(t.Context(), 10*time.Second)
	defer cut()
	if err := d.server.Close(ending); err != nil {
		t.Fatal(err)
	}
	clients.Wait()
	d.same("silent", d.Log("")[0].Decision == approvals.Silent || d.Log("")[1].Decision == approvals.Silent, true)
}

func TestARestartKeepsTheStateOfTheService(t *testing.T) {
	d := open(t, nil)
	id := d.begin("/poll", "t1", "a")
	if err := d.server.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := approvals.Serve(d.Service, approvals.Options{HTTPAddress: d.server.URL("")[len("http://"):]})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close(t.Context())
	d.same("poll", d.result(id), "true true [a] <nil>")
}

func TestConcurrentRequestsApproveEachPodOnce(t *testing.T) {
	const callers, pods = 20, 5
	d := open(t, nil)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			trace := fmt.Sprint("t", i)
			var names []string
			for j := range pods {
				names = append(names, fmt.Sprintf("p%d-%d", i, j))
			}
			id := d.begin("/poll", trace, names...)
			var polls sync.WaitGroup
			for range pods {
				polls.Go(func() { d.poll("task-id", id) })
			}
			polls.Wait()
		})
	}
	all.Wait()
	approved := d.approvedNames()
	slices.Sort(approved)
	d.same("each pod is approved once", len(slices.Compact(approved)), callers*pods)
	d.same("and only once", len(d.Approvals("")), callers*pods)
	for trace, posts := range d.Posts("") {
		d.same(trace, posts, 1)
	}
}
