package podindex_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

// Budget makes or changes a PodDisruptionBudget.
func (c *cluster) Budget(t *rapid.T) {
	b := podindex.DisruptionBudget{
		Namespace: "default", Name: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "budget"), Desired: rapid.IntRange(0, 3).Draw(t, "desired"),
		Selector: rapid.SampledFrom([]labels.Selector{
			nil, labels.Everything(), labels.SelectorFromSet(labels.Set{"app": "web"}), labels.SelectorFromSet(labels.Set{"tier": "gold"}),
		}).Draw(t, "selector"),
	}
	if rapid.Bool().Draw(t, "record") {
		b.Record = c.drawRecord(t)
		c.records[b.Name] = b.Record
	}
	c.x.SetDisruptionBudget(b)
	b.Record = c.records[b.Name]
	c.budgets[b.Name] = b
}

// DropBudget removes a PodDisruptionBudget.
func (c *cluster) DropBudget(t *rapid.T) {
	if len(c.budgets) == 0 {
		t.Skip("no budgets")
	}
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(c.budgets))).Draw(t, "budget")
	delete(c.budgets, name)
	c.x.RetireDisruptionBudget(types.NamespacedName{Namespace: "default", Name: name}, builders.Epoch)
}

// disrupted has the counts of one PodDisruptionBudget.
type disrupted struct {
	Desired, Ready, Available, Counted, Reserved int

	Waiting     []string
	Unavailable []string
	Live        []types.UID
}

// checkBudgets requires that budgets that select a waiting pod have the counts of a recount, and that the
// others are left out.
func (c *cluster) checkBudgets(t *rapid.T) {
	got, want := map[string]disrupted{}, map[string]disrupted{}
	for _, view := range c.x.Snapshot("default", nil).Disruptions {
		waiting := keys(view.Waiting)
		slices.Sort(waiting)
		got[view.Name] = disrupted{
			view.Desired, view.Ready, view.Available, view.Counted, view.Reserved, waiting, view.Unavailable, slices.Sorted(maps.Keys(view.Live)),
		}
	}
	for name, b := range c.budgets {
		if counted := c.recountBudget(b); len(counted.Waiting) > 0 {
			want[name] = counted
		}
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b []string) bool { return slices.Equal(a, b) })); diff != "" {
		t.Fatalf("the index has lost count (-want +got):\n%s", diff)
	}
}

func (c *cluster) recountBudget(b podindex.DisruptionBudget) disrupted {
	count := disrupted{Desired: b.Desired, Live: c.live("default", b.Record)}
	for _, pod := range c.pods {
		if pod.Namespace != "default" || b.Selector == nil || !b.Selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if pod.DeletionTimestamp != nil {
			continue
		}
		count.Waiting = append(count.Waiting, waitingKeys(pod)...)
		if pod.Status.Phase == corev1.PodFailed {
			continue
		}
		count.Counted++
		ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if ready {
			count.Ready++
		}
		if ready && !isOffTraffic(pod) {
			count.Available++
			if slices.Contains(count.Live, pod.UID) {
				count.Reserved++
			}
			continue
		}
		count.Unavailable = append(count.Unavailable, pod.Name)
	}
	slices.Sort(count.Waiting)
	slices.Sort(count.Unavailable)
	count.Unavailable = count.Unavailable[:min(len(count.Unavailable), 5)]
	return count
}

func TestDisruptionBudgetOfReadsTheStatus(t *testing.T) {
	object := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 2},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, DesiredHealthy: 2, CurrentHealthy: 3, ExpectedPods: 4},
	}
	b := podindex.NewDisruptionBudget(object)
	if b.Desired != 2 || b.Healthy != 3 || b.Expected != 4 || b.Unknown != "" || !b.Selector.Matches(labels.Set{"app": "web"}) {
		t.Errorf("got %+v", b)
	}
	object.Generation = 3
	if b := podindex.NewDisruptionBudget(object); !strings.Contains(b.Unknown, "generation 2") {
		t.Errorf("of an old status: %q", b.Unknown)
	}
	object.Status.Conditions = []metav1.Condition{{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: strings.Repeat("no\n", 1000),
	}}
	if b := podindex.NewDisruptionBudget(object); !strings.Contains(b.Unknown, "could not count") || len(b.Unknown) > 400 || strings.Contains(b.Unknown, "\n") {
		t.Errorf("of a failed sync: %q", b.Unknown)
	}
	object.Spec.Selector = &metav1.LabelSelector{}
	if b := podindex.NewDisruptionBudget(object); !b.Selector.Matches(labels.Set{}) {
		t.Error("an empty selector does not select every pod")
	}
	object.Spec.Selector = nil
	if b := podindex.NewDisruptionBudget(object); b.Selector != nil {
		t.Error("without a selector it selects pods")
	}
}

func TestANamespaceHasABoundOfDisruptionBudgets(t *testing.T) {
	x := newIndex(t)
	for i := range podindex.MaxDisruptionBudgets + 1 {
		x.SetDisruptionBudget(podindex.DisruptionBudget{Namespace: "default", Name: fmt.Sprintf("b-%d", i), Selector: labels.Everything()})
	}
	x.put(builders.MakePod("web").Available().Waiting("a", "upgrade", builders.Epoch).Obj())
	if got := len(x.Snapshot("default", nil).Disruptions); got != podindex.MaxDisruptionBudgets {
		t.Errorf("%d are counted", got)
	}
	x.SetDisruptionBudget(podindex.DisruptionBudget{Namespace: "default", Name: "b-0", Selector: labels.Nothing()})
	if got := len(x.Snapshot("default", nil).Disruptions); got != podindex.MaxDisruptionBudgets-1 {
		t.Errorf("%d are counted after a change", got)
	}
}

// TestADisruptionBudgetKeepsItsRecord shows that no reservation is forgotten when the annotation is removed, or the
// PodDisruptionBudget is replaced.
func TestADisruptionBudgetKeepsItsRecord(t *testing.T) {
	key := types.NamespacedName{Namespace: "default", Name: "web"}
	object := func(uid types.UID, version string, reserved ...string) podindex.DisruptionBudget {
		o := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: uid, ResourceVersion: version},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
		}
		if len(reserved) > 0 {
			o.Annotations = map[string]string{appsv1alpha1.PermitsAnnotationKey: reserved[0]}
		}
		return podindex.NewDisruptionBudget(o)
	}
	const first, second = `{"reserved":{"web-0-uid":"1"}}`, `{"reserved":{"web-1-uid":"2"}}`
	for name, tc := range map[string]struct {
		steps         func(*index)
		want          string
		wantInherited bool
	}{
		"the annotation is removed":   {steps: func(x *index) { x.SetDisruptionBudget(object("a", "20")) }, want: "web-0-uid", wantInherited: true},
		"the annotation is malformed": {steps: func(x *index) { x.SetDisruptionBudget(object("a", "20", "none")) }, want: "web-0-uid", wantInherited: true},
		"it is removed for good": {
			steps: func(x *index) {
				x.SetDisruptionBudget(object("a", "20"))
				x.SetDisruptionBudget(object("a", "21"))
			},
			want: "web-0-uid", wantInherited: true,
		},
		"replaced between two lists": {steps: func(x *index) { x.SetDisruptionBudget(object("b", "20")) }, want: "web-0-uid", wantInherited: true},
		"deleted and created": {
			steps: func(x *index) {
				x.RetireDisruptionBudget(key, builders.Epoch)
				x.SetDisruptionBudget(object("b", "20"))
			},
			want: "web-0-uid", wantInherited: true,
		},
		"deleted long ago": {
			steps: func(x *index) {
				x.RetireDisruptionBudget(key, builders.Epoch)
				x.Expire(builders.Epoch.Add(podindex.RetiredFor))
				x.SetDisruptionBudget(object("b", "20"))
			},
		},
		"a record of its own": {
			steps: func(x *index) {
				x.SetDisruptionBudget(object("b", "20"))
				x.SetDisruptionBudget(object("b", "21", second))
			},
			want: "web-1-uid",
		},
		"a write is newer than the watch": {
			steps: func(x *index) {
				x.DisruptionBudgetWritten(object("a", "30", second))
				x.SetDisruptionBudget(object("a", "20", first))
			},
			want: "web-1-uid",
		},
		"a write of a deleted one": {
			steps: func(x *index) {
				x.RetireDisruptionBudget(key, builders.Epoch)
				x.DisruptionBudgetWritten(object("a", "30", second))
				x.SetDisruptionBudget(object("b", "31"))
			},
			want: "web-0-uid", wantInherited: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			x.put(builders.MakePod("web-0").Available().Waiting("a", "upgrade", builders.Epoch).Obj())
			x.SetDisruptionBudget(object("a", "10", first))
			tc.steps(x)
			view := x.Snapshot("default", nil).Disruptions[0]
			got := ""
			if view.Record != nil && len(view.Record.Reserved) > 0 {
				got = string(view.Record.Reserved[0].UID)
			}
			if got != tc.want || view.Inherited != tc.wantInherited {
				t.Errorf("the record lists %q, inherited %t; want %q, %t", got, view.Inherited, tc.want, tc.wantInherited)
			}
		})
	}
}

// TestOfADeletedDisruptionBudgetOnlyItsRecordIsLeft shows that it withholds nothing, and that the record goes in time.
func TestOfADeletedDisruptionBudgetOnlyItsRecordIsLeft(t *testing.T) {
	x := newIndex(t)
	x.SetDisruptionBudget(podindex.DisruptionBudget{Namespace: "default", Name: "web", Selector: labels.Everything(), Record: &appsv1alpha1.PermitRecord{}})
	x.RetireDisruptionBudget(types.NamespacedName{Namespace: "default", Name: "web"}, builders.Epoch)
	request := rule.Request{Pod: &rule.PodFact{Available: true, Ready: true}, Stage: appsv1alpha1.StagePreCheck}
	retired := x.Snapshot("default", nil).Retired
	if len(retired) != 1 || retired[0].Holds(request) != "" {
		t.Errorf("retired %+v, want one that holds nothing", retired)
	}
	x.Expire(builders.Epoch.Add(podindex.RetiredFor))
	if left := x.Namespaces(); len(left) > 0 {
		t.Errorf("namespaces %v are left", left)
	}
}
