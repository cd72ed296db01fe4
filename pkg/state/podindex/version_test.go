package podindex_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

// named is a workload with a name.
func named(kind, name string, uid, controller types.UID) podindex.Owner {
	owner := workload(uid, controller, 3)
	owner.Kind, owner.Name = kind, name
	return owner
}

// TestOwnerOfAPod is the workload at the top of the known owners, for events in any order.
func TestOwnerOfAPod(t *testing.T) {
	x := newIndex(t)
	x.SetRule(x.rule("r"))
	set := rule.Owner{Kind: "StatefulSet", Name: "rs", UID: "rs"} // as in the reference of the pod
	deploy := rule.Owner{Kind: "Deployment", Name: "web", UID: "deploy"}
	above := rule.Owner{Kind: "ReplicaSet", Name: "rs-of-web", UID: "middle"}
	at := x.put(ownedPod("rs", 0).Available().Obj())
	step := func(what string, change func(), owner rule.Owner, version string) {
		t.Helper()
		change()
		got := x.fact()
		if diff := cmp.Diff(owner, got.Owner); diff != "" {
			t.Errorf("%s: owner differs (-want +got):\n%s", what, diff)
		}
		if got.Version != version {
			t.Errorf("%s: version %s, want %s", what, got.Version, version)
		}
	}
	step("nothing is known", func() {}, set, at)
	step("the controller is known", func() { x.SetOwner(named("StatefulSet", "rs", "rs", "middle")) }, set, at)
	step("another workload is known", func() { x.SetOwner(named("Deployment", "db", "db", "")) }, set, at)
	step("the top is known", func() { x.SetOwner(named("Deployment", "web", "deploy", "")) }, set, at)
	step("what is between them is known", func() { x.SetOwner(named("ReplicaSet", "rs-of-web", "middle", "deploy")) }, deploy, at+"+deploy")
	step("the pod beats", func() { x.put(ownedPod("rs", 0).Available().Obj()) }, deploy, at+"+deploy")
	step("the top is scaled", func() {
		scaled := named("Deployment", "web", "deploy", "")
		scaled.Desired = 9
		x.SetOwner(scaled)
	}, deploy, at+"+deploy")
	step("the top is gone", func() { x.DeleteOwner("default", "deploy") }, above, at+"+middle")
	step("all are gone", func() { x.DeleteOwner("default", "middle"); x.DeleteOwner("default", "rs") }, set, at)
	step("all are known again", func() {
		x.SetOwner(named("Deployment", "web", "deploy", ""))
		x.SetOwner(named("ReplicaSet", "rs-of-web", "middle", "deploy"))
		x.SetOwner(named("StatefulSet", "rs", "rs", "middle"))
	}, deploy, at+"+deploy")
	at = x.put(ownedPod("rs", 0).Available().Label("zone", "a").Obj())
	step("the pod changes", func() {}, deploy, at)
	step("a ring has no top", func() { x.SetOwner(named("Deployment", "web", "deploy", "rs")) }, set, at+"+rs")
}

// TestNotifiesOfAnotherOwner of a pod, and replaces the facts of a pod that waits everywhere.
func TestNotifiesOfAnotherOwner(t *testing.T) {
	x := newIndex(t)
	x.SetRule(x.rule("r"))
	x.put(ownedPod("rs", 0).Available().Waiting("a", "upgrade", builders.Epoch).Obj())
	before := x.fact()
	x.notified = nil
	x.SetOwner(named("StatefulSet", "rs", "rs", "deploy"))
	x.SetOwner(named("Deployment", "web", "deploy", ""))
	if !slices.Contains(x.notified, "default") {
		t.Error("the index did not notify")
	}
	if before.Owner.Name != "rs" {
		t.Errorf("the facts that were handed out have changed: owner %q", before.Owner.Name)
	}
	view := x.Snapshot("default", everyPod)
	for what, pod := range map[string]*rule.PodFact{
		"a request": view.Waiting[0].Pod, "a request under the rule": view.Rules[0].Waiting[0].Pod, "a pod of the rule": view.Rules[0].Pods[0],
	} {
		if pod.Owner.Name != "web" {
			t.Errorf("%s has the owner %q", what, pod.Owner.Name)
		}
	}
	edited := x.rule("r")
	edited.Generation = 2
	x.SetRule(edited)
	if got := x.fact().Owner.Name; got != "web" {
		t.Errorf("after an edit of the rule the owner is %q", got)
	}
	if view.Rules[0].Counts.Available != 1 || view.Pod(before.UID) == nil {
		t.Errorf("counts %+v, object %v", view.Rules[0].Counts, view.Pod(before.UID))
	}
}

// TestVersionsIdentifyFacts tests that facts of one pod are equal if and only if their versions
// are, as long as the pod exists.
func TestVersionsIdentifyFacts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &cluster{
			x: newIndex(t), pods: map[types.UID]*corev1.Pod{}, owners: map[types.UID]podindex.Owner{},
			rules: map[types.NamespacedName]*appsv1alpha1.PodTransitionRule{},
		}
		c.SelectAll(t)
		v := versions{c: c, seen: map[types.UID]*remembered{}}
		t.Repeat(map[string]func(*rapid.T){
			"": v.check, "create": c.Create, "change": c.Change, "retouch": c.Retouch, "retouch again": c.Retouch, "delete": c.Delete,
			"relist": c.Relist, "owner": c.Owner, "owner again": c.Owner, "drop owner": c.DropOwner, "select all": c.SelectAll,
		})
	})
}

// SelectAll makes or edits one rule in each namespace, which selects every pod.
func (c *cluster) SelectAll(*rapid.T) {
	for _, namespace := range []string{"default", "other"} {
		rule := c.x.customRule("all")
		rule.Namespace, rule.Generation = namespace, int64(c.x.version)
		rule.Spec.Selector = &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}},
		}
		c.x.SetRule(rule)
	}
}

// Retouch writes a pod again with perhaps one thing changed.
func (c *cluster) Retouch(t *rapid.T) {
	pod := c.draw(t).DeepCopy()
	switch rapid.IntRange(0, 7).Draw(t, "what") {
	case 0:
		pod.Labels["zone"] = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone")
	case 1:
		pod.Annotations = map[string]string{rapid.SampledFrom([]string{"note", "kusionstack.io/note"}).Draw(t, "key"): rapid.SampledFrom([]string{"x", "y"}).Draw(t, "value")}
	case 2:
		pod.Spec.NodeName = rapid.SampledFrom([]string{"", "n"}).Draw(t, "node")
	case 3:
		pod.Annotations = map[string]string{appsv1alpha1.SkipRulesAnnotationKey: `{"skipRules":["a"]}`}
	case 4:
		pod.Labels[appsv1alpha1.PreCheckedLabelPrefix+"/c"] = "1"
	case 5:
		pod.OwnerReferences = drawPod(t, pod.Namespace, pod.Name, pod.UID).OwnerReferences
	case 6:
		for i := range pod.Status.Conditions {
			pod.Status.Conditions[i].LastTransitionTime = metav1.NewTime(builders.Epoch.Add(1e9))
		}
	}
	c.put(pod)
}

type versions struct {
	c    *cluster
	seen map[types.UID]*remembered
}

// remembered has the observed facts of one pod, by their version without and with details.
type remembered struct {
	last     *rule.PodFact
	versions map[bool]map[string]*rule.PodFact
}

func (v versions) check(t *rapid.T) {
	there := map[types.UID]bool{}
	for _, namespace := range []string{"default", "other"} {
		for _, fact := range v.c.x.Snapshot(namespace, everyPod).Rules[0].Pods {
			there[fact.UID] = true
			v.checkPod(t, fact)
		}
	}
	maps.DeleteFunc(v.seen, func(uid types.UID, _ *remembered) bool { return !there[uid] })
}

func (v versions) checkPod(t *rapid.T, fact *rule.PodFact) {
	before, known := v.seen[fact.UID]
	if !known {
		before = &remembered{last: fact, versions: map[bool]map[string]*rule.PodFact{false: {}, true: {}}}
		v.seen[fact.UID] = before
	}
	for details, versions := range before.versions {
		version, last := fact.VersionWith(details), before.last.VersionWith(details)
		// Rules see none of these.
		hidden := cmp.Options{
			cmpopts.IgnoreFields(rule.PodFact{}, "ResourceVersion", "Version"), cmpopts.IgnoreFields(rule.PodDetails{}, "Version"), cmpopts.EquateEmpty(),
		}
		if !details {
			hidden = append(hidden, cmpopts.IgnoreFields(rule.PodFact{}, "Details"))
		}
		if same := cmp.Equal(before.last, fact, hidden); same != (last == version) {
			t.Fatalf("version %s after %s, and the facts are the same: %t\n%s", version, last, same, cmp.Diff(before.last, fact, hidden))
		}
		if earlier, ok := versions[version]; ok && !cmp.Equal(earlier, fact, hidden) {
			t.Fatalf("two facts of version %s:\n%s", version, cmp.Diff(earlier, fact, hidden))
		}
		versions[version] = fact
	}
	before.last = fact
}
