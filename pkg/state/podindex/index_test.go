package podindex_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

// failer has the common methods of *testing.T and *rapid.T.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// index is one under test, with a server's counter of resourceVersions.
type index struct {
	*podindex.Index
	t        failer
	store    cache.ReflectorStore
	version  int
	notified []string
}

// newIndex has listed an empty cluster.
func newIndex(t failer) *index {
	x := &index{t: t}
	x.Index = podindex.NewIndex(func(namespace string) { x.notified = append(x.notified, namespace) })
	x.store = x.PodStore()
	x.list()
	return x
}

func (x *index) next() string {
	x.version++
	return strconv.Itoa(x.version)
}

func (x *index) must(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

// put stores a pod and returns its resourceVersion.
func (x *index) put(pod *corev1.Pod) string {
	x.t.Helper()
	pod = pod.DeepCopy()
	pod.ResourceVersion = x.next()
	x.must(x.store.Update(pod))
	return pod.ResourceVersion
}

func (x *index) remove(pod *corev1.Pod) {
	x.t.Helper()
	pod = pod.DeepCopy()
	pod.ResourceVersion = x.next()
	x.must(x.store.Delete(pod))
}

// list replaces everything by these pods.
func (x *index) list(pods ...*corev1.Pod) {
	x.t.Helper()
	var objects []any
	for _, pod := range pods {
		pod = pod.DeepCopy()
		pod.ResourceVersion = x.next()
		objects = append(objects, pod)
	}
	x.must(x.store.Replace(objects, x.next()))
}

// rule selects pods of the namespace default by app=web.
func (x *index) rule(name string) *appsv1alpha1.PodTransitionRule {
	return &appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name + "-uid"), Generation: 1, ResourceVersion: x.next(),
		},
		Spec: appsv1alpha1.PodTransitionRuleSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
}

// only is the one rule of a view of the namespace default.
func (x *index) only() podindex.RuleView {
	x.t.Helper()
	view := x.Snapshot("default", nil)
	if len(view.Rules) != 1 {
		x.t.Fatal(fmt.Sprintf("%d rules, want one", len(view.Rules)))
	}
	return view.Rules[0]
}

func waitingPod(name string) *builders.PodBuilder {
	return builders.MakePod(name).Available().Waiting("a", "upgrade", builders.Epoch)
}

func keys(requests []rule.Request) []string {
	var found []string
	for _, request := range requests {
		found = append(found, request.Key())
	}
	return found
}

func TestViewOfANamespace(t *testing.T) {
	x := newIndex(t)
	x.SetRule(x.rule("b"))
	x.SetRule(x.rule("a"))
	x.put(waitingPod("late").Label("app", "web").Waiting("a", "upgrade", builders.Epoch.Add(time.Hour)).Obj())
	x.put(waitingPod("early").Label("app", "web").Obj())
	x.put(waitingPod("free").Obj())
	x.put(builders.MakePod("idle").Available().Label("app", "web").Obj())
	last := x.put(waitingPod("elsewhere").Namespace("other").Label("app", "web").Obj())

	view := x.Snapshot("default", nil)
	if view.ResourceVersion != last {
		t.Errorf("seen up to %s, want %s", view.ResourceVersion, last)
	}
	if diff := cmp.Diff([]string{"early-uid/PreCheck/a", "free-uid/PreCheck/a", "late-uid/PreCheck/a"}, keys(view.Waiting)); diff != "" {
		t.Errorf("waiting differs (-want +got):\n%s", diff)
	}
	for i, name := range []string{"a", "b"} {
		ruleView := view.Rules[i]
		if ruleView.Object.Name != name {
			t.Errorf("rule %d is %s, want %s", i, ruleView.Object.Name, name)
		}
		if diff := cmp.Diff([]string{"early-uid/PreCheck/a", "late-uid/PreCheck/a"}, keys(ruleView.Waiting)); diff != "" {
			t.Errorf("waiting under %s differs (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(rule.Counts{Selected: 3, Desired: 3, Available: 3}, ruleView.Counts); diff != "" {
			t.Errorf("counts of %s differ (-want +got):\n%s", name, diff)
		}
	}
	if view.Pod("early-uid") == nil || view.Pod("idle-uid") != nil {
		t.Error("the objects of the pods that wait, and of no others, are at hand")
	}
	if diff := cmp.Diff([]string{"elsewhere-uid/PreCheck/a"}, keys(x.Snapshot("other", nil).Waiting)); diff != "" {
		t.Errorf("waiting in the other namespace differs (-want +got):\n%s", diff)
	}
	if rules := x.Snapshot("other", nil).Rules; len(rules) != 0 {
		t.Errorf("%d rules from another namespace", len(rules))
	}
	if diff := cmp.Diff([]string{"default", "other"}, x.Namespaces()); diff != "" {
		t.Errorf("namespaces differ (-want +got):\n%s", diff)
	}
}

func TestViewOfAnUnknownNamespace(t *testing.T) {
	x := newIndex(t)
	view := x.Snapshot("nowhere", nil)
	if len(view.Rules) != 0 || len(view.Waiting) != 0 || view.ResourceVersion == "" {
		t.Errorf("got %+v", view)
	}
	if len(x.Namespaces()) != 0 {
		t.Errorf("looking at a namespace made it: %v", x.Namespaces())
	}
}

func TestReservations(t *testing.T) {
	x := newIndex(t)
	at := map[string]string{
		"live":        x.put(waitingPod("live").Label("app", "web").Obj()),
		"moved":       x.put(waitingPod("moved").Label("app", "web").Obj()),
		"unavailable": x.put(waitingPod("unavailable").Label("app", "web").Unready(builders.Epoch).Obj()),
		"unselected":  x.put(waitingPod("unselected").Obj()),
	}
	x.put(waitingPod("moved").Label("app", "web").Obj())
	ruleset := x.rule("r")
	ruleset.Status.Permits = &appsv1alpha1.PermitRecord{Reserved: []appsv1alpha1.ReservedPod{
		{UID: "gone-uid", ResourceVersion: "1"}, {UID: "nameless-uid"},
	}}
	for _, name := range []string{"live", "moved", "unavailable", "unselected"} {
		ruleset.Status.Permits.Reserved = append(ruleset.Status.Permits.Reserved,
			appsv1alpha1.ReservedPod{UID: types.UID(name + "-uid"), Name: name, ResourceVersion: at[name]})
	}
	x.SetRule(ruleset)

	got := x.only()
	var live []string
	for _, reserved := range got.Live {
		live = append(live, reserved.Name)
	}
	slices.Sort(live)
	if diff := cmp.Diff([]string{"live", "unavailable", "unselected"}, live); diff != "" {
		t.Errorf("live reservations differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(rule.Counts{Selected: 3, Desired: 3, Available: 2, Reserved: 1}, got.Counts); diff != "" {
		t.Errorf("counts differ (-want +got):\n%s", diff)
	}
	view := x.Snapshot("default", nil)
	if view.At("live-uid") != at["live"] || view.At("moved-uid") == at["moved"] || view.At("gone-uid") != "" {
		t.Errorf("versions: live %q, moved %q, gone %q", view.At("live-uid"), view.At("moved-uid"), view.At("gone-uid"))
	}
}

// TestAPodThatReplacesAnother shows that pods count by UID, so a new pod of the same name is
// another pod, in either order of the two events.
func TestAPodThatReplacesAnother(t *testing.T) {
	old := waitingPod("web-0").UID("old").Label("app", "web").Obj()
	fresh := builders.MakePod("web-0").UID("new").Label("app", "web").Obj()
	for name, replace := range map[string]func(*index){
		"deleted, then created": func(x *index) { x.remove(old); x.put(fresh) },
		"created, then deleted": func(x *index) { x.put(fresh); x.remove(old) },
		"found in a list":       func(x *index) { x.list(fresh) },
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			x.SetRule(x.rule("r"))
			x.put(old)
			replace(x)
			got := x.only()
			if diff := cmp.Diff(rule.Counts{Selected: 1, Desired: 1}, got.Counts); diff != "" {
				t.Errorf("counts differ (-want +got):\n%s", diff)
			}
			if len(got.Waiting) != 0 {
				t.Errorf("the old pod still waits: %v", keys(got.Waiting))
			}
			if diff := cmp.Diff([]string{"web-0"}, x.Targets(types.NamespacedName{Namespace: "default", Name: "r"})); diff != "" {
				t.Errorf("targets differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSelector(t *testing.T) {
	for name, selector := range map[string]*metav1.LabelSelector{
		"absent": nil,
		"empty":  {},
		"broken": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like", Values: []string{"web"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			x.put(waitingPod("p").Label("app", "web").Obj())
			ruleset := x.rule("r")
			ruleset.Spec.Selector = selector
			x.SetRule(ruleset)
			got := x.only()
			if got.SelectorErr == nil {
				t.Error("no error")
			}
			if diff := cmp.Diff(rule.Counts{}, got.Counts); diff != "" || len(got.Waiting) > 0 {
				t.Errorf("it selects %v (-want +got):\n%s", keys(got.Waiting), diff)
			}
		})
	}
}

// TestRulesInAnyOrderOfEvents has responses to writes before their events, and after
// the event of a deletion.
func TestRulesInAnyOrderOfEvents(t *testing.T) {
	key := types.NamespacedName{Namespace: "default", Name: "r"}
	x := newIndex(t)
	old := x.rule("r")
	written, edited := old.DeepCopy(), old.DeepCopy()
	written.ResourceVersion = x.next()
	edited.ResourceVersion, edited.Generation = x.next(), 2
	another := x.rule("r")
	another.UID = "another"

	expect := func(what string, want *appsv1alpha1.PodTransitionRule) {
		t.Helper()
		if got := x.only().Object; got != want {
			t.Errorf("%s: version %s, want %s", what, got.ResourceVersion, want.ResourceVersion)
		}
	}
	x.SetRule(old)
	x.RuleWritten(written)
	expect("the answer to a write comes first", written)
	x.SetRule(old)
	expect("the watch is behind", written)
	x.SetRule(edited)
	expect("an edit", edited)
	x.RuleWritten(written)
	expect("an answer that comes late", edited)
	x.DeleteRule(key)
	x.RuleWritten(written)
	if rules := x.Snapshot("default", nil).Rules; len(rules) != 0 {
		t.Error("the response to a write restored the rule")
	}
	x.SetRule(another)
	x.RuleWritten(written)
	expect("a response with another rule of the same name", another)
	x.SetRule(old)
	expect("a rule of another UID has its own versions", old)
}

func TestStore(t *testing.T) {
	x := &index{t: t}
	x.Index = podindex.NewIndex(func(string) {})
	x.store = x.PodStore()
	if x.Synced() || x.Snapshot("default", nil).ResourceVersion != "" {
		t.Error("nothing was listed, and something was seen")
	}
	for name, err := range map[string]error{
		"add": x.store.Add("x"), "update": x.store.Update(1), "delete": x.store.Delete(nil),
		"replace": x.store.Replace([]any{&corev1.Node{}}, "9"),
	} {
		if err == nil {
			t.Errorf("%s took what is no pod", name)
		}
	}
	if x.Synced() {
		t.Error("a list that failed counts")
	}
	x.must(x.store.Replace(nil, "17"))
	if got := x.Snapshot("default", nil).ResourceVersion; !x.Synced() || got != "17" {
		t.Errorf("after an empty list up to 17: seen up to %q", got)
	}
	bookmarks, ok := x.store.(cache.ReflectorBookmarkStore)
	if !ok {
		t.Fatal("the store takes no bookmarks")
	}
	x.must(bookmarks.Bookmark("23"))
	if got := x.Snapshot("default", nil).ResourceVersion; got != "23" {
		t.Errorf("after a bookmark at 23: seen up to %q", got)
	}
	pod := waitingPod("p").Obj()
	pod.ResourceVersion = "25"
	x.must(x.store.Add(pod))
	gone := pod.DeepCopy()
	gone.ResourceVersion = "28"
	x.must(x.store.Delete(gone))
	x.must(x.store.Delete(gone))
	if got := x.Snapshot("default", nil).ResourceVersion; got != "28" {
		t.Errorf("after a deletion at 28: seen up to %q", got)
	}
	if len(x.Namespaces()) != 0 {
		t.Errorf("namespaces %v are left", x.Namespaces())
	}
	x.must(x.store.Resync())
}
