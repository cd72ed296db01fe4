package deferreddelete

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// controlled returns the pod web-0 of a ReplicaSet.
func controlled(edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web-0", UID: "web-0", Labels: map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue},
	}}
	pod.Spec.NodeName = "node-1"
	ownedBy("apps/v1", "ReplicaSet")(pod)
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

func ownedBy(apiVersion, kind string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "web", UID: "web", Controller: new(true)}}
	}
}

func bare(pod *corev1.Pod) { pod.OwnerReferences = nil }

func labelled(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[key] = value }
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

func disrupted(status corev1.ConditionStatus, reason string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: status, Reason: reason}}
	}
}

// operates grants operate to an id.
func operates(id, operationType string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Labels[appsv1alpha1.OperateLabelPrefix+"/"+id] = "1"
		pod.Labels[appsv1alpha1.OperationTypeLabelPrefix+"/"+id] = operationType
	}
}

func TestDecide(t *testing.T) {
	now := metav1.Now()
	terminating := func(pod *corev1.Pod) { pod.DeletionTimestamp = &now }
	mirror := func(pod *corev1.Pod) { pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }
	held := func(outcome Outcome, reason Reason, actor Actor) Decision {
		return Decision{Outcome: outcome, Reason: reason, Record: true, Actor: actor}
	}
	passes := func(reason Reason) Decision { return Decision{Outcome: Allow, Reason: reason} }
	requested := held(Await, ReasonRequest, ActorClient)

	tests := map[string]struct {
		pod    *corev1.Pod
		review Review // its pod is set
		want   Decision
	}{
		"PodOps carries out a pending delete": {
			pod: controlled(labelled(appsv1alpha1.PrepareLabelPrefix+"/pod-delete", "1")), review: Review{Actor: ActorManager}, want: passes(ReasonPodOps),
		},

		"the controller of a ReplicaSet repeats its delete": {
			pod: controlled(), review: Review{Actor: ActorOwner}, want: held(Hold, ReasonOwner, ActorOwner),
		},
		"the controller of a StatefulSet is held, and PodOps finishes": {
			pod: controlled(ownedBy("apps/v1", "StatefulSet")), review: Review{Actor: ActorOwner}, want: held(Hold, ReasonOwner, ActorOwner),
		},
		"the controller of a DaemonSet repeats its delete": {
			pod: controlled(ownedBy("apps/v1", "DaemonSet")), review: Review{Actor: ActorOwner}, want: held(Hold, ReasonOwner, ActorOwner),
		},
		"the controller of a Job repeats its delete": {
			pod: controlled(ownedBy("batch/v1", "Job")), review: Review{Actor: ActorOwner}, want: held(Hold, ReasonOwner, ActorOwner),
		},
		"a client of the eviction API waits": {
			pod: controlled(), review: Review{Actor: ActorEvictor, Method: MethodEviction}, want: held(Await, ReasonEviction, ActorEvictor),
		},
		"any other client waits":                              {pod: controlled(), review: Review{Actor: ActorClient}, want: requested},
		"so is one that deletes a bare pod":                   {pod: controlled(bare), review: Review{Actor: ActorClient}, want: requested},
		"so is one that deletes a collection":                 {pod: controlled(), review: Review{Actor: ActorClient, Method: MethodDeleteCollection}, want: requested},
		"the controller of a custom owner repeats its delete": {pod: controlled(ownedBy("apps.kusionstack.io/v1alpha1", "CollaSet")), review: Review{Actor: ActorController}, want: held(Hold, ReasonOwner, ActorController)},
		"a controller that does not own the pod any more begins nothing": {
			pod: controlled(bare), review: Review{Actor: ActorFormerOwner}, want: Decision{Outcome: Hold, Reason: ReasonFormer, Actor: ActorFormerOwner},
		},
		"nor does it use the permit of another request": {
			pod: controlled(bare, operates("pod-delete", "")), review: Review{Actor: ActorFormerOwner}, want: Decision{Outcome: Hold, Reason: ReasonFormer, Actor: ActorFormerOwner},
		},
		"a dry run gets the answer, and no record":     {pod: controlled(), review: Review{Actor: ActorClient, DryRun: true}, want: Decision{Outcome: Hold, Reason: ReasonRequest, Actor: ActorClient}},
		"a review that may be forged leaves no record": {pod: controlled(), review: Review{Actor: ActorClient, Forgeable: true}, want: Decision{Outcome: Hold, Reason: ReasonRequest, Actor: ActorClient}},
		"nor does one of a StatefulSet": {
			pod: controlled(ownedBy("apps/v1", "StatefulSet")), review: Review{Actor: ActorOwner, Forgeable: true}, want: Decision{Outcome: Hold, Reason: ReasonOwner, Actor: ActorOwner},
		},
		"that of a ReplicaSet is compared with its surplus": {pod: controlled(), review: Review{Actor: ActorOwner, Forgeable: true}, want: held(Hold, ReasonOwner, ActorOwner)},
		"a pod that waits is held again":                    {pod: controlled(labelled(appsv1alpha1.PreCheckLabelPrefix+"/pod-delete", "1")), review: Review{Actor: ActorClient}, want: requested},
		"a pod that prepares is held":                       {pod: controlled(labelled(appsv1alpha1.PrepareLabelPrefix+"/pod-delete", "1")), review: Review{Actor: ActorClient}, want: requested},
		"a request with the UID of the pod is held":         {pod: controlled(), review: Review{Actor: ActorClient, UID: "web-0"}, want: requested},
		"one PodDisruptionBudget is a rule": {
			pod: controlled(), review: Review{Actor: ActorEvictor, Method: MethodEviction, Budgets: 1}, want: held(Await, ReasonEviction, ActorEvictor),
		},
		"an eviction with a grace period of 0 is held": {
			pod: controlled(), review: Review{Actor: ActorEvictor, Method: MethodEviction, Forced: true}, want: held(Await, ReasonEviction, ActorEvictor),
		},
		"the scheduler is held where that is wanted, and repeats": {
			pod: controlled(), review: Review{Actor: ActorScheduler, HoldPreemption: true}, want: held(Hold, ReasonPreemption, ActorEvictor),
		},
		"its condition on the pod changes nothing": {
			pod: controlled(disrupted(corev1.ConditionTrue, "PreemptionByScheduler")), review: Review{Actor: ActorScheduler, HoldPreemption: true},
			want: held(Hold, ReasonPreemption, ActorEvictor),
		},

		"the scheduler passes":                                         {pod: controlled(), review: Review{Actor: ActorScheduler}, want: passes(ReasonPreemption)},
		"a part of Kubernetes passes":                                  {pod: controlled(), review: Review{Actor: ActorSystem}, want: passes(ReasonKubernetes)},
		"a delete without grace passes":                                {pod: controlled(), review: Review{Actor: ActorClient, Forced: true}, want: passes(ReasonForced)},
		"two PodDisruptionBudgets pass":                                {pod: controlled(), review: Review{Actor: ActorEvictor, Method: MethodEviction, Budgets: 2}, want: passes(ReasonTwoBudgets)},
		"they do not matter to a delete":                               {pod: controlled(), review: Review{Actor: ActorClient, Budgets: 2}, want: requested},
		"a request for another pod passes":                             {pod: controlled(), review: Review{Actor: ActorClient, UID: "earlier"}, want: passes(ReasonOtherPod)},
		"a pod without the label passes":                               {pod: controlled(func(pod *corev1.Pod) { pod.Labels = nil }), review: Review{Actor: ActorClient}, want: passes(ReasonNotControlled)},
		"another value of it is none":                                  {pod: controlled(labelled(appsv1alpha1.ControlLabelKey, "yes")), review: Review{Actor: ActorClient}, want: passes(ReasonNotControlled)},
		"the kubelet's last delete passes":                             {pod: controlled(terminating), review: Review{Actor: ActorClient}, want: passes(ReasonTerminating)},
		"a pod that succeeded passes":                                  {pod: controlled(phase(corev1.PodSucceeded)), review: Review{Actor: ActorClient}, want: passes(ReasonFinished)},
		"a pod that failed passes":                                     {pod: controlled(phase(corev1.PodFailed)), review: Review{Actor: ActorClient}, want: passes(ReasonFinished)},
		"a mirror pod passes":                                          {pod: controlled(mirror), review: Review{Actor: ActorClient}, want: passes(ReasonMirrorPod)},
		"a terminating namespace is emptied":                           {pod: controlled(), review: Review{Actor: ActorClient, NamespaceTerminating: true}, want: passes(ReasonNamespaceTerminating)},
		"a pod without its owner passes":                               {pod: controlled(), review: Review{Actor: ActorOwner, Owner: OwnerGone}, want: passes(ReasonOwnerDeleted)},
		"a pod of a deleted owner passes":                              {pod: controlled(), review: Review{Actor: ActorOwner, Owner: OwnerTerminating}, want: passes(ReasonOwnerDeleted)},
		"a pod of a tainted node passes":                               {pod: controlled(disrupted(corev1.ConditionTrue, "DeletionByTaintManager")), review: Review{Actor: ActorOwner}, want: passes(ReasonTaintManager)},
		"a pod of a tainted device passes":                             {pod: controlled(disrupted(corev1.ConditionTrue, "DeletionByDeviceTaintManager")), review: Review{Actor: ActorOwner}, want: passes(ReasonTaintManager)},
		"a pod of a deleted node passes":                               {pod: controlled(disrupted(corev1.ConditionTrue, "DeletionByPodGC")), review: Review{Actor: ActorOwner}, want: passes(ReasonPodGC)},
		"a pod that may be deleted passes":                             {pod: controlled(operates("pod-delete", "")), review: Review{Actor: ActorClient}, want: passes(ReasonPermitted)},
		"a pod that a client of the type delete may operate on passes": {pod: controlled(operates("drain", "delete")), review: Review{Actor: ActorClient}, want: passes(ReasonPermitted)},
		"a permit for an update permits no delete":                     {pod: controlled(operates("collaset", "update")), review: Review{Actor: ActorClient}, want: requested},
		"the controller of a custom owner replaces pods in its updates": {
			pod: controlled(ownedBy("apps.kusionstack.io/v1alpha1", "CollaSet"), operates("collaset", "update")), review: Review{Actor: ActorController}, want: passes(ReasonPermitted),
		},
		"the controller of a StatefulSet, in an operation of its operator": {
			pod: controlled(ownedBy("apps/v1", "StatefulSet"), operates("store", "upgrade")), review: Review{Actor: ActorOwner}, want: passes(ReasonPermitted),
		},
		"a ReplicaSet has no operator": {
			pod: controlled(ownedBy("apps/v1", "ReplicaSet"), operates("store", "upgrade")), review: Review{Actor: ActorOwner}, want: held(Hold, ReasonOwner, ActorOwner),
		},

		"a condition that was reset does not count": {
			pod: controlled(disrupted(corev1.ConditionFalse, "DeletionByTaintManager")), review: Review{Actor: ActorClient}, want: requested,
		},
		"an eviction that was denied later does not count": {
			pod: controlled(disrupted(corev1.ConditionTrue, "EvictionByEvictionAPI")), review: Review{Actor: ActorClient}, want: requested,
		},
		"another condition with the reason does not count": {
			pod: controlled(func(pod *corev1.Pod) {
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager"}}
			}), review: Review{Actor: ActorClient}, want: requested,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.review.Pod = tc.pod
			if diff := cmp.Diff(tc.want, Decide(tc.review)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestActorOf(t *testing.T) {
	const manager = "system:serviceaccount:podops-system:podops-controller-manager"
	stateful, job := controlled(ownedBy("apps/v1", "StatefulSet")), controlled(ownedBy("batch/v1", "Job"))
	custom := controlled(ownedBy("apps.kusionstack.io/v1alpha1", "CollaSet"))
	tests := map[string]struct {
		user   string
		groups []string
		method Method
		pod    *corev1.Pod
		want   Actor
	}{
		"PodOps":                                 {user: manager, pod: stateful, want: ActorManager},
		"PodOps, which evicts":                   {user: manager, method: MethodEviction, pod: stateful, want: ActorManager},
		"a kubelet":                              {user: "system:node:node-1", groups: []string{"system:nodes"}, pod: stateful, want: ActorSystem},
		"the namespace controller":               {user: "system:serviceaccount:kube-system:namespace-controller", pod: stateful, want: ActorSystem},
		"the garbage collector":                  {user: "system:serviceaccount:kube-system:generic-garbage-collector", pod: stateful, want: ActorSystem},
		"the garbage collector of pods":          {user: "system:serviceaccount:kube-system:pod-garbage-collector", pod: stateful, want: ActorSystem},
		"the taint manager":                      {user: "system:serviceaccount:kube-system:node-controller", pod: stateful, want: ActorSystem},
		"the scheduler":                          {user: "system:kube-scheduler", pod: stateful, want: ActorScheduler},
		"the controller of the owner":            {user: "system:serviceaccount:kube-system:statefulset-controller", pod: stateful, want: ActorOwner},
		"the controller of Jobs":                 {user: "system:serviceaccount:kube-system:job-controller", pod: job, want: ActorOwner},
		"the controller of another kind":         {user: "system:serviceaccount:kube-system:job-controller", pod: stateful, want: ActorFormerOwner},
		"the controller of a former owner":       {user: "system:serviceaccount:kube-system:replicaset-controller", pod: controlled(bare), want: ActorFormerOwner},
		"the shared user, of a known owner":      {user: "system:kube-controller-manager", pod: stateful, want: ActorOwner},
		"the shared user, of a custom owner":     {user: "system:kube-controller-manager", pod: custom, want: ActorSystem},
		"the shared user, of a bare pod":         {user: "system:kube-controller-manager", pod: controlled(bare), want: ActorSystem},
		"the controller of a custom owner":       {user: "system:serviceaccount:kusionstack-system:kuperator", pod: custom, want: ActorController},
		"that evicts":                            {user: "system:serviceaccount:kusionstack-system:kuperator", method: MethodEviction, pod: custom, want: ActorEvictor},
		"a ServiceAccount, of a known owner":     {user: "system:serviceaccount:ci:deployer", pod: stateful, want: ActorClient},
		"a person, of a custom owner":            {user: "jane", pod: custom, want: ActorClient},
		"a custom kind of the same name":         {user: "system:kube-controller-manager", pod: controlled(ownedBy("example.com/v1", "StatefulSet")), want: ActorSystem},
		"a person":                               {user: "jane", pod: stateful, want: ActorClient},
		"a person who drains a node":             {user: "jane", method: MethodEviction, pod: stateful, want: ActorEvictor},
		"a person, of a bare pod":                {user: "jane", pod: controlled(bare), want: ActorClient},
		"a user without a name is not a manager": {user: "", pod: stateful, want: ActorClient},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			identity := manager
			if tc.user == "" {
				identity = ""
			}
			if got := ClassifyActor(tc.user, tc.groups, tc.method, tc.pod, identity); got != tc.want {
				t.Errorf("actor %s, want %s", got, tc.want)
			}
		})
	}
}

func TestUnguarded(t *testing.T) {
	now := metav1.Now()
	ending := func(edits ...func(*corev1.Pod)) *corev1.Pod {
		return controlled(append(edits, func(pod *corev1.Pod) {
			pod.DeletionTimestamp = &now
			if pod.DeletionGracePeriodSeconds == nil {
				pod.DeletionGracePeriodSeconds = new(int64(30))
			}
		})...)
	}
	tests := map[string]struct {
		pod                  *corev1.Pod
		owner                OwnerState
		namespaceTerminating bool
		want                 Reason // empty: guarded
	}{
		"no manager answered":                     {pod: ending(), want: ReasonUnanswered},
		"without grace":                           {pod: ending(func(pod *corev1.Pod) { pod.DeletionGracePeriodSeconds = new(int64(0)) }), want: ReasonForced},
		"a NoExecute taint":                       {pod: ending(disrupted(corev1.ConditionTrue, "DeletionByTaintManager")), want: ReasonTaintManager},
		"a deleted node, which forces":            {pod: ending(disrupted(corev1.ConditionTrue, "DeletionByPodGC"), func(pod *corev1.Pod) { pod.DeletionGracePeriodSeconds = new(int64(0)) }), want: ReasonPodGC},
		"a deleted node, as pod GC writes it":     {pod: controlled(phase(corev1.PodFailed), disrupted(corev1.ConditionTrue, "DeletionByPodGC")), want: ReasonPodGC},
		"failed before its node was tainted":      {pod: ending(phase(corev1.PodFailed), disrupted(corev1.ConditionTrue, "DeletionByTaintManager"))},
		"failed before it was preempted":          {pod: ending(phase(corev1.PodFailed), disrupted(corev1.ConditionTrue, "PreemptionByScheduler"))},
		"failed before it was evicted":            {pod: ending(phase(corev1.PodFailed), disrupted(corev1.ConditionTrue, "EvictionByEvictionAPI"))},
		"succeeded while its node shut down":      {pod: ending(phase(corev1.PodSucceeded), disrupted(corev1.ConditionTrue, "TerminationByKubelet"))},
		"preemption":                              {pod: ending(disrupted(corev1.ConditionTrue, "PreemptionByScheduler")), want: ReasonPreemption},
		"a deleted owner":                         {pod: ending(), owner: OwnerGone, want: ReasonOwnerDeleted},
		"the kubelet":                             {pod: controlled(phase(corev1.PodFailed), disrupted(corev1.ConditionTrue, "TerminationByKubelet")), want: ReasonKubelet},
		"a pod that waited":                       {pod: ending(labelled(appsv1alpha1.PreCheckLabelPrefix+"/pod-delete", "1")), want: ReasonUnanswered},
		"a permitted pod is guarded":              {pod: ending(labelled(appsv1alpha1.PreCheckedLabelPrefix+"/pod-delete", "1"))},
		"an operable pod is guarded":              {pod: ending(operates("x", "delete"))},
		"a pod that may be updated only is not":   {pod: ending(operates("x", "update")), want: ReasonUnanswered},
		"its custom owner replaces it":            {pod: ending(ownedBy("apps.kusionstack.io/v1alpha1", "CollaSet"), operates("x", "update"))},
		"a terminating namespace is no violation": {pod: ending(), namespaceTerminating: true},
		"a pod that finished is none":             {pod: ending(phase(corev1.PodSucceeded))},
		"a pod outside of PodOps is none":         {pod: ending(func(pod *corev1.Pod) { pod.Labels = nil })},
		"a pod that was never scheduled is none":  {pod: ending(func(pod *corev1.Pod) { pod.Spec.NodeName = "" })},
		"a mirror pod is none": {pod: ending(func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		})},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if !Removed(tc.pod) {
				t.Fatal("the pod does not count as removed")
			}
			got, ok := Unguarded(tc.pod, tc.owner, tc.namespaceTerminating)
			if got != tc.want || ok != (tc.want != "") {
				t.Errorf("got %q %t, want %q", got, ok, tc.want)
			}
		})
	}
	if Removed(controlled()) || Removed(controlled(phase(corev1.PodFailed))) ||
		Removed(controlled(phase(corev1.PodFailed), disrupted(corev1.ConditionFalse, "DeletionByPodGC"))) {
		t.Error("a pod that stays counts as removed")
	}
}

func TestUpdatedUnguarded(t *testing.T) {
	// A pod as it was, and as it is after one change of its spec.
	generation := func(of int64) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Generation = of } }
	debugged := func(pod *corev1.Pod) {
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger"},
		})
	}
	ending := func(pod *corev1.Pod) { pod.DeletionTimestamp = new(metav1.Now()) }
	type edits []func(*corev1.Pod)
	for name, tc := range map[string]struct {
		both, before, after edits
		want                bool
	}{
		"a changed spec":                                  {want: true},
		"while it waits for its rules":                    {both: edits{labelled(appsv1alpha1.PreCheckLabelPrefix+"/x", "1")}, want: true},
		"while its traffic goes off":                      {both: edits{labelled(appsv1alpha1.PreparingLabelPrefix+"/x", "1")}, want: true},
		"while a deletion may operate":                    {both: edits{operates("x", "delete")}, want: true},
		"while PodOps may delete it":                      {both: edits{operates("pod-delete", "update")}, want: true},
		"after an earlier debugging":                      {both: edits{debugged}, want: true},
		"while an update may operate":                     {both: edits{operates("x", "update")}},
		"while an operation of any other type may":        {both: edits{operates("x", "resize")}},
		"while an update and a deletion may":              {both: edits{operates("x", "delete"), operates("y", "update")}},
		"with the request that finishes the operation":    {before: edits{operates("x", "update")}},
		"the version with the permit was missed":          {after: edits{operates("x", "update")}},
		"no change of the spec":                           {after: edits{generation(3)}},
		"an API server that counts no generations":        {before: edits{generation(0)}, after: edits{generation(0)}},
		"a container to debug it":                         {after: edits{debugged}},
		"an end":                                          {after: edits{ending}},
		"another pod of the name":                         {after: edits{func(pod *corev1.Pod) { pod.UID = "other" }}},
		"a pod that is on no node":                        {before: edits{func(pod *corev1.Pod) { pod.Spec.NodeName = "" }}},
		"a pod that has finished":                         {both: edits{phase(corev1.PodSucceeded)}},
		"a pod outside of PodOps":                         {before: edits{func(pod *corev1.Pod) { pod.Labels = nil }}},
		"a pod that is taken from PodOps with the change": {after: edits{func(pod *corev1.Pod) { pod.Labels = nil }}, want: true},
		"a mirror pod": {both: edits{func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			before := controlled(slices.Concat(edits{generation(3)}, tc.both, tc.before)...)
			after := controlled(slices.Concat(edits{generation(4)}, tc.both, tc.after)...)
			if got := UpdatedUnguarded(before, after); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
