package podindex_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

// boundRule is a PodTransitionRule that selects app=web, with one rule.
func boundRule(name string, uid types.UID, entry appsv1alpha1.TransitionRule) *appsv1alpha1.PodTransitionRule {
	entry.Name = "one"
	return &appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid, ResourceVersion: "10", Generation: 1},
		Spec: appsv1alpha1.PodTransitionRuleSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Rules:    []appsv1alpha1.TransitionRule{entry},
		},
	}
}

func labelled() appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{LabelCheck: &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{MatchLabels: map[string]string{"go": "yes"}}}}
}

func TestRetiredRuleHolds(t *testing.T) {
	available := appsv1alpha1.TransitionRule{AvailablePolicy: &appsv1alpha1.AvailablePolicy{}}
	with := func(entry appsv1alpha1.TransitionRule, change func(*appsv1alpha1.TransitionRule)) appsv1alpha1.TransitionRule {
		change(&entry)
		return entry
	}
	filtered := func(key string) func(*appsv1alpha1.TransitionRule) {
		return func(r *appsv1alpha1.TransitionRule) {
			r.Filter = &appsv1alpha1.TransitionRuleFilter{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: "web"}}}
		}
	}
	for name, tc := range map[string]struct {
		entry appsv1alpha1.TransitionRule
		pod   func(*rule.PodFact)
		stage appsv1alpha1.TransitionStage
		want  string
	}{
		"a rule that might have refused":        {entry: labelled(), want: "one"},
		"a bound of availability":               {entry: available, want: "one"},
		"a bound and a pod that is unavailable": {entry: available, pod: func(p *rule.PodFact) { p.Available = false }},
		"a bound and an unavailable pod of an unknown workload": {entry: available, want: "one", pod: func(p *rule.PodFact) {
			p.Available, p.Owner = false, rule.Owner{Kind: "CloneSet", UID: "clones"}
		}},
		"a bound and an unavailable pod of a workload that it covers": {entry: available, pod: func(p *rule.PodFact) {
			p.Available, p.Owner = false, rule.Owner{Kind: "StatefulSet", UID: "set"}
		}},
		"a pod of another selector": {entry: labelled(), pod: func(p *rule.PodFact) { p.Labels = map[string]string{"app": "db"} }},
		"a pod that skips the rule": {entry: labelled(), pod: func(p *rule.PodFact) { p.SkipRules = []string{"one"} }},
		"a request in PostCheck":    {entry: labelled(), stage: appsv1alpha1.StagePostCheck},
		"a rule of PostCheck":       {entry: with(labelled(), func(r *appsv1alpha1.TransitionRule) { r.Stage = appsv1alpha1.StagePostCheck })},
		"a disabled rule":           {entry: with(labelled(), func(r *appsv1alpha1.TransitionRule) { r.Disabled = true })},
		"a rule that only warns":    {entry: with(labelled(), func(r *appsv1alpha1.TransitionRule) { r.Enforcement = appsv1alpha1.EnforcementWarn })},
		"a rule for another type":   {entry: with(labelled(), func(r *appsv1alpha1.TransitionRule) { r.Conditions = []string{"update"} })},
		"a rule for the type":       {entry: with(labelled(), func(r *appsv1alpha1.TransitionRule) { r.Conditions = []string{"delete"} }), want: "one"},
		"a rule for other pods":     {entry: with(labelled(), filtered("tier"))},
		"a rule for the pod":        {entry: with(labelled(), filtered("app")), want: "one"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			x.put(builders.MakePod("web-0").Label("app", "web").Available().Obj())
			x.SetOwner(podindex.Owner{
				UID: "set", Namespace: "default", Kind: "StatefulSet", Name: "web", Desired: 1,
				TemplateLabels: map[string]string{"app": "web", appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue},
			})
			x.SetRule(boundRule("r", "r-uid", tc.entry))
			x.RetireRule(types.NamespacedName{Namespace: "default", Name: "r"}, builders.Epoch)
			pod := &rule.PodFact{Name: "web-0", Labels: map[string]string{"app": "web"}, Available: true}
			if tc.pod != nil {
				tc.pod(pod)
			}
			request := rule.Request{Pod: pod, Stage: appsv1alpha1.StagePreCheck, Type: "delete"}
			if tc.stage != "" {
				request.Stage = tc.stage
			}
			got := ""
			for _, retired := range x.Snapshot("default", nil).Retired {
				got = retired.Holds(request)
			}
			if got != tc.want {
				t.Errorf("held by rule %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRetiredRulesEnd(t *testing.T) {
	key := types.NamespacedName{Namespace: "default", Name: "r"}
	x := newIndex(t)
	retired := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, one := range x.Snapshot("default", nil).Retired {
			got = append(got, one.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: retired rules (-want +got):\n%s", what, diff)
		}
	}
	now := builders.Epoch
	x.SetRule(boundRule("r", "r-1", labelled()))
	x.RetireRule(key, now)
	retired("a rule that selects nothing in a view that may be behind", "r")

	pod := builders.MakePod("web-0").Label("app", "web").Available().Obj()
	x.put(pod)
	x.SetRule(boundRule("r", "r-2", labelled()))
	x.RetireRule(key, now)
	retired("a rule that was deleted", "r")
	x.Expire(now.Add(podindex.RetiredFor - 1))
	retired("before the end", "r")

	x.SetRule(boundRule("r", "r-3", labelled()))
	retired("another rule took its place")
	x.RetireRule(key, now.Add(time.Second))
	x.Expire(now.Add(podindex.RetiredFor))
	retired("the end of its predecessor", "r")
	x.Expire(now.Add(podindex.RetiredFor + time.Second))
	retired("its own end")

	for i := range 200 {
		name := fmt.Sprintf("many-%03d", i)
		x.SetRule(boundRule(name, types.UID(name), labelled()))
		x.RetireRule(types.NamespacedName{Namespace: "default", Name: name}, now.Add(time.Duration(i)))
	}
	if got := len(x.Snapshot("default", nil).Retired); got != 100 {
		t.Errorf("%d rules are retired at once, want the bound of 100", got)
	}
	x.remove(pod)
	x.Expire(now.Add(2 * podindex.RetiredFor))
	if left := x.Namespaces(); len(left) != 0 {
		t.Errorf("namespaces %v are left", left)
	}
}

func TestARuleInheritsTheRecordOfItsName(t *testing.T) {
	key := types.NamespacedName{Namespace: "default", Name: "r"}
	record := func(pods ...string) *appsv1alpha1.PermitRecord {
		r := &appsv1alpha1.PermitRecord{}
		for _, pod := range pods {
			r.Reserved = append(r.Reserved, appsv1alpha1.ReservedPod{UID: types.UID(pod + "-uid"), Name: pod, ResourceVersion: "1"})
		}
		return r
	}
	rule := func(uid types.UID, version string, permits *appsv1alpha1.PermitRecord) *appsv1alpha1.PodTransitionRule {
		r := boundRule("r", uid, labelled())
		r.ResourceVersion, r.Status.Permits = version, permits
		return r
	}
	for name, tc := range map[string]struct {
		steps         func(*index)
		want          []string
		wantInherited bool
	}{
		"deleted and created": {
			steps: func(x *index) {
				x.RetireRule(key, builders.Epoch)
				x.SetRule(rule("r-2", "20", nil))
			},
			want: []string{"web-0"}, wantInherited: true,
		},
		"replaced between two lists": {
			steps: func(x *index) { x.SetRule(rule("r-2", "20", nil)) },
			want:  []string{"web-0"}, wantInherited: true,
		},
		"a status without a record does not end it": {
			steps: func(x *index) {
				x.SetRule(rule("r-2", "20", nil))
				x.SetRule(rule("r-2", "21", nil))
			},
			want: []string{"web-0"}, wantInherited: true,
		},
		"an edit does not end it": {
			steps: func(x *index) {
				x.SetRule(rule("r-2", "20", nil))
				edited := rule("r-2", "21", nil)
				edited.Generation = 2
				x.SetRule(edited)
			},
			want: []string{"web-0"}, wantInherited: true,
		},
		"replaced twice": {
			steps: func(x *index) {
				x.RetireRule(key, builders.Epoch)
				x.SetRule(rule("r-2", "20", nil))
				x.RetireRule(key, builders.Epoch)
				x.SetRule(rule("r-3", "30", nil))
			},
			want: []string{"web-0"}, wantInherited: true,
		},
		"a record of its own ends it": {
			steps: func(x *index) {
				x.SetRule(rule("r-2", "20", nil))
				x.SetRule(rule("r-2", "21", record("web-1")))
			},
			want: []string{"web-1"},
		},
		"a deletion long ago is forgotten": {
			steps: func(x *index) {
				x.RetireRule(key, builders.Epoch)
				x.Expire(builders.Epoch.Add(podindex.RetiredFor))
				x.SetRule(rule("r-2", "20", nil))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			x.put(builders.MakePod("web-0").Label("app", "web").Available().Obj())
			first := rule("r-1", "10", record("web-0"))
			x.SetRule(first)
			tc.steps(x)
			got := x.only()
			var names []string
			if got.Object.Status.Permits != nil {
				for _, pod := range got.Object.Status.Permits.Reserved {
					names = append(names, pod.Name)
				}
			}
			if !slices.Equal(names, tc.want) || got.Inherited != tc.wantInherited {
				t.Errorf("the record lists %v, inherited %v; want %v, %v", names, got.Inherited, tc.want, tc.wantInherited)
			}
			if first.Status.Permits == nil || len(first.Status.Permits.Reserved) != 1 {
				t.Error("the object that the watch delivered was modified")
			}
		})
	}
}

// TestARuleDeletedBeforeItsPodsWereSeen matters because the view of pods may be behind that of rules, or not
// listed yet. The rule holds the pods that come nevertheless, and hands over its record.
func TestARuleDeletedBeforeItsPodsWereSeen(t *testing.T) {
	key := types.NamespacedName{Namespace: "default", Name: "r"}
	x := newIndex(t)
	first := boundRule("r", "r-1", labelled())
	first.Status.Permits = &appsv1alpha1.PermitRecord{ViewResourceVersion: "7"}
	x.SetRule(first)
	x.RetireRule(key, builders.Epoch)
	x.put(builders.MakePod("web-0").Label("app", "web").Available().Obj())
	request := rule.Request{Pod: &rule.PodFact{Labels: map[string]string{"app": "web"}, Available: true}, Stage: appsv1alpha1.StagePreCheck}
	if retired := x.Snapshot("default", nil).Retired; len(retired) != 1 || retired[0].Holds(request) != "one" {
		t.Errorf("retired rules %+v, want one that holds the pod", retired)
	}
	x.SetRule(boundRule("r", "r-2", labelled()))
	if got := x.only(); !got.Inherited || got.Object.Status.Permits.ViewResourceVersion != "7" {
		t.Errorf("inherited %t: %+v, want the required view of the deleted rule", got.Inherited, got.Object.Status.Permits)
	}
}
