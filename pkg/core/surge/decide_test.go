package surge_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/core/surge"
	"github.com/podops-dev/podops/test/builders"
)

const (
	hash     = appsv1.DefaultDeploymentUniqueLabelKey
	revision = appsv1alpha1.DeploymentRevisionAnnotationKey
)

var now = builders.Epoch.Add(time.Hour)

// newWorkload returns a Deployment with so many replicas and a ReplicaSet of them.
func newWorkload(replicas int, maxSurge intstr.IntOrString) replicasetscale.Workload {
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "demo", UID: "web", Annotations: map[string]string{revision: "2"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(replicas)), ProgressDeadlineSeconds: ptr.To[int32](120),
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &maxSurge},
			},
		},
	}
	return replicasetscale.Workload{Deployment: deployment, Sets: []*appsv1.ReplicaSet{newSet("new", "2", replicas)}}
}

func newSet(name, number string, replicas int) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-" + name, UID: types.UID(name), Annotations: map[string]string{revision: number},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To(int32(replicas)), Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{hash: name}}},
		},
		Status: appsv1.ReplicaSetStatus{Replicas: int32(replicas)},
	}
}

func newRule(name string, surges *intstr.IntOrString) appsv1alpha1.PodTransitionRule {
	return appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "demo"},
		Spec: appsv1alpha1.PodTransitionRuleSpec{Selector: &metav1.LabelSelector{}, Rules: []appsv1alpha1.TransitionRule{
			{Name: "availability", AvailablePolicy: &appsv1alpha1.AvailablePolicy{MinAvailableValue: ptr.To(intstr.FromString("100%")), Surge: surges}},
			{Name: "approved", LabelCheck: &appsv1alpha1.LabelCheck{}},
		}},
	}
}

// forOthers has a rule select other pods.
func forOthers(rule appsv1alpha1.PodTransitionRule) appsv1alpha1.PodTransitionRule {
	rule.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "others"}}
	return rule
}

var (
	bySet = metav1.OwnerReference{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-new", UID: "new", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}
	byDeployment = metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "web", Controller: ptr.To(true)}
	bySetAgain   = metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-new", UID: "new", Controller: ptr.To(true)}
	stranger     = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "other"}
)

// makePod returns an available pod of the newest ReplicaSet.
func makePod(name string) *builders.PodBuilder {
	return builders.MakePod(name).Namespace("demo").Available().Label(hash, "new").OwnedBy(bySet)
}

// withheldBy adds that rules withhold a pod, such as "NoRoom".
func withheldBy(pod *builders.PodBuilder, ruleset, name, code string) *builders.PodBuilder {
	return pod.Annotation(appsv1alpha1.DetailAnnotationKey(ruleset), detail(name, code))
}

func detail(name, code string) string {
	value, _ := json.Marshal(appsv1alpha1.Detail{ //nolint:errchkjson // no value of the type is invalid
		Stage: appsv1alpha1.StagePreCheck, RejectInfo: []appsv1alpha1.RejectInfo{{RuleName: name, Reason: code + ": because"}},
	})
	return string(value)
}

// waiting returns a pod whose eviction waits for the rule web/availability.
func waiting(name string, since time.Duration) *builders.PodBuilder {
	return withheldBy(makePod(name).Waiting(appsv1alpha1.PodDeleteID, "delete", builders.Epoch.Add(since)), "web", "availability", "NoRoom")
}

// failed ends the containers of a pod.
func failed(pod *corev1.Pod) *corev1.Pod {
	pod.Status.Phase = corev1.PodFailed
	return pod
}

// surging makes a Deployment the controller of a pod, so long ago.
func surging(pod *corev1.Pod, ago time.Duration) *corev1.Pod {
	pod.OwnerReferences = []metav1.OwnerReference{byDeployment}
	return record(pod, appsv1alpha1.Surge{Began: metav1.NewTime(now.Add(-ago))})
}

func record(pod *corev1.Pod, surge appsv1alpha1.Surge) *corev1.Pod {
	value, _ := json.Marshal(surge) //nolint:errchkjson // no value of the type is invalid
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[appsv1alpha1.SurgeAnnotationKey] = string(value)
	return pod
}

// printed returns a step in words.
func printed(step surge.Step) string {
	words := fmt.Sprintf("%s %s", step.Change, step.Pod.Name)
	switch step.Change {
	case surge.Begin:
		return words + " for " + step.Rule
	case surge.End:
		return words + ": " + string(step.Cause)
	default:
		return words
	}
}

func TestDecide(t *testing.T) {
	one, half := intstr.FromInt32(1), intstr.FromString("50%")
	with := func(value *intstr.IntOrString) []appsv1alpha1.PodTransitionRule {
		return []appsv1alpha1.PodTransitionRule{newRule("web", value)}
	}
	ended := func(pod *corev1.Pod, ago time.Duration, timedOut, cost bool) *corev1.Pod {
		return record(pod, appsv1alpha1.Surge{
			Began: metav1.NewTime(now.Add(-time.Hour)), Ended: ptr.To(metav1.NewTime(now.Add(-ago))), TimedOut: timedOut, Cost: cost,
		})
	}
	tooMany := newWorkload(1, one)
	tooMany.Sets[0].Status.Replicas = 2
	rolling := newWorkload(4, one)
	rolling.Sets = append(rolling.Sets, newSet("old", "1", 1))
	rolled := newWorkload(1, one)
	rolled.Sets = append(rolled.Sets, newSet("newer", "3", 1))
	recreate := newWorkload(1, one)
	recreate.Deployment.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	terminating := newWorkload(1, one)
	terminating.Deployment.DeletionTimestamp = ptr.To(metav1.NewTime(now))

	for name, test := range map[string]struct {
		workload replicasetscale.Workload
		pods     []*corev1.Pod
		rules    []appsv1alpha1.PodTransitionRule
		want     []string
		wake     time.Duration
	}{
		"a pod without an operation": {newWorkload(1, one), []*corev1.Pod{makePod("a").Obj()}, with(&one), nil, 0},
		"the only pod waits":         {newWorkload(1, one), []*corev1.Pod{waiting("a", 0).Obj()}, with(&one), []string{"Begin a for web/availability"}, 0},
		"the rule does not surge":    {newWorkload(1, one), []*corev1.Pod{waiting("a", 0).Obj()}, with(nil), nil, 0},
		"the rule surges by 0":       {newWorkload(1, one), []*corev1.Pod{waiting("a", 0).Obj()}, with(ptr.To(intstr.FromInt32(0))), nil, 0},
		"the rule is deleted":        {newWorkload(1, one), []*corev1.Pod{waiting("a", 0).Obj()}, nil, nil, 0},
		"a percentage is rounded up": {newWorkload(1, one), []*corev1.Pod{waiting("a", 0).Obj()}, with(&half), []string{"Begin a for web/availability"}, 0},
		"the Deployment does not surge": {
			newWorkload(1, intstr.FromInt32(0)), []*corev1.Pod{waiting("a", 0).Obj()}, with(&one), nil, 0,
		},
		"the strategy is Recreate":      {recreate, []*corev1.Pod{waiting("a", 0).Obj()}, with(&one), nil, 0},
		"the Deployment is terminating": {terminating, []*corev1.Pod{waiting("a", 0).Obj()}, with(&one), nil, 0},
		"a rollout has the room":        {rolling, []*corev1.Pod{waiting("a", 0).Obj()}, with(&one), nil, 0},
		"the ReplicaSet has a pod too many already": {
			tooMany, []*corev1.Pod{waiting("a", 0).Obj()}, with(&one), nil, 0,
		},
		"another rule withholds it, too": {
			newWorkload(1, one), []*corev1.Pod{withheldBy(waiting("a", 0), "second", "approved", "LabelMismatch").Obj()}, with(&one), nil, 0,
		},
		"another rule that does not surge has no room, either": {
			newWorkload(1, one), []*corev1.Pod{withheldBy(waiting("a", 0), "second", "availability", "NoRoom").Obj()},
			[]appsv1alpha1.PodTransitionRule{newRule("web", &one), newRule("second", nil)}, nil, 0,
		},
		"a PodDisruptionBudget has no room, either": {
			newWorkload(1, one), []*corev1.Pod{withheldBy(waiting("a", 0), "PodDisruptionBudget", "web", "NoRoom").Obj()},
			with(&one), []string{"Begin a for PodDisruptionBudget/web"}, 0,
		},
		"a PodDisruptionBudget alone has no room, and a rule that selects the pod surges": {
			newWorkload(1, one), []*corev1.Pod{withheldBy(makePod("a").Waiting("x", "delete", now), "PodDisruptionBudget", "web", "NoRoom").Obj()},
			with(&one), []string{"Begin a for PodDisruptionBudget/web"}, 0,
		},
		"a PodDisruptionBudget alone has no room, and no rule that selects the pod surges": {
			newWorkload(1, one), []*corev1.Pod{withheldBy(makePod("a").Waiting("x", "delete", now), "PodDisruptionBudget", "web", "NoRoom").Obj()},
			[]appsv1alpha1.PodTransitionRule{newRule("web", nil), forOthers(newRule("others", &one))}, nil, 0,
		},
		"its ReplicaSet deletes it": {
			newWorkload(1, one), []*corev1.Pod{waiting("a", 0).Annotation(appsv1alpha1.PreviousDeletionCostAnnotationKey, "").Obj()}, with(&one), nil, 0,
		},
		"the longest wait is first, one at a time": {
			newWorkload(4, intstr.FromInt32(3)), []*corev1.Pod{waiting("a", 2*time.Second).Obj(), waiting("b", time.Second).Obj()}, with(&one),
			[]string{"Begin b for web/availability"}, 0,
		},
		"maxSurge is less": {
			newWorkload(4, one), []*corev1.Pod{waiting("a", 0).Obj(), waiting("b", 0).Obj()}, with(&half), []string{"Begin a for web/availability"}, 0,
		},
		"another pod surges": {
			newWorkload(4, intstr.FromInt32(3)), []*corev1.Pod{waiting("a", 0).Obj(), surging(waiting("b", 0).Obj(), time.Second)}, with(&one), nil, 119 * time.Second,
		},

		"it goes on until the deadline": {newWorkload(1, one), []*corev1.Pod{surging(waiting("a", 0).Obj(), time.Minute)}, with(&one), nil, time.Minute},
		"it is permitted":               {newWorkload(1, one), []*corev1.Pod{surging(makePod("a").Preparing("x", "delete").Obj(), time.Hour)}, with(&one), nil, 0},
		"its operation has ended, and it is not back in service": {
			newWorkload(1, one), []*corev1.Pod{surging(makePod("a").Finished("x", "restart", now).Obj(), time.Hour)}, with(&one), nil, 0,
		},
		"its verdict is not known": {newWorkload(1, one), []*corev1.Pod{surging(makePod("a").Waiting("x", "delete", now).Obj(), time.Minute)}, with(&one), nil, time.Minute},
		"it has failed": {
			newWorkload(1, one), []*corev1.Pod{surging(failed(waiting("a", 0).Obj()), time.Second)}, with(&one),
			[]string{"End a: " + string(surge.CauseOperationEnded)}, 2 * time.Second,
		},
		"a pod that has failed waits": {newWorkload(1, one), []*corev1.Pod{failed(waiting("a", 0).Obj())}, with(&one), nil, 0},
		"its ReplicaSet is gone": {
			newWorkload(1, one), []*corev1.Pod{surging(makePod("a").Label(hash, "gone").Obj(), time.Second)}, with(&one),
			[]string{"End a: " + string(surge.CauseReplaced)}, 0,
		},
		"its ReplicaSet is gone, and it is to be deleted": {
			newWorkload(1, one), []*corev1.Pod{surging(makePod("a").Label(hash, "gone").Label(appsv1alpha1.ToDeleteLabelKey, "true").Obj(), time.Second)},
			with(&one), nil, 0,
		},
		"it is terminating":                {newWorkload(1, one), []*corev1.Pod{surging(makePod("a").Terminating(now).Obj(), time.Hour)}, with(&one), nil, 0},
		"the other pod is late":            {newWorkload(1, one), []*corev1.Pod{surging(waiting("a", 0).Obj(), 2*time.Minute)}, with(&one), []string{"End a: " + string(surge.CauseTimedOut)}, 2 * time.Second},
		"its operation has ended":          {newWorkload(1, one), []*corev1.Pod{surging(makePod("a").Obj(), time.Second)}, with(&one), []string{"End a: " + string(surge.CauseOperationEnded)}, 2 * time.Second},
		"the rule does not surge any more": {newWorkload(1, one), []*corev1.Pod{surging(waiting("a", 0).Obj(), time.Second)}, with(nil), []string{"End a: " + string(surge.CauseWithheld)}, 2 * time.Second},
		"a rollout begins":                 {rolled, []*corev1.Pod{surging(waiting("a", 0).Obj(), time.Second)}, with(&one), []string{"End a: " + string(surge.CauseRollout)}, 2 * time.Second},
		"its record was removed": {newWorkload(1, one), []*corev1.Pod{func() *corev1.Pod {
			p := surging(waiting("a", 0).Obj(), 0)
			p.Annotations[appsv1alpha1.SurgeAnnotationKey] = "x"
			return p
		}()}, with(&one), []string{"End a: " + string(surge.CauseTimedOut)}, 2 * time.Second},

		"the ReplicaSet still has a pod too many": {tooMany, []*corev1.Pod{ended(makePod("a").Obj(), time.Second, false, true)}, with(&one), nil, 2 * time.Second},
		"the status of the ReplicaSet is behind": {
			newWorkload(1, one), []*corev1.Pod{ended(makePod("a").Obj(), time.Second, false, true), makePod("b").Obj()}, with(&one), nil, 2 * time.Second,
		},
		"the pod too many is gone":             {newWorkload(1, one), []*corev1.Pod{ended(makePod("a").Obj(), time.Second, false, true)}, with(&one), []string{"Forget a"}, 0},
		"it does not surge again at once":      {newWorkload(1, one), []*corev1.Pod{ended(waiting("a", 0).Obj(), time.Minute, true, true)}, with(&one), nil, time.Minute},
		"it surges again after as long a time": {newWorkload(1, one), []*corev1.Pod{ended(waiting("a", 0).Obj(), 2*time.Minute, true, true)}, with(&one), []string{"Forget a"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			steps, wake := surge.Decide(surge.Snapshot{Workload: test.workload, Pods: test.pods, Rules: test.rules}, now)
			var got []string
			for _, step := range steps {
				got = append(got, printed(step))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if wake != test.wake {
				t.Errorf("decided again after %s, want %s", wake, test.wake)
			}
		})
	}
}

func TestBegin(t *testing.T) {
	pod := waiting("a", 0).Obj()
	pod.OwnerReferences = append(pod.OwnerReferences, stranger)
	one := intstr.FromInt32(1)
	steps, _ := surge.Decide(surge.Snapshot{Workload: newWorkload(1, one), Pods: []*corev1.Pod{pod}, Rules: []appsv1alpha1.PodTransitionRule{newRule("web", &one)}}, now)
	if len(steps) != 1 {
		t.Fatalf("%d steps, want 1", len(steps))
	}
	if diff := cmp.Diff([]metav1.OwnerReference{stranger, byDeployment}, steps[0].Owners); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	want := map[string]any{appsv1alpha1.SurgeAnnotationKey: `{"began":"` + now.Format(time.RFC3339) + `"}`}
	if diff := cmp.Diff(want, steps[0].Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

func TestEndKeepsThePodWhoseOperationHasEnded(t *testing.T) {
	one := intstr.FromInt32(1)
	for name, test := range map[string]struct {
		costs, wantCost any
		own             bool
	}{
		"a pod without a deletion cost":         {nil, "1", true},
		"a pod with a deletion cost of its own": {"5", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := surging(makePod("a").Obj(), time.Minute)
			pod.OwnerReferences = append(pod.OwnerReferences, stranger)
			if cost, ok := test.costs.(string); ok {
				pod.Annotations[corev1.PodDeletionCost] = cost
			}
			steps, _ := surge.Decide(surge.Snapshot{Workload: newWorkload(1, one), Pods: []*corev1.Pod{pod}}, now)
			if len(steps) != 1 {
				t.Fatalf("%d steps, want 1", len(steps))
			}
			if diff := cmp.Diff([]metav1.OwnerReference{stranger, bySetAgain}, steps[0].Owners); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
			if got := steps[0].Annotations[corev1.PodDeletionCost]; got != test.wantCost {
				t.Errorf("deletion cost %v, want %v", got, test.wantCost)
			}
			var ended appsv1alpha1.Surge
			if err := json.Unmarshal([]byte(steps[0].Annotations[appsv1alpha1.SurgeAnnotationKey].(string)), &ended); err != nil {
				t.Fatal(err)
			}
			if ended.Cost != test.own || ended.Ended == nil || ended.TimedOut {
				t.Errorf("the record is %+v", ended)
			}
		})
	}
}
