package podindex_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/test/builders"
)

// customRule is one of kind rego, or several, that refer to these policies.
func (x *index) customRule(name string, policies ...string) *appsv1alpha1.PodTransitionRule {
	rule := x.rule(name)
	if len(policies) == 0 {
		rule.Spec.Rules = []appsv1alpha1.TransitionRule{{Name: "own", Rego: &appsv1alpha1.RegoRule{Module: "package rule"}}}
	}
	for _, policy := range policies {
		rule.Spec.Rules = append(rule.Spec.Rules, appsv1alpha1.TransitionRule{
			Name: policy, Rego: &appsv1alpha1.RegoRule{PolicyRef: &appsv1alpha1.PolicyReference{Name: policy}},
		})
	}
	return rule
}

// fact is that of the one selected pod.
func (x *index) fact() *rule.PodFact {
	x.t.Helper()
	pods := x.Snapshot("default", everyPod).Rules[0].Pods
	if len(pods) != 1 {
		x.t.Fatal("not one pod is selected")
	}
	return pods[0]
}

// TestFactsOfAPod shows that every field that custom rules see is filled.
func TestFactsOfAPod(t *testing.T) {
	x := newIndex(t)
	x.SetRule(x.rule("r"))
	pod := ownedPod("sts", 0).Available().ReadySince(builders.Epoch.Add(time.Minute)).Node("node-1").
		Annotation("example.com/team", "shop").Annotation(appsv1alpha1.SkipRulesAnnotationKey, `{"skipRules":["x"]}`).Obj()
	pod.CreationTimestamp = metav1.NewTime(builders.Epoch.Add(-time.Hour))
	pod.Status.StartTime = &metav1.Time{Time: builders.Epoch}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1}, {RestartCount: 3}}
	version := x.put(pod)
	want := &rule.PodFact{
		UID: "sts-a-uid", Namespace: "default", Name: "sts-a", ResourceVersion: version, Version: version,
		Labels: pod.Labels, Annotations: map[string]string{"example.com/team": "shop"},
		Owner: rule.Owner{Kind: "StatefulSet", Name: "sts", UID: "sts"}, Node: "node-1",
		Revision: rule.Revision{State: rule.RevisionUnknown},
		Created:  builders.Epoch.Add(-time.Hour), Ready: true, AvailableSince: builders.Epoch.Add(time.Minute),
		SkipRules: []string{"x"}, Available: true,
		Details: rule.PodDetails{
			Version: version, Containers: pod.Spec.Containers, Restarts: 3, Conditions: pod.Status.Conditions, Started: builders.Epoch,
		},
	}
	if diff := cmp.Diff(want, x.fact()); diff != "" {
		t.Errorf("facts differ (-want +got):\n%s", diff)
	}
}

func TestAvailableSince(t *testing.T) {
	ready, marked := builders.Epoch, builders.Epoch.Add(time.Minute)
	pod := func(mark string) *builders.PodBuilder {
		return builders.MakePod("p").Gate(true).ReadySince(ready).Label(appsv1alpha1.ServiceAvailableLabelKey, mark)
	}
	for name, tc := range map[string]struct {
		pod  *builders.PodBuilder
		want time.Time
	}{
		"marked after it was Ready":   {pod: pod(builders.Stamp(marked)), want: marked},
		"Ready again after the mark":  {pod: pod(builders.Stamp(marked)).ReadySince(marked.Add(time.Hour)), want: marked.Add(time.Hour)},
		"a mark that is no time":      {pod: pod("yes"), want: ready},
		"a transition at no time":     {pod: pod(builders.Stamp(marked)).ReadySince(time.Time{}), want: marked},
		"not Ready":                   {pod: pod(builders.Stamp(marked)).Unready(ready)},
		"not marked":                  {pod: builders.MakePod("p").Gate(true).ReadySince(ready)},
		"terminating":                 {pod: pod(builders.Stamp(marked)).Terminating(marked)},
		"marked in the same instant":  {pod: pod(builders.Stamp(ready)), want: ready},
		"a mark in the middle of one": {pod: pod(builders.Stamp(ready.Add(1))), want: ready.Add(1)},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			x.SetRule(x.rule("r"))
			x.put(tc.pod.Label("app", "web").Obj())
			if got := x.fact().AvailableSince; !got.Equal(tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestPods shows that they are all that a rule selects and that may yet serve, for the rules that
// request them.
func TestPods(t *testing.T) {
	x := newIndex(t)
	for _, name := range []string{"included", "left-out"} {
		x.SetRule(x.rule(name))
	}
	for _, pod := range []*builders.PodBuilder{
		builders.MakePod("d").Available(), builders.MakePod("b").Terminating(builders.Epoch), waitingPod("c"), builders.MakePod("a").Phase(corev1.PodFailed),
	} {
		x.put(pod.Label("app", "web").Obj())
	}
	x.put(builders.MakePod("unselected").Obj())
	x.put(builders.MakePod("elsewhere").Namespace("other").Label("app", "web").Obj())

	view := x.Snapshot("default", func(object *appsv1alpha1.PodTransitionRule) bool { return object.Name == "included" })
	var names []string
	for _, pod := range view.Rules[0].Pods {
		names = append(names, pod.Name)
	}
	if diff := cmp.Diff([]string{"b", "c", "d"}, names); diff != "" {
		t.Errorf("pods differ (-want +got):\n%s", diff)
	}
	if view.Rules[0].Pods[1] != view.Waiting[0].Pod {
		t.Error("the pod of the request is not the pod in the list")
	}
	if got := view.Rules[1].Pods; got != nil {
		t.Errorf("%d pods were not requested", len(got))
	}
	if got := x.Snapshot("default", nil).Rules[0].Pods; got != nil {
		t.Errorf("%d pods were not requested", len(got))
	}
}

func TestPermitsGivenLately(t *testing.T) {
	x := newIndex(t)
	ruleset := x.rule("r")
	ruleset.Status.Permits = &appsv1alpha1.PermitRecord{Recent: []appsv1alpha1.RecentPermit{
		{Pod: "b", Time: metav1.NewTime(builders.Epoch)}, {Pod: "a", Time: metav1.NewTime(builders.Epoch.Add(time.Second))},
	}}
	x.SetRule(ruleset)
	want := []rule.Permit{{Pod: "b", At: builders.Epoch}, {Pod: "a", At: builders.Epoch.Add(time.Second)}}
	if diff := cmp.Diff(want, x.only().Permits); diff != "" {
		t.Errorf("permits differ (-want +got):\n%s", diff)
	}
}

// TestNotifiesOfChangesThatCustomRulesSee only where there is a custom rule.
func TestNotifiesOfChangesThatCustomRulesSee(t *testing.T) {
	idle := func() *builders.PodBuilder { return builders.MakePod("p").Available().Label("app", "web") }
	for name, change := range map[string]func(*index){
		"an annotation":         func(x *index) { x.put(idle().Annotation("note", "x").Obj()) },
		"a node":                func(x *index) { x.put(idle().Node("n").Obj()) },
		"Ready at another time": func(x *index) { x.put(idle().ReadySince(builders.Epoch.Add(time.Second)).Obj()) },
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			x.SetRule(x.rule("built-in"))
			x.put(idle().Obj())
			x.notified = nil
			change(x)
			if len(x.notified) != 0 {
				t.Errorf("without a custom rule: notified %v", x.notified)
			}
			x.put(idle().Obj())
			x.SetRule(x.customRule("custom"))
			x.notified = nil
			change(x)
			if diff := cmp.Diff([]string{"default"}, x.notified); diff != "" {
				t.Errorf("with a custom rule, notifications differ (-want +got):\n%s", diff)
			}
			x.notified = nil
			change(x)
			if len(x.notified) != 0 {
				t.Errorf("the same again: notified %v", x.notified)
			}
		})
	}
}
