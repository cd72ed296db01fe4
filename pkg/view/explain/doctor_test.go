package explain_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
	"github.com/podops-dev/podops/pkg/view/explain"
	"github.com/podops-dev/podops/test/builders"
)

// TestExplanationsHaveTheFindingsOfDoctor has a pod under rules of which two exclude each other, and one permits none, and a budget that
// permits none beside a budget of other pods.
func TestExplanationsHaveTheFindingsOfDoctor(t *testing.T) {
	object := withheld()
	object.Spec.Rules = []appsv1alpha1.TransitionRule{
		{Name: "red", LabelCheck: &appsv1alpha1.LabelCheck{Requires: selecting("color", "red")}},
		{Name: "blue", LabelCheck: &appsv1alpha1.LabelCheck{Requires: selecting("color", "blue")}},
		{Name: "all", AvailablePolicy: &appsv1alpha1.AvailablePolicy{MinAvailableValue: new(intstr.FromInt32(1))}},
	}
	stated := withheld(blockedBy("all", "NoRoom"))
	stated.Spec.Rules = object.Spec.Rules[2:]
	stated.Status.Conditions = []metav1.Condition{{
		Type: appsv1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: appsv1alpha1.ReasonNeverPasses, Message: "rule all permits no pod",
	}}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web"}}
	owned := waiting()
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: new(true)}}
	for sentence, tc := range map[string]struct {
		pod  *corev1.Pod
		rule *appsv1alpha1.PodTransitionRule
		// explain returns the explanations.
		explain func(s *clusterstate.Snapshot) []explain.Explanation
		want    []string
	}{
		"of a pod": {
			pod: waiting(), rule: object, explain: func(s *clusterstate.Snapshot) []explain.Explanation {
				return []explain.Explanation{explain.Pod(s, s.Pods[0], now())}
			},
			want: []string{"rule-never-passes podtransitionrule default/web", "rules-exclude podtransitionrule default/web", "pdb-permits-nothing pdb default/web"},
		},
		"of a workload": {
			pod: owned, rule: object, explain: func(s *clusterstate.Snapshot) []explain.Explanation {
				return []explain.Explanation{explain.OfWorkload(s, set, now())}
			},
			want: []string{"rule-never-passes podtransitionrule default/web", "rules-exclude podtransitionrule default/web", "pdb-permits-nothing pdb default/web"},
		},
		"of a PodTransitionRule": {
			pod: waiting(), rule: object, explain: func(s *clusterstate.Snapshot) []explain.Explanation {
				return []explain.Explanation{explain.OfRule(s, object, now())}
			},
			want: []string{"rule-never-passes podtransitionrule default/web", "rules-exclude podtransitionrule default/web"},
		},
		"but not what a reason states": {
			pod: waiting(), rule: stated, explain: func(s *clusterstate.Snapshot) []explain.Explanation {
				return []explain.Explanation{explain.Pod(s, s.Pods[0], now())}
			},
			want: []string{"pdb-permits-nothing pdb default/web"},
		},
		"but not of others": {
			pod: builders.MakePod("web-0").Label("app", "db").Available().Obj(), rule: object,
			explain: func(s *clusterstate.Snapshot) []explain.Explanation {
				return []explain.Explanation{explain.Pod(s, s.Pods[0], now())}
			},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			other := waiting()
			other.Name, other.UID = "web-9", "web-9"
			s := &clusterstate.Snapshot{
				Namespace: "default", Pods: []*corev1.Pod{tc.pod}, Rules: []*appsv1alpha1.PodTransitionRule{tc.rule}, ReplicaSets: []*appsv1.ReplicaSet{set},
				Budgets: []*policyv1.PodDisruptionBudget{neverPermits("web"), neverPermits("db-alone")},
			}
			if tc.pod.Labels["app"] != "web" {
				s.Pods = append(s.Pods, other)
			}
			explanations := tc.explain(s)
			explain.AddFindings(s, explanations, now())
			var got []string
			for _, finding := range explanations[0].Findings {
				got = append(got, fmt.Sprintf("%s %s", finding.Check, finding.Object))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// neverPermits returns a budget for an app.
func neverPermits(app string) *policyv1.PodDisruptionBudget {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app}}
	budget.Spec.Selector, budget.Spec.MaxUnavailable = selecting("app", app), new(intstr.FromInt32(0))
	return budget
}
