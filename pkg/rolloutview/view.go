package rolloutview

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/lifecycle"
)

// Of returns the view of a workload at a time.
func Of(in Input, now time.Time) View {
	target := describe(in)
	view := View{
		Kind: target.kind, Namespace: in.Target.GetNamespace(), Name: in.Target.GetName(), Time: metav1.NewTime(now), Notes: in.Notes,
		Rules: []Rule{}, Budgets: []Budget{}, Traffic: []Traffic{},
	}
	pods := target.pods(in.Pods)
	rules := rulesOf(in.Rules, pods)
	backends := backendsOf(in, pods)
	view.Revisions = target.revisions(pods, func(pod *corev1.Pod) Pod {
		return podOf(pod, rules.withheld[pod.Name], backends.of[pod.UID])
	})
	view.count(target, pods)
	view.Rules = rules.all
	view.Budgets = budgetsOf(in, rules.selecting, pods)
	view.Traffic = backends.all
	view.State = view.state(target)
	return view
}

// podOf returns a pod of the view.
func podOf(pod *corev1.Pod, withheld *Withheld, traffic backendCount) Pod {
	facts := lifecycle.FactsOf(pod)
	phase, since := PhaseOf(pod)
	out := Pod{
		Name: pod.Name, UID: string(pod.UID), Node: pod.Spec.NodeName, Phase: phase, Since: timeOf(since),
		Operations: lifecycle.Operations(facts), Backends: traffic.all, TrafficOn: traffic.on,
	}
	for _, waiting := range lifecycle.WaitingIDs(facts) {
		out.Operations = append(out.Operations, lifecycle.DescribeOperation(waiting.Type, waiting.ID))
		out.Withheld = withheld
	}
	slices.Sort(out.Operations)
	out.Operations = slices.Compact(out.Operations)
	if pending, ok := lifecycle.PendingOf(facts); ok {
		out.WaitsFor = pending.Text
	}
	return out
}

// count counts pods that are not finished. Pods that terminate are neither available nor updated.
func (v *View) count(target workload, pods []*corev1.Pod) {
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
		if isAvailable(pod) {
			v.Available++
		}
	}
	v.Desired = target.desired
	if v.Desired < 0 {
		v.Desired = v.Pods
	}
	v.Unavailable = max(0, v.Desired-v.Available)
}

// isAvailable reports whether a pod serves, as the rules count it. A pod that waits for its PreCheck rules
// still does.
func isAvailable(pod *corev1.Pod) bool {
	facts := lifecycle.FactsOf(pod)
	_, marked := pod.Labels[appsv1alpha1.ServiceAvailableLabelKey]
	finished := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
	return facts.Ready && !facts.Terminating && !finished && (marked || !facts.Controlled())
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

// workload is what a view needs of its target.
type workload struct {
	kind     string
	desired  int  // -1: no owner sets it
	observed bool // its controller has observed its spec

	// owns reports whether a pod belongs to the target.
	owns func(*corev1.Pod) bool

	// revisionOf returns the revision of a pod; current is the name of that which the target should
	// have, and empty if each one is.
	revisionOf func(*corev1.Pod) string
	current    string
	number     map[string]string
}

func describe(in Input) workload {
	byHash := func(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }
	w := workload{desired: -1, observed: true, owns: controlledBy(in.Target.GetUID()), revisionOf: ownerOf}
	switch target := in.Target.(type) {
	case *appsv1.Deployment:
		w.kind, w.desired, w.observed = "Deployment", replicasOf(target.Spec.Replicas), target.Status.ObservedGeneration >= target.Generation
		w.ofDeployment(target, in.ReplicaSets)
	case *appsv1.ReplicaSet:
		w.kind, w.desired = "ReplicaSet", replicasOf(target.Spec.Replicas)
	case *appsv1.StatefulSet:
		w.kind, w.desired, w.observed = "StatefulSet", replicasOf(target.Spec.Replicas), target.Status.ObservedGeneration >= target.Generation
		w.revisionOf, w.current = byHash, target.Status.UpdateRevision
	case *appsv1.DaemonSet:
		w.kind, w.desired = "DaemonSet", int(target.Status.DesiredNumberScheduled)
		w.observed = target.Status.ObservedGeneration >= target.Generation
		w.revisionOf, w.current = byHash, newest(in.Revisions, target.UID)
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

// ofDeployment finds pods by the ReplicaSets of a Deployment. The current one has its revision number.
func (w *workload) ofDeployment(target *appsv1.Deployment, sets []*appsv1.ReplicaSet) {
	owned := map[types.UID]bool{}
	w.number = map[string]string{}
	for _, set := range sets {
		if !metav1.IsControlledBy(set, target) {
			continue
		}
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

func (w workload) pods(all []*corev1.Pod) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range all {
		if w.owns(pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// revisions groups pods by revision: old ones first, by number and name, and the current one last.
func (w workload) revisions(pods []*corev1.Pod, describe func(*corev1.Pod) Pod) []Revision {
	groups := map[string]*Revision{}
	for _, pod := range pods {
		name := w.revisionOf(pod)
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
		return cmp.Or(cmp.Compare(rank(a.Current), rank(b.Current)), cmp.Compare(numberOf(a), numberOf(b)), cmp.Compare(a.Name, b.Name))
	})
	return revisions
}

func rank(last bool) int {
	if last {
		return 1
	}
	return 0
}

func numberOf(r Revision) int {
	number, err := strconv.Atoi(r.Number)
	if err != nil {
		return 0
	}
	return number
}

// byUrgency orders pods: first those that a rule withholds, then those that wait for something else, those
// in an operation, those that are not available, and the others; the longest wait first.
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
	case PhaseNotReady, PhaseStayOffline:
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

func replicasOf(replicas *int32) int {
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

func selectedBy(set *appsv1alpha1.PodTransitionRule) func(*corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		selector = labels.Nothing()
	}
	return func(pod *corev1.Pod) bool {
		return pod.Namespace == set.Namespace && appsv1alpha1.IsControlled(pod.Labels) && selector.Matches(labels.Set(pod.Labels))
	}
}

// ownerOf returns the controller of a pod.
func ownerOf(pod *corev1.Pod) string {
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		return controller.Name
	}
	return ""
}

// newest returns the hash of the newest revision of an owner, empty if none is known.
func newest(revisions []*appsv1.ControllerRevision, owner types.UID) string {
	number, hash := int64(-1), ""
	for _, revision := range revisions {
		if controller := metav1.GetControllerOfNoCopy(revision); controller == nil || controller.UID != owner || revision.Revision < number {
			continue
		}
		number, hash = revision.Revision, revision.Labels[appsv1.ControllerRevisionHashLabelKey]
	}
	return hash
}
