package podtransitionrule

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

// TestAPodThatIsNeededAgainIsNotPermitted shows that the approval of pods that were to go takes none of them off traffic once
// their ReplicaSet has been scaled out again.
func TestAPodThatIsNeededAgainIsNotPermitted(t *testing.T) {
	set := podindex.Owner{UID: "r", Namespace: "default", Kind: "ReplicaSet", Name: "web-1", Revision: 1, Controller: "d", Desired: 1, Observed: 1}
	newer := podindex.Owner{UID: "n", Namespace: "default", Kind: "ReplicaSet", Name: "web-2", Revision: 2, Controller: "d"}
	for name, tc := range map[string]struct {
		change    func(set *podindex.Owner, pod *corev1.Pod)
		newer     bool
		permitted bool
	}{
		"it needs its pods":                            {change: func(*podindex.Owner, *corev1.Pod) {}},
		"it has one too many":                          {change: func(set *podindex.Owner, _ *corev1.Pod) { set.Desired = 0 }, permitted: true},
		"one of its pods is not under PodOps":          {change: func(set *podindex.Owner, _ *corev1.Pod) { set.Observed, set.Unlabeled = 2, 2 }, permitted: true},
		"it has an older revision":                     {change: func(*podindex.Owner, *corev1.Pod) {}, newer: true, permitted: true},
		"it is terminating":                            {change: func(set *podindex.Owner, _ *corev1.Pod) { set.Terminating = true }, permitted: true},
		"another controller has begun the deletion":    {change: func(_ *podindex.Owner, pod *corev1.Pod) { pod.Annotations = nil }, permitted: true},
		"the pod has got another controller meanwhile": {change: func(_ *podindex.Owner, pod *corev1.Pod) { pod.OwnerReferences = nil }, permitted: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, owner := newHarness(t, opa.Options{}), set
			s.rules("web", labelled("approved", "approved"))
			pod := web(0).Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, s.clock.Now()).Obj()
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner.Name, UID: owner.UID, Controller: new(true)}}
			pod.Annotations = map[string]string{appsv1alpha1.PreviousDeletionCostAnnotationKey: ""}
			tc.change(&owner, pod)
			s.index.SetOwner(owner)
			if tc.newer {
				s.index.SetOwner(newer)
			}
			s.put(pod)
			relabel(s, pod.Name, "approved", "yes")
			s.step(time.Second)
			if tc.permitted {
				s.expectPermitted("at once", pod.Name)
				return
			}
			s.expectPermitted("at once")
			owner.Desired = 0
			s.index.SetOwner(owner)
			s.step(time.Second)
			s.expectPermitted("once it has one too many", pod.Name)
		})
	}
}

// TestAPodThatItsWorkloadKeepsIsNotPermitted shows the same for StatefulSets and DaemonSets, for whose controllers the deletion of a
// pod has begun: an undone rollout, and a scale-in that was withdrawn.
func TestAPodThatItsWorkloadKeepsIsNotPermitted(t *testing.T) {
	const set, daemon = "StatefulSet", "DaemonSet"
	for name, tc := range map[string]struct {
		kind      string
		change    func(set *appsv1.StatefulSet, daemon *appsv1.DaemonSet, record *appsv1alpha1.PendingDelete)
		permitted bool
	}{
		"a rollout replaces it": {kind: set, permitted: true, change: func(*appsv1.StatefulSet, *appsv1.DaemonSet, *appsv1alpha1.PendingDelete) {}},
		"its rollout was undone": {kind: set, change: func(s *appsv1.StatefulSet, _ *appsv1.DaemonSet, _ *appsv1alpha1.PendingDelete) {
			s.Status.UpdateRevision = "old"
		}},
		"the controller has not seen that its rollout was undone": {kind: set, change: func(s *appsv1.StatefulSet, _ *appsv1.DaemonSet, _ *appsv1alpha1.PendingDelete) {
			s.Generation++
		}},
		"the StatefulSet has a greater partition": {kind: set, change: func(s *appsv1.StatefulSet, _ *appsv1.DaemonSet, _ *appsv1alpha1.PendingDelete) {
			s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(1))}
		}},
		"the StatefulSet is scaled in": {kind: set, permitted: true, change: func(s *appsv1.StatefulSet, _ *appsv1.DaemonSet, _ *appsv1alpha1.PendingDelete) {
			s.Spec.Replicas, s.Status.UpdateRevision = new(int32(0)), "old"
		}},
		"another client has requested it": {kind: set, permitted: true, change: func(s *appsv1.StatefulSet, _ *appsv1.DaemonSet, record *appsv1alpha1.PendingDelete) {
			s.Status.UpdateRevision, record.Actor = "old", "Label"
		}},
		"a rollout of its DaemonSet replaces it": {kind: daemon, permitted: true, change: func(*appsv1.StatefulSet, *appsv1.DaemonSet, *appsv1alpha1.PendingDelete) {}},
		"the template of its DaemonSet is put back": {kind: daemon, change: func(_ *appsv1.StatefulSet, d *appsv1.DaemonSet, _ *appsv1alpha1.PendingDelete) {
			d.Generation++
		}},
		"its DaemonSet has been edited, and requests it again": {
			kind: daemon, permitted: true, change: func(_ *appsv1.StatefulSet, d *appsv1.DaemonSet, record *appsv1alpha1.PendingDelete) {
				d.Generation++
				record.OwnerGeneration = d.Generation
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t, opa.Options{})
			s.rules("web", labelled("approved", "approved"))
			pod := web(0).Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, s.clock.Now()).Obj()
			pod.Labels[appsv1.ControllerRevisionHashLabelKey] = "old"
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: tc.kind, Name: "web", UID: "w", Controller: new(true)}}
			meta := metav1.ObjectMeta{Namespace: pod.Namespace, Name: "web", UID: "w", Generation: 2}
			stateful := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(1))}, Status: appsv1.StatefulSetStatus{
				ObservedGeneration: 2, UpdateRevision: "new", Replicas: 1, AvailableReplicas: 1,
			}}
			daemonSet := &appsv1.DaemonSet{ObjectMeta: meta, Status: appsv1.DaemonSetStatus{
				ObservedGeneration: 2, DesiredNumberScheduled: 1, CurrentNumberScheduled: 1,
			}}
			record := deferreddelete.Request{
				Method: deferreddelete.MethodDelete, Actor: deferreddelete.ActorOwner, OwnerGeneration: 2,
			}.Begin(pod, deferreddelete.Begun(pod))
			tc.change(stateful, daemonSet, &record)
			pod.Annotations = map[string]string{appsv1alpha1.PendingDeleteAnnotationKey: deferreddelete.Encode(record)}
			var object metav1.Object = stateful
			if tc.kind == daemon {
				object = daemonSet
			}
			owner, _ := podindex.NewOwner(object)
			s.index.SetOwner(owner)
			s.put(pod)
			relabel(s, pod.Name, "approved", "yes")
			s.step(time.Second)
			if tc.permitted {
				s.expectPermitted("at once", pod.Name)
			} else {
				s.expectPermitted("at once")
			}
		})
	}
}

// TestAReplicaSetLosesAsManyPodsAsItHasTooMany has the controller of a ReplicaSet with a pod without the control label request the
// deletion of two approved pods, where it has one too many: it has not seen that the first one goes.
func TestAReplicaSetLosesAsManyPodsAsItHasTooMany(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(set *appsv1.ReplicaSet, first, second *builders.PodBuilder) // none of it is the first request
		newer  bool
		first  string
	}{
		"the first request": {first: "web-000"},
		"an old ReplicaSet": {newer: true, first: "web-000"},
		"its template does not have the control label": {
			change: func(set *appsv1.ReplicaSet, _, _ *builders.PodBuilder) { set.Spec.Template.Labels = nil }, first: "web-000",
		},
		"another operation on the second pod is over": {
			change: func(_ *appsv1.ReplicaSet, _, second *builders.PodBuilder) {
				second.Label(appsv1alpha1.OperatedLabelPrefix+"/updater", "1")
			}, first: "web-000",
		},
		"a pod that is unavailable goes first": {
			change: func(_ *appsv1.ReplicaSet, _, second *builders.PodBuilder) { second.Unready(builders.Epoch) }, first: "web-001",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t, opa.Options{})
			s.rules("web", labelled("approved", "approved"))
			set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "w"}}
			set.Spec.Template.Labels = map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
			scale := func(replicas, observed int32) {
				set.Spec.Replicas, set.Status.Replicas, set.Status.FullyLabeledReplicas = &replicas, observed, observed-1
				owner, _ := podindex.NewOwner(set)
				owner.Controller, owner.Revision = "d", 1
				s.index.SetOwner(owner)
			}
			pods := [3]*builders.PodBuilder{}
			for i := range pods {
				pods[i] = web(i).Label("approved", "yes")
				if i < 2 {
					pods[i].Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, s.clock.Now().Add(time.Duration(i)))
				}
			}
			if tc.change != nil {
				tc.change(set, pods[0], pods[1])
			}
			scale(3, 4)
			if tc.newer {
				s.index.SetOwner(podindex.Owner{UID: "n", Namespace: "default", Kind: "ReplicaSet", Name: "web-2", Revision: 2, Controller: "d"})
			}
			for _, pod := range pods {
				s.put(rolled("ReplicaSet", pod))
			}
			s.step(time.Second)
			s.expectPermitted("at once", tc.first)
			s.step(time.Minute)
			s.expectPermitted("while the first is there")
			going := s.pods[tc.first].DeepCopy()
			going.DeletionTimestamp = &metav1.Time{Time: s.clock.Now()}
			s.put(going)
			s.step(time.Second)
			s.expectPermitted("while the status counts the first, which is terminating")
			scale(3, 3)
			s.step(time.Second)
			s.expectPermitted("once the ReplicaSet has as many as it is to have")
			s.must(s.store.Delete(going))
			scale(2, 3)
			s.step(time.Second)
			if tc.first == "web-000" {
				s.expectPermitted("once it is to have one less", "web-001")
			} else {
				s.expectPermitted("once it is to have one less", "web-000")
			}
		})
	}
}

// TestADaemonSetKeepsItsMaxUnavailable has two approved pods of a DaemonSet wait, whose deletes its controller has requested one after
// the other, and a third that fails and recovers: at most one of them is out of service.
func TestADaemonSetKeepsItsMaxUnavailable(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "approved"))
	daemonSet := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "w", Generation: 2}}
	daemonSet.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{}
	daemonSet.Status = appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 3, CurrentNumberScheduled: 3}
	owner, _ := podindex.NewOwner(daemonSet)
	s.index.SetOwner(owner)
	for i := range 2 {
		s.put(rolled("DaemonSet", web(i).Label("approved", "yes").Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, s.clock.Now().Add(time.Duration(i)))))
	}
	s.put(rolled("DaemonSet", web(2).Unready(s.clock.Now())))
	s.step(time.Second)
	s.expectPermitted("while the third is unavailable")
	s.put(rolled("DaemonSet", web(2)))
	s.step(time.Second)
	s.expectPermitted("once it has recovered", "web-000")
}

// TestAStatefulSetLosesOnePodAtATime has two approved pods wait, whose deletes its controller has requested: the lower ordinal when it
// was the only one. They go one after the other, from the highest ordinal, as its controller replaces them.
func TestAStatefulSetLosesOnePodAtATime(t *testing.T) {
	for name, tc := range map[string]struct {
		policy      appsv1.PodManagementPolicyType
		replicas    int32
		unavailable bool // a third pod
		first       []string
	}{
		"in order": {replicas: 3, first: []string{"web-001"}},
		"in order, and another pod is unavailable": {replicas: 3, unavailable: true},
		"in parallel": {policy: appsv1.ParallelPodManagement, replicas: 3, first: []string{"web-001"}},
		"in parallel, and another pod is unavailable":  {policy: appsv1.ParallelPodManagement, replicas: 3, unavailable: true, first: []string{"web-001"}},
		"a scale-in in parallel removes pods together": {policy: appsv1.ParallelPodManagement, first: []string{"web-000", "web-001"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t, opa.Options{})
			s.rules("web", labelled("approved", "approved"))
			set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "w", Generation: 2}}
			set.Spec.Replicas, set.Spec.PodManagementPolicy = &tc.replicas, tc.policy
			set.Status = appsv1.StatefulSetStatus{ObservedGeneration: 2, UpdateRevision: "new", Replicas: tc.replicas, AvailableReplicas: tc.replicas}
			owner, _ := podindex.NewOwner(set)
			s.index.SetOwner(owner)
			for i := range 2 {
				s.put(rolled("StatefulSet", web(i).Label("approved", "yes").
					Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, s.clock.Now().Add(time.Duration(i)))))
			}
			third := web(2)
			if tc.unavailable {
				third = third.Unready(s.clock.Now())
			}
			s.put(rolled("StatefulSet", third))
			s.step(time.Second)
			s.expectPermitted("at once", tc.first...)
			s.step(time.Minute)
			s.expectPermitted("while the first is not back")
		})
	}
}

// rolled returns a pod whose delete the controller of its owner has requested for a rolling update, if it waits.
func rolled(kind string, pod *builders.PodBuilder) *corev1.Pod {
	made := pod.OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: "web", UID: "w", Controller: new(true)}).Obj()
	if deferreddelete.Begun(made) != "" {
		record := deferreddelete.Request{Method: deferreddelete.MethodDelete, Actor: deferreddelete.ActorOwner, OwnerGeneration: 2}
		made.Annotations = map[string]string{appsv1alpha1.PendingDeleteAnnotationKey: deferreddelete.Encode(record.Begin(made, deferreddelete.Begun(made)))}
	}
	return made
}

// TestAPermitOfAPodThatStartsKeepsItsFirstCheck has an operation permitted on a pod that has never been ready: the gate is written for it,
// and PostCheck rules of the creation decide later when it opens.
func TestAPermitOfAPodThatStartsKeepsItsFirstCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		conditions []string
		begins     bool
	}{
		"rules of new pods":        {conditions: []string{appsv1alpha1.CreateOperationType}, begins: true},
		"rules of every operation": {begins: true},
		"rules of operations":      {conditions: []string{"update"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t, opa.Options{})
			smoke := labelled("smoke", "smoke")
			smoke.Stage, smoke.Conditions = appsv1alpha1.StagePostCheck, tc.conditions
			s.rules("web", smoke)
			s.put(builders.MakePod("web-000").Label("app", "web").Waiting("updater", "update", s.clock.Now()).Obj())
			s.step(time.Second)
			s.expectPermitted("at once", "web-000")
			_, begun := s.pods["web-000"].Labels[appsv1alpha1.OperatedLabelPrefix+"/"+appsv1alpha1.PodCreateID]
			if begun != tc.begins {
				t.Errorf("its lifecycle has begun: %t, want %t", begun, tc.begins)
			}
		})
	}
}
