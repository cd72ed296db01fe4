package rolloutview

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
)

// Of returns the view of a target at a time: a Deployment, ReplicaSet, StatefulSet, DaemonSet,
// PodTransitionRule or Pod. The snapshot has the objects of its namespace, and the target need not be one
// of them. Objects that have nothing to do with the target are left out.
func Of(snapshot *clusterstate.Snapshot, target metav1.Object, now time.Time) View {
	workload := describe(snapshot, target)
	view := View{Kind: workload.kind, Namespace: target.GetNamespace(), Name: target.GetName(), Time: metav1.NewTime(now)}
	for _, resource := range snapshot.Unreadable {
		view.Notes = append(view.Notes, resource.Resource+" are left out: "+resource.Reason)
	}
	pods := workload.pods(snapshot)
	rules := collectVerdicts(snapshot.Rules, pods)
	backends := countBackends(snapshot, pods)
	view.Revisions = workload.revisions(pods, func(pod statePod) Pod {
		return newPod(pod, rules.withheld[pod.Name], backends.of[pod.UID])
	})
	view.count(workload, pods)
	view.Rules = rules.all
	view.Budgets = listBudgets(snapshot, rules.selecting, pods)
	view.Traffic = backends.all
	view.State = view.state(workload)
	return view
}

// statePod is a pod with its state.
type statePod struct {
	*corev1.Pod
	state podstate.State
}

// newPod returns a pod of the view.
func newPod(pod statePod, withheld *Withheld, traffic backendCount) Pod {
	phase, since := currentPhase(pod.Pod, pod.state)
	out := Pod{
		Name: pod.Name, UID: string(pod.UID), Node: pod.Spec.NodeName, Phase: phase, Since: timeOrNil(since),
		Backends: traffic.all, TrafficOn: traffic.on,
	}
	for _, operation := range pod.state.Operations {
		out.Operations = append(out.Operations, operation.Describe())
	}
	if len(lifecycle.WaitingIDs(pod.state.Facts)) > 0 {
		out.Withheld = withheld
	}
	if pod.state.Pending != nil {
		out.WaitsFor = pod.state.Pending.Text
	}
	return out
}

// count counts pods that are not finished. Pods that terminate are neither available nor updated.
func (v *View) count(target workload, pods []statePod) {
	for i := range v.Revisions {
		for _, pod := range v.Revisions[i].Pods {
			if pod.Phase == PhaseFinished {
				continue
			}
			v.Pods++
			if pod.Phase != PhaseTerminating && v.Revisions[i].Current {
				v.Updated++
			}
		}
	}
	for _, pod := range pods {
		if pod.state.Available || pod.state.Phase == podstate.PhaseNotControlled && pod.state.Ready {
			v.Available++
		}
	}
	v.Desired = target.desired
	if v.Desired < 0 {
		v.Desired = v.Pods
	}
	v.Unavailable = max(0, v.Desired-v.Available)
}

func (v View) state(target workload) State {
	settled := target.observed && v.Available == v.Desired && v.Pods == v.Desired && v.Updated == v.Desired
	for _, pod := range v.AllPods() {
		if pod.Withheld != nil {
			return StateWithheld
		}
		settled = settled && (pod.Phase == PhaseAvailable || pod.Phase == PhaseFinished)
	}
	if settled {
		return StateComplete
	}
	return StateProgressing
}

// workload has the properties of a view's target.
type workload struct {
	kind     string
	desired  int  // -1: no owner sets it
	observed bool // its controller has observed its spec

	// owns reports whether a pod belongs to the target.
	owns func(*corev1.Pod) bool

	// revisionOf returns the revision of a pod; current is the name of the revision that the target
	// should have, and empty if every revision is current.
	revisionOf func(*corev1.Pod) string
	current    string
	number     map[string]string
}

func describe(snapshot *clusterstate.Snapshot, object metav1.Object) workload {
	byHash := func(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }
	w := workload{desired: -1, observed: true, owns: controlledBy(object.GetUID()), revisionOf: ownerName}
	switch target := object.(type) {
	case *appsv1.Deployment:
		w.kind, w.desired, w.observed = "Deployment", desiredReplicas(target.Spec.Replicas), target.Status.ObservedGeneration >= target.Generation
		w.ofDeployment(target, snapshot.ReplicaSetsOwnedBy(target.UID))
	case *appsv1.ReplicaSet:
		w.kind, w.desired = "ReplicaSet", desiredReplicas(target.Spec.Replicas)
	case *appsv1.StatefulSet:
		w.kind, w.desired, w.observed = "StatefulSet", desiredReplicas(target.Spec.Replicas), target.Status.ObservedGeneration >= target.Generation
		w.revisionOf, w.current = byHash, target.Status.UpdateRevision
	case *appsv1.DaemonSet:
		w.kind, w.desired = "DaemonSet", int(target.Status.DesiredNumberScheduled)
		w.observed = target.Status.ObservedGeneration >= target.Generation
		w.revisionOf, w.current = byHash, newest(snapshot.Pods, target)
	case *appsv1alpha1.PodTransitionRule:
		w.kind, w.owns = "PodTransitionRule", selectedBy(target)
		if target.Status.ObservedGeneration >= target.Generation {
			w.desired = int(target.Status.Desired)
		}
	case *corev1.Pod:
		w.kind, w.owns = "Pod", func(pod *corev1.Pod) bool { return pod.UID == target.UID }
	}
	return w
}

// ofDeployment finds pods by the ReplicaSets of a Deployment. The current ReplicaSet has the revision
// number of the Deployment.
func (w *workload) ofDeployment(target *appsv1.Deployment, sets []*appsv1.ReplicaSet) {
	owned := map[types.UID]bool{}
	w.number = map[string]string{}
	for _, set := range sets {
		owned[set.UID] = true
		w.number[set.Name] = set.Annotations[appsv1alpha1.DeploymentRevisionAnnotationKey]
		if w.number[set.Name] != "" && w.number[set.Name] == target.Annotations[appsv1alpha1.DeploymentRevisionAnnotationKey] {
			w.current = set.Name
		}
	}
	w.owns = func(pod *corev1.Pod) bool {
		controller := metav1.GetControllerOfNoCopy(pod)
		return controller != nil && owned[controller.UID]
	}
}

// pods returns the pods of a workload.
func (w workload) pods(snapshot *clusterstate.Snapshot) []statePod {
	var pods []statePod
	for _, pod := range snapshot.Pods {
		if w.owns(pod) {
			pods = append(pods, statePod{pod, snapshot.State(pod)})
		}
	}
	return pods
}

// revisions groups pods by revision: old revisions first, by number and name, and the current
// revision last.
func (w workload) revisions(pods []statePod, describe func(statePod) Pod) []Revision {
	groups := map[string]*Revision{}
	for _, pod := range pods {
		name := w.revisionOf(pod.Pod)
		group, ok := groups[name]
		if !ok {
			group = &Revision{Name: name, Number: w.number[name], Current: w.current == "" || w.current == name}
			groups[name] = group
		}
		group.Pods = append(group.Pods, describe(pod))
	}
	revisions := []Revision{}
	for _, group := range groups {
		slices.SortFunc(group.Pods, byUrgency)
		revisions = append(revisions, *group)
	}
	slices.SortFunc(revisions, func(a, b Revision) int {
		return cmp.Or(cmp.Compare(rank(a.Current), rank(b.Current)), cmp.Compare(revisionNumber(a), revisionNumber(b)), cmp.Compare(a.Name, b.Name))
	})
	return revisions
}

func rank(last bool) int {
	if last {
		return 1
	}
	return 0
}

func revisionNumber(r Revision) int {
	number, err := strconv.Atoi(r.Number)
	if err != nil {
		return 0
	}
	return number
}

// byUrgency orders pods: first pods that a rule withholds, then pods that wait for something else, pods in
// an operation, pods that are not available, and the others; the longest wait first.
func byUrgency(a, b Pod) int {
	return cmp.Or(cmp.Compare(urgency(a), urgency(b)), compareSince(a, b), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

func urgency(pod Pod) int {
	switch {
	case pod.Withheld != nil:
		return 0
	case pod.WaitsFor != "":
		return 1
	}
	switch pod.Phase {
	case PhasePreCheck, PhasePostCheck:
		return 2
	case PhasePreparing, PhaseOperating, PhaseCompleting:
		return 3
	case PhaseNotReady, PhaseOffline:
		return 4
	case PhaseTerminating:
		return 5
	case PhaseStarting:
		return 6
	default:
		return 7
	}
}

func compareSince(a, b Pod) int {
	switch {
	case a.Since == nil || b.Since == nil:
		return cmp.Compare(rank(a.Since == nil), rank(b.Since == nil))
	default:
		return a.Since.Compare(b.Since.Time)
	}
}

func desiredReplicas(replicas *int32) int {
	if replicas == nil {
		return 1
	}
	return int(*replicas)
}

func controlledBy(uid types.UID) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		controller := metav1.GetControllerOfNoCopy(pod)
		return controller != nil && controller.UID == uid
	}
}

// selectedBy returns whether a PodTransitionRule selects a pod.
func selectedBy(set *appsv1alpha1.PodTransitionRule) func(*corev1.Pod) bool {
	one := &clusterstate.Snapshot{Rules: []*appsv1alpha1.PodTransitionRule{set}}
	return func(pod *corev1.Pod) bool { return appsv1alpha1.IsControlled(pod.Labels) && len(one.RulesFor(pod)) > 0 }
}

// ownerName returns the controller of a pod.
func ownerName(pod *corev1.Pod) string {
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		return controller.Name
	}
	return ""
}

// templateGenerationLabelKey is set by the controller of DaemonSets to the generation of the template.
const templateGenerationLabelKey = "pod-template-generation"

// newest returns the hash of the revision that a DaemonSet should have: the hash of a pod from its
// template. It is empty without such a pod.
func newest(pods []*corev1.Pod, set *appsv1.DaemonSet) string {
	generation := set.Annotations[appsv1.DeprecatedTemplateGeneration]
	for _, pod := range pods {
		if metav1.IsControlledBy(pod, set) && generation != "" && pod.Labels[templateGenerationLabelKey] == generation {
			return pod.Labels[appsv1.ControllerRevisionHashLabelKey]
		}
	}
	return ""
}
