package explain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
	"github.com/podops-dev/podops/pkg/view/explain"
	"github.com/podops-dev/podops/test/builders"
)

// now is a minute after the pods of the tests began to wait.
func now() time.Time { return builders.Epoch.Add(time.Minute) }

func waiting() *corev1.Pod {
	return builders.MakePod("web-0").Label("app", "web").Available().Waiting("a", "upgrade", builders.Epoch).Obj()
}

// withheld returns the PodTransitionRule web, whose status has blocked entries.
func withheld(blocked ...appsv1alpha1.BlockedPod) *appsv1alpha1.PodTransitionRule {
	return &appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       appsv1alpha1.PodTransitionRuleSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     appsv1alpha1.PodTransitionRuleStatus{Blocked: blocked},
	}
}

func blockedBy(rule, reason string) appsv1alpha1.BlockedPod {
	return appsv1alpha1.BlockedPod{
		Name: "web-0", Stage: appsv1alpha1.StagePreCheck, ID: "a", Rule: "web/" + rule, Reason: reason, Message: "the message",
		Since: &metav1.Time{Time: builders.Epoch},
	}
}

func TestSituationsOfAPod(t *testing.T) {
	failed := blockedBy("w", "WebhookFailed")
	failed.Message = "the call of the service failed (BreakerOpen), and is repeated later"
	turn := blockedBy("r", "NoRoom")
	turn.Numbers = &appsv1alpha1.BlockedNumbers{Needed: 1, Have: 1, Limit: 2}
	surging := withheld(blockedBy("r", "NoRoom"))
	surging.Status.Conditions = []metav1.Condition{{Type: appsv1alpha1.ConditionStalled, Status: metav1.ConditionFalse, Reason: appsv1alpha1.ReasonPassesWithSurge}}
	surging.Status.Desired, surging.Status.Available = 3, 3
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		rule *appsv1alpha1.PodTransitionRule
		lead clusterstate.Manager
		want []explain.Situation
	}{
		"at rest":                           {pod: builders.MakePod("web-0").Available().Obj()},
		"no rule has reported":              {pod: waiting(), rule: withheld(), want: []explain.Situation{explain.NotReported}},
		"a label":                           {pod: waiting(), rule: withheld(blockedBy("r", "LabelMismatch")), want: []explain.Situation{explain.LabelMismatch}},
		"another pod comes first":           {pod: waiting(), rule: withheld(turn), want: []explain.Situation{explain.WaitsItsTurn}},
		"a rule that only a rollout passes": {pod: waiting(), rule: surging, want: []explain.Situation{explain.PassesWithSurge}},
		"a circuit breaker":                 {pod: waiting(), rule: withheld(failed), want: []explain.Situation{explain.WebhookCircuitOpen}},
		"what needs an edit comes first": {
			pod: waiting(), rule: withheld(blockedBy("a", "NoRoom"), blockedBy("b", "LabelMismatch"), blockedBy("c", "CompileFailed")),
			want: []explain.Situation{explain.CompileFailed, explain.LabelMismatch, explain.NoRoom},
		},
		"without a manager nothing is reported": {
			pod: waiting(), rule: withheld(), lead: clusterstate.Manager{Lease: true, Holder: "m", Renewed: builders.Epoch, Duration: time.Second},
			want: []explain.Situation{explain.ManagerAway},
		},
		"a released Lease": {pod: waiting(), rule: withheld(), lead: clusterstate.Manager{Lease: true, Renewed: now()}, want: []explain.Situation{explain.ManagerAway}},
		"an operation without its type": {
			pod:  builders.MakePod("web-0").Available().Label(appsv1alpha1.OperatingLabelPrefix+"/a", "1").Obj(),
			want: []explain.Situation{explain.InvalidLifecycle},
		},
		"an unknown finalizer": {
			pod:  builders.MakePod("web-0").Preparing("a", "upgrade").Finalizer(appsv1alpha1.ProtectionFinalizerPrefix + "/x").Obj(),
			want: []explain.Situation{explain.UnknownFinalizer},
		},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot := &clusterstate.Snapshot{Namespace: "default", Pods: []*corev1.Pod{test.pod}, Manager: test.lead}
			if test.rule != nil {
				snapshot.Rules = append(snapshot.Rules, test.rule)
			}
			var got []explain.Situation
			for _, reason := range explain.Pod(snapshot, test.pod, now()).Reasons {
				got = append(got, reason.Situation)
				if reason.Docs != reason.Situation.Anchor() || reason.Message == "" {
					t.Errorf("a reason without text or section: %+v", reason)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("situations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnnotationsHaveTheRulesThatAStatusLeavesOut(t *testing.T) {
	pod := waiting()
	pod.Annotations = map[string]string{appsv1alpha1.DetailAnnotationKey("web"): `{"stage":"PreCheck","rejectInfo":[` +
		`{"ruleName":"a","reason":"LabelMismatch: older numbers"},{"ruleName":"b","reason":"Denied: not today"}]}`}
	snapshot := &clusterstate.Snapshot{Pods: []*corev1.Pod{pod}, Rules: []*appsv1alpha1.PodTransitionRule{withheld(blockedBy("a", "LabelMismatch"))}}
	var out strings.Builder
	if err := explain.Write(&out, []explain.Explanation{explain.Pod(snapshot, pod, now())}, now(), 80); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1. operation upgrade of id a waits for rule web/a: the message (LabelMismatch)", "2. operation upgrade of id a waits for rule web/b: not today (Denied)", `{"skipRules":["a","b"]}`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out.String())
		}
	}
	for _, line := range strings.Split(out.String(), "\n") {
		if strings.TrimRight(line, " ") != line || len(line) > 80 && !strings.Contains(line, "kubectl ") {
			t.Errorf("a line is too long or ends in a space: %q", line)
		}
	}
}

// TestARollingUpdateKeepsAPod shows which pods a pod waits for that rules permit.
func TestARollingUpdateKeepsAPod(t *testing.T) {
	const ordered, parallel, daemon = "OrderedReady", "Parallel", "DaemonSet"
	pod := func(ordinal int) *builders.PodBuilder {
		return builders.MakePod(fmt.Sprintf("web-%d", ordinal)).Available()
	}
	begun := func(ordinal int) *builders.PodBuilder {
		return pod(ordinal).Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, builders.Epoch)
	}
	for name, tc := range map[string]struct {
		owner    string
		replicas int32
		other    *builders.PodBuilder
		want     []string // the pods in the way; nil if it waits for none
	}{
		"another pod of a DaemonSet is unavailable":    {daemon, 2, pod(1).Unready(builders.Epoch), []string{"web-1"}},
		"all pods of a DaemonSet are available":        {daemon, 2, pod(1), nil},
		"a pod of a DaemonSet without the label":       {daemon, 2, pod(1).Unready(builders.Epoch).Label(appsv1alpha1.ControlLabelKey, "false"), nil},
		"another pod of a StatefulSet is unavailable":  {ordered, 2, pod(1).Unready(builders.Epoch), []string{"web-1"}},
		"a pod with a higher ordinal waits":            {ordered, 2, begun(1), []string{"web-1"}},
		"an unavailable pod of pods that are parallel": {parallel, 2, pod(1).Unready(builders.Epoch), nil},
		"a scale-in": {ordered, 0, begun(1), nil},
	} {
		t.Run(name, func(t *testing.T) {
			kind, meta := "StatefulSet", metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "w"}
			snapshot := &clusterstate.Snapshot{Namespace: "default"}
			if tc.owner == daemon {
				kind = daemon
				set := &appsv1.DaemonSet{ObjectMeta: meta, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: tc.replicas}}
				set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{}
				snapshot.DaemonSets = []*appsv1.DaemonSet{set}
			} else {
				snapshot.StatefulSets = []*appsv1.StatefulSet{{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
					Replicas: &tc.replicas, PodManagementPolicy: appsv1.PodManagementPolicyType(tc.owner),
				}}}
			}
			for _, made := range []*builders.PodBuilder{begun(0), tc.other} {
				object := made.OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: "web", UID: "w", Controller: new(true)}).Obj()
				if begun := deferreddelete.Begun(object); begun != "" {
					record := deferreddelete.Request{Method: deferreddelete.MethodDelete, Actor: deferreddelete.ActorOwner}.Begin(object, begun)
					object.Annotations = map[string]string{appsv1alpha1.PendingDeleteAnnotationKey: deferreddelete.Encode(record)}
				}
				snapshot.Pods = append(snapshot.Pods, object)
			}
			var got []string
			for _, reason := range explain.Pod(snapshot, snapshot.Pods[0], now()).Reasons {
				for _, other := range reason.InTheWay {
					if reason.Situation == explain.RollingUpdateMax {
						got = append(got, other.Name)
					}
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("pods in the way (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAStatefulSetWaitsForItsHighestPod shows the way out where a rule withholds the pod that the controller of a
// StatefulSet requests the removal of, and may permit others.
func TestAStatefulSetWaitsForItsHighestPod(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", UID: "db"}}
	set.Status.UpdateRevision = "new"
	set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(1))}
	pod := func(name, revision string) *builders.PodBuilder {
		return builders.MakePod(name).Label("app", "web").Label(appsv1.StatefulSetRevisionLabel, revision).
			OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "db", Controller: new(true)}).Available()
	}
	blocked := blockedBy("leader", "NotAllowed")
	blocked.Name, blocked.ID = "db-3", appsv1alpha1.PodDeleteID
	leader := pod("db-3", "old").Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, builders.Epoch).Obj()
	for name, test := range map[string]struct {
		others []*corev1.Pod
		want   string
	}{
		"a lower pod of the old revision": {others: []*corev1.Pod{pod("db-0", "old").Obj(), pod("db-1", "new").Obj(), pod("db-2", "old").Obj()}, want: "kubectl podops delete pod db-2 -n default"},
		"only pods that are to stay":      {others: []*corev1.Pod{pod("db-0", "old").Obj()}},
		"only pods of the new revision":   {others: []*corev1.Pod{pod("db-1", "new").Obj(), pod("db-2", "new").Obj()}},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot := &clusterstate.Snapshot{
				Namespace: "default", Pods: append(test.others, leader), StatefulSets: []*appsv1.StatefulSet{set},
				Rules: []*appsv1alpha1.PodTransitionRule{withheld(blocked)},
			}
			command := ""
			for _, reason := range explain.Pod(snapshot, leader, now()).Reasons {
				if len(reason.Commands) > 0 && strings.Contains(reason.Commands[0].Run, "delete pod") {
					command = reason.Commands[0].Run
				}
			}
			if command != test.want {
				t.Errorf("the first command is %q, want %q", command, test.want)
			}
		})
	}
}

// TestRemediesKeepThePodWithItsOwner shows that no command is offered for labels that take the pod from its selectors.
func TestRemediesKeepThePodWithItsOwner(t *testing.T) {
	pod := waiting()
	for name, test := range map[string]struct {
		requires metav1.LabelSelector
		want     string
	}{
		"a label of its own": {requires: metav1.LabelSelector{MatchLabels: map[string]string{"approved": "true"}}, want: "kubectl -n default label pod web-0 --overwrite approved=true"},
		"a label of the selector": {
			requires: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"web"}}}},
			want:     "kubectl -n default edit podtransitionrule web",
		},
	} {
		t.Run(name, func(t *testing.T) {
			rule := withheld(blockedBy("r", "LabelMismatch"))
			rule.Spec.Rules = []appsv1alpha1.TransitionRule{{Name: "r", LabelCheck: &appsv1alpha1.LabelCheck{Requires: &test.requires}}}
			snapshot := &clusterstate.Snapshot{Namespace: "default", Pods: []*corev1.Pod{pod}, Rules: []*appsv1alpha1.PodTransitionRule{rule}}
			reasons := explain.Pod(snapshot, pod, now()).Reasons
			if len(reasons) != 1 || len(reasons[0].Commands) == 0 || reasons[0].Commands[0].Run != test.want {
				t.Errorf("got %+v, want first the command %q", reasons, test.want)
			}
		})
	}
}

// TestARollbackIsNotUndone shows that the pods of an abandoned revision have no remedy that rolls it out again.
func TestARollbackIsNotUndone(t *testing.T) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web", UID: "d", Annotations: map[string]string{appsv1alpha1.DeploymentRevisionAnnotationKey: "3"},
	}}
	deployment.Spec.Replicas = new(int32(1))
	set := func(name, revision string, age time.Duration, replicas int32) *appsv1.ReplicaSet {
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now().Add(-age)),
			Annotations:     map[string]string{appsv1alpha1.DeploymentRevisionAnnotationKey: revision},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "d", Controller: new(true)}},
		}}
		set.Spec.Replicas, set.Status.Replicas, set.Status.AvailableReplicas = new(replicas), replicas, replicas
		set.Spec.Template.Labels = map[string]string{"app": "web", appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
		return set
	}
	for name, test := range map[string]struct {
		newest time.Duration
		undo   bool
	}{
		"a rollout":  {newest: time.Minute, undo: true},
		"a rollback": {newest: 3 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			old, newest := set("web-old", "2", time.Hour, 1), set("web-new", "3", test.newest, 1)
			pod := builders.MakePod("web-0").Label("app", "web").Available().Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, builders.Epoch).
				OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-old", UID: "web-old", Controller: new(true)}).Obj()
			snapshot := &clusterstate.Snapshot{
				Namespace: "default", Pods: []*corev1.Pod{pod}, Deployments: []*appsv1.Deployment{deployment},
				ReplicaSets: []*appsv1.ReplicaSet{newest, old}, Rules: []*appsv1alpha1.PodTransitionRule{withheld()},
			}
			var out strings.Builder
			if err := explain.Write(&out, []explain.Explanation{explain.Pod(snapshot, pod, now())}, now(), 80); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(out.String(), "rollout undo") != test.undo || strings.Contains(out.String(), "exemptRevisions: Abandoned") == test.undo {
				t.Errorf("got:\n%s", out.String())
			}
		})
	}
}

// TestAWorkloadWithoutAManager has no pod that moves: none is created.
func TestAWorkloadWithoutAManager(t *testing.T) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "d"}}
	deployment.Spec.Replicas = new(int32(2))
	for label, want := range map[string]bool{appsv1alpha1.ControlLabelValue: true, "": false} {
		deployment.Spec.Template.Labels = map[string]string{appsv1alpha1.ControlLabelKey: label}
		snapshot := &clusterstate.Snapshot{
			Namespace: "default", Deployments: []*appsv1.Deployment{deployment}, Manager: clusterstate.Manager{Lease: true, Renewed: now()},
		}
		reasons := explain.OfWorkload(snapshot, deployment, now()).Reasons
		if (len(reasons) == 1 && reasons[0].Situation == explain.ManagerAway && reasons[0].Docs != "") != want {
			t.Errorf("label %q: got %+v", label, reasons)
		}
	}
}

// TestPodsThatAreNotControlledCount shows that a plain Deployment is not explained as an outage.
func TestPodsThatAreNotControlledCount(t *testing.T) {
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web"}}
	set.Spec.Replicas = new(int32(2))
	owned := func(name string) *builders.PodBuilder {
		return builders.MakePod(name).OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: new(true)})
	}
	ready, starting := owned("web-0").Ready().Obj(), owned("web-1").Obj()
	for _, pod := range []*corev1.Pod{ready, starting} {
		delete(pod.Labels, appsv1alpha1.ControlLabelKey)
	}
	snapshot := &clusterstate.Snapshot{Namespace: "default", Pods: []*corev1.Pod{ready, starting}}
	if summary := explain.OfWorkload(snapshot, set, now()).Summary; !strings.HasPrefix(summary, "1 of 2 desired pods are available") {
		t.Errorf("the summary is %q", summary)
	}
}

// TestTheRemedyForAMissingGateGivesThePodBoth label and gate: a pod from a template without the label would have neither.
func TestTheRemedyForAMissingGateGivesThePodBoth(t *testing.T) {
	for name, test := range map[string]struct {
		labels map[string]string // of the template
		want   string
	}{
		"the template has the label": {
			labels: map[string]string{appsv1alpha1.ControlLabelKey: "true"}, want: "kubectl -n default delete pod web-0",
		},
		"the template has no label": {
			want: `kubectl -n default patch statefulset web -p '{"spec":{"template":{"metadata":{"labels":{"kusionstack.io/control":"true"}}}}}'`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web"}}
			set.Spec.Template.Labels = test.labels
			pod := builders.MakePod("web-0").Available().Gateless().
				OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "web", Controller: new(true)}).Obj()
			snapshot := &clusterstate.Snapshot{Namespace: "default", Pods: []*corev1.Pod{pod}, StatefulSets: []*appsv1.StatefulSet{set}}
			command := ""
			for _, note := range explain.Pod(snapshot, pod, now()).Notes {
				if note.Situation == explain.GateMissing {
					command = note.Commands[0].Run
				}
			}
			if command != test.want {
				t.Errorf("the command is %q, want %q", command, test.want)
			}
		})
	}
}

// TestAControllerOfAnotherGateIsNamed where the pod lacks nothing else: its kubelet is not at fault.
func TestAControllerOfAnotherGateIsNamed(t *testing.T) {
	const gate = corev1.PodConditionType("mesh.example/connected")
	for name, test := range map[string]struct {
		conditions []corev1.PodCondition
		want       string
		situation  explain.Situation
	}{
		"the condition is missing": {
			want:      "waits for the controller of the readiness gate mesh.example/connected, which has not set the condition",
			situation: explain.ReadinessGate,
		},
		"the condition is False": {
			conditions: []corev1.PodCondition{{Type: gate, Status: corev1.ConditionFalse, Message: "no certificate"}},
			want:       "waits for the controller of the readiness gate mesh.example/connected: the condition is False: no certificate",
			situation:  explain.ReadinessGate,
		},
		"the condition is True": {
			conditions: []corev1.PodCondition{{Type: gate, Status: corev1.ConditionTrue}},
			want:       "waits for the kubelet to make the pod Ready", situation: explain.Kubelet,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := builders.MakePod("web-0").Node("node-1").Available().Condition(corev1.PodReady, false, "", builders.Epoch).Obj()
			pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: gate})
			pod.Status.Conditions = append(pod.Status.Conditions, test.conditions...)
			snapshot := &clusterstate.Snapshot{Namespace: "default", Pods: []*corev1.Pod{pod}}
			reasons := explain.Pod(snapshot, pod, now()).Reasons
			if len(reasons) != 1 || reasons[0].Situation != test.situation || reasons[0].Message != test.want {
				t.Errorf("the reasons are %+v, want %s: %s", reasons, test.situation, test.want)
			}
		})
	}
}

// TestAPodThatItsStatefulSetDoesNotReplaceIsNamed after a broken revision was undone: the controller waits for it to be
// Ready first.
func TestAPodThatItsStatefulSetDoesNotReplaceIsNamed(t *testing.T) {
	for name, test := range map[string]struct {
		revision string
		change   func(*appsv1.StatefulSet)
		want     bool
	}{
		"an earlier revision":                      {revision: "web-broken", want: true},
		"the newest revision":                      {revision: "web-good"},
		"an earlier revision, below the partition": {revision: "web-broken", change: func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(1)) }},
		"OnDelete": {revision: "web-broken", change: func(set *appsv1.StatefulSet) {
			set.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
		}},
		"Parallel": {revision: "web-broken", change: func(set *appsv1.StatefulSet) { set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }},
	} {
		t.Run(name, func(t *testing.T) {
			set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web"}}
			set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(0))}
			set.Status.UpdateRevision = "web-good"
			if test.change != nil {
				test.change(set)
			}
			pod := builders.MakePod("web-0").Node("node-1").Label(appsv1.StatefulSetRevisionLabel, test.revision).
				OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "web", Controller: new(true)}).Obj()
			snapshot := &clusterstate.Snapshot{Namespace: "default", Pods: []*corev1.Pod{pod}, StatefulSets: []*appsv1.StatefulSet{set}}
			e := explain.OfWorkload(snapshot, set, now())
			const text = "the controller of StatefulSet web does not replace it before it is Ready"
			if got := len(e.Reasons) > 0 && strings.Contains(e.Reasons[0].Message, text); got != test.want {
				t.Errorf("StatefulSet: %+v, want the text: %t", e.Reasons, test.want)
			}
			got := false
			for _, reason := range explain.Pod(snapshot, pod, now()).Reasons {
				for _, printed := range reason.Commands {
					got = got || strings.Contains(printed.Run, "podops") && strings.Contains(printed.Run, "delete pod web-0")
				}
			}
			if got != test.want {
				t.Errorf("a command that deletes the pod is printed: %t, want %t", got, test.want)
			}
		})
	}
}

// TestTheConditionOfAServiceIsQuoted where its provider does not have the expected state: the cause is nowhere else.
func TestTheConditionOfAServiceIsQuoted(t *testing.T) {
	const finalizer, cause = appsv1alpha1.ProtectionFinalizerPrefix + "/x", `none of its containers has a port named "mesh"`
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}},
	}
	pod := builders.MakePod("web-0").Label("app", "web").Node("node-1").Preparing("a", "upgrade").Finalizer(finalizer).Expect("Service/default/web", finalizer).Obj()
	snapshot := &clusterstate.Snapshot{Namespace: "default", Pods: []*corev1.Pod{pod}, Services: []*corev1.Service{service}}
	for _, test := range []struct {
		status metav1.ConditionStatus
		want   bool
	}{{metav1.ConditionFalse, true}, {metav1.ConditionTrue, false}} {
		service.Status.Conditions = []metav1.Condition{{Type: appsv1alpha1.ConditionConsistent, Status: test.status, Message: cause}}
		reasons := explain.Pod(snapshot, pod, now()).Reasons
		if len(reasons) != 1 || strings.Contains(reasons[0].Message, cause) != test.want {
			t.Errorf("with the condition %s the reasons are %+v", test.status, reasons)
		}
	}
}
