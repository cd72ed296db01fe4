package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

func podChecks() []check {
	return []check{
		{id: "gate-missing", reads: []Source{SourcePods}, find: (*inspection).gateMissing},
		{id: "control-label-not-in-template", reads: []Source{SourceWorkloads}, find: (*inspection).controlLabelNotInTemplate},
		{id: "control-label-value", reads: []Source{SourcePods, SourceWorkloads}, find: (*inspection).controlLabelValue},
		{id: "lifecycle-invalid", reads: []Source{SourcePods}, find: (*inspection).lifecycleInvalid},
		{id: "kubelet-not-syncing", reads: []Source{SourcePods}, find: (*inspection).kubeletNotSyncing},
		{id: "operation-without-controller", reads: []Source{SourcePods, SourceOperations}, find: (*inspection).operationWithoutController},
		{id: "rule-waits-long", reads: []Source{SourcePods}, find: (*inspection).ruleWaitsLong},
		{id: "operation-runs-long", reads: []Source{SourcePods}, find: (*inspection).operationRunsLong},
		{id: "stays-offline-long", reads: []Source{SourcePods}, find: (*inspection).staysOfflineLong},
	}
}

// perOwner returns the findings of pods. Pods of one owner with the same level of finding are reported in one
// finding.
func (in *inspection) perOwner(find func(*corev1.Pod) *Finding) []Finding {
	var findings []Finding
	for _, namespace := range slices.Sorted(maps.Keys(in.pods)) {
		byOwner := map[string]int{}
		for _, pod := range in.pods[namespace] {
			finding := find(pod)
			if finding == nil {
				continue
			}
			finding.Object = object("pod", pod.Namespace, pod.Name)
			owner := metav1.GetControllerOf(pod)
			if owner == nil {
				findings = append(findings, *finding)
				continue
			}
			key := string(owner.UID) + string(finding.Level)
			if at, ok := byOwner[key]; ok {
				findings[at].More++
				continue
			}
			byOwner[key] = len(findings)
			findings = append(findings, *finding)
		}
	}
	return findings
}

// explain is the remedy that shows why a pod waits.
func explain(pod *corev1.Pod) string {
	return fmt.Sprintf("kubectl podops explain -n %s pod/%s", pod.Namespace, pod.Name)
}

func unstick(pod *corev1.Pod) string {
	return fmt.Sprintf("kubectl podops unstick -n %s pod/%s", pod.Namespace, pod.Name)
}

// endDrain returns the command after which a pod is operated on although connections are left.
func endDrain(pod *corev1.Pod) string {
	return fmt.Sprintf("kubectl annotate -n %s pod/%s %s=1s --overwrite", pod.Namespace, pod.Name, appsv1alpha1.DrainTimeoutAnnotationKey)
}

func (in *inspection) gateMissing() []Finding {
	return in.perOwner(func(pod *corev1.Pod) *Finding {
		_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
		if mirror || pod.DeletionTimestamp != nil || slices.ContainsFunc(pod.Spec.ReadinessGates, func(gate corev1.PodReadinessGate) bool {
			return gate.ConditionType == appsv1alpha1.ServiceReadyGate
		}) {
			return nil
		}
		return &Finding{Level: LevelError, Text: lifecycle.GateMissingText(), Remedy: in.createAgain(pod)}
	})
}

// createAgain returns the command, or the change, after which a pod is created again with label and gate: its template may lack the label.
func (in *inspection) createAgain(pod *corev1.Pod) string {
	for _, w := range in.templates() {
		switch {
		case w.meta.Namespace != pod.Namespace || !w.owns(pod):
		case appsv1alpha1.IsControlled(w.template.Labels):
			return fmt.Sprintf("kubectl delete pod -n %s %s, so that it is created again with the gate", pod.Namespace, pod.Name)
		default:
			return w.label() + ", so that its pods are created again with label and gate"
		}
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return fmt.Sprintf("put %s=%s into the pod template of %s %s, and have the pod created again", appsv1alpha1.ControlLabelKey,
			appsv1alpha1.ControlLabelValue, owner.Kind, owner.Name)
	}
	return fmt.Sprintf("create pod %s again in namespace %s from its manifest: no controller does", pod.Name, pod.Namespace)
}

// workload is a kind of workload with its pod template.
type workload struct {
	kind     string
	meta     *metav1.ObjectMeta
	selector *metav1.LabelSelector
	template *corev1.PodTemplateSpec
}

// templates returns the workloads of the Snapshot.
func (in *inspection) templates() []workload {
	var workloads []workload
	for i := range in.Deployments {
		o := &in.Deployments[i]
		workloads = append(workloads, workload{"deployment", &o.ObjectMeta, o.Spec.Selector, &o.Spec.Template})
	}
	for i := range in.StatefulSets {
		o := &in.StatefulSets[i]
		workloads = append(workloads, workload{"statefulset", &o.ObjectMeta, o.Spec.Selector, &o.Spec.Template})
	}
	for i := range in.DaemonSets {
		o := &in.DaemonSets[i]
		workloads = append(workloads, workload{"daemonset", &o.ObjectMeta, o.Spec.Selector, &o.Spec.Template})
	}
	return workloads
}

// owns reports whether a workload owns a pod. The pods of a Deployment name their ReplicaSet: there its selector decides.
func (w workload) owns(pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(w.selector)
	controller := metav1.GetControllerOfNoCopy(pod)
	if err != nil || controller == nil || !selector.Matches(labels.Set(pod.Labels)) {
		return false
	}
	return controller.UID == w.meta.UID || w.kind == "deployment" && controller.Kind == "ReplicaSet"
}

// label returns the command that adds the control label to the template.
func (w workload) label() string {
	return fmt.Sprintf(`kubectl patch %s -n %s %s -p '{"spec":{"template":{"metadata":{"labels":{"%s":"true"}}}}}'`,
		w.kind, w.meta.Namespace, w.meta.Name, appsv1alpha1.ControlLabelKey)
}

func (in *inspection) controlLabelNotInTemplate() []Finding {
	var findings []Finding
	for _, w := range in.templates() {
		if !appsv1alpha1.IsControlled(w.meta.Labels) || appsv1alpha1.IsControlled(w.template.Labels) {
			continue
		}
		findings = append(findings, Finding{
			Level: LevelWarning, Object: object(w.kind, w.meta.Namespace, w.meta.Name), Remedy: w.label(),
			Text: fmt.Sprintf("has the label %s=true itself, and not in its pod template: its pods are not under PodOps", appsv1alpha1.ControlLabelKey),
		})
	}
	return findings
}

// controlLabelValue names templates, and pods without an owner, whose control label has a value that means nothing: no webhook receives
// their requests, so that admission cannot warn of it.
func (in *inspection) controlLabelValue() []Finding {
	var findings []Finding
	inspect := func(object string, labels map[string]string, remedy string) {
		value, ok := labels[appsv1alpha1.ControlLabelKey]
		if !ok || value == appsv1alpha1.ControlLabelValue || value == "false" {
			return
		}
		findings = append(findings, Finding{
			Level: LevelWarning, Object: object, Remedy: remedy,
			Text: fmt.Sprintf("has the label %s=%q, and only %q puts pods under PodOps", appsv1alpha1.ControlLabelKey, value, appsv1alpha1.ControlLabelValue),
		})
	}
	for _, w := range in.templates() {
		inspect(object(w.kind, w.meta.Namespace, w.meta.Name), w.template.Labels, w.label())
	}
	for i := range in.Pods {
		pod := &in.Pods[i]
		if metav1.GetControllerOfNoCopy(pod) == nil {
			again := fmt.Sprintf("create the pod again with %s=%s", appsv1alpha1.ControlLabelKey, appsv1alpha1.ControlLabelValue)
			inspect(object("pod", pod.Namespace, pod.Name), pod.Labels, again)
		}
	}
	return findings
}

func (in *inspection) lifecycleInvalid() []Finding {
	return in.perOwner(func(pod *corev1.Pod) *Finding {
		facts := lifecycle.NewPodFacts(pod)
		problem := facts.Conditions[appsv1alpha1.ConditionInvalidLifecycle]
		if untyped := lifecycle.UntypedIDs(facts); problem == "" && len(untyped) > 0 {
			problem = lifecycle.UntypedText(untyped)
		}
		if facts.ExpectedFinalizersErr != nil && problem == "" {
			problem = facts.ExpectedFinalizersErr.Error()
		}
		if problem == "" || facts.Terminating {
			return nil
		}
		return &Finding{Level: LevelError, Text: text.Line(problem, maxMessage), Remedy: explain(pod)}
	})
}

func (in *inspection) kubeletNotSyncing() []Finding {
	return in.perOwner(func(pod *corev1.Pod) *Finding {
		if facts := lifecycle.NewPodFacts(pod); !facts.NotSyncing || facts.Terminating {
			return nil
		}
		return &Finding{
			Level: LevelWarning, Text: fmt.Sprintf("the kubelet of node %s does not follow its readiness gate", pod.Spec.NodeName),
			Remedy: "kubectl describe node " + pod.Spec.NodeName,
		}
	})
}

// operationWithoutController finds operations of PodOperations that do not exist any more: no controller will
// finish or cancel them.
func (in *inspection) operationWithoutController() []Finding {
	return in.perOwner(func(pod *corev1.Pod) *Finding {
		ids := in.abandoned(pod)
		if len(ids) == 0 || pod.DeletionTimestamp != nil {
			return nil
		}
		return &Finding{
			Level: LevelError, Remedy: unstick(pod),
			Text: fmt.Sprintf("operates for id %s, whose request does not exist any more: no controller finishes or cancels it", ids[0]),
		}
	})
}

// abandoned returns the ids of a pod that operate for a PodOperation that does not exist, or for a deferred
// delete that was not recorded; sorted.
func (in *inspection) abandoned(pod *corev1.Pod) []string {
	var ids []string
	for _, key := range slices.Sorted(maps.Keys(pod.Labels)) {
		id, operating := strings.CutPrefix(key, appsv1alpha1.OperatingLabelPrefix+"/")
		switch {
		case !operating || in.operations[id]:
		case strings.HasPrefix(id, appsv1alpha1.PodOperationIDPrefix):
			ids = append(ids, id)
		case id == appsv1alpha1.PodDeleteID && pod.Annotations[appsv1alpha1.PendingDeleteAnnotationKey] == "" &&
			pod.Labels[appsv1alpha1.ToDeleteLabelKey] == "" && !isOfScaleDown(pod):
			ids = append(ids, id)
		}
	}
	return ids
}

// isOfScaleDown reports whether PodOps deletes a pod for its ReplicaSet.
func isOfScaleDown(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[appsv1alpha1.PreviousDeletionCostAnnotationKey]
	return ok
}

// since returns the earliest time in the labels of a prefix, and its id.
func since(pod *corev1.Pod, prefix string) (time.Time, string) {
	var first time.Time
	found := ""
	for key, value := range pod.Labels {
		id, ok := strings.CutPrefix(key, prefix+"/")
		at, isTime := lifecycle.ParseTime(value)
		if ok && isTime && (found == "" || at.Before(first)) {
			first, found = at, id
		}
	}
	return first, found
}

func (in *inspection) ruleWaitsLong() []Finding {
	return in.perOwner(func(pod *corev1.Pod) *Finding {
		for _, waiting := range lifecycle.WaitingIDs(lifecycle.NewPodFacts(pod)) {
			at, ok := lifecycle.ParseTime(waiting.Attempt)
			if !ok || in.now.Sub(at) < in.long {
				continue
			}
			found := &Finding{
				Level: LevelWarning, Remedy: explain(pod), Text: fmt.Sprintf("has waited for %s rules for %s (%s)",
					waiting.Stage, age(in.now, at), lifecycle.DescribeOperation(waiting.Type, waiting.ID)),
			}
			if other := in.mayGoBefore(pod, waiting.ID); other != nil {
				found.Text += "; its StatefulSet replaces no other pod before it, although the rule may permit others"
				found.Remedy = fmt.Sprintf("kubectl podops delete pod -n %s %s lets a lower pod go first; why it waits: %s", pod.Namespace, other.Name, found.Remedy)
			}
			return found
		}
		return nil
	})
}

// mayGoBefore returns the pod of a StatefulSet that can go while a rule withholds the delete of a pod for what that pod is; nil for no pod.
func (in *inspection) mayGoBefore(pod *corev1.Pod, id string) *corev1.Pod {
	controller := metav1.GetControllerOfNoCopy(pod)
	isOfPod := slices.ContainsFunc(podstate.WithheldBy(pod.Annotations), func(w podstate.Withheld) bool { return rule.IsOfPod(rule.Code(w.Code)) })
	if id != appsv1alpha1.PodDeleteID || controller == nil || !isOfPod {
		return nil
	}
	for i := range in.StatefulSets {
		if set := &in.StatefulSets[i]; set.UID == controller.UID {
			return deferreddelete.MayGoBefore(set, pod, in.pods[pod.Namespace])
		}
	}
	return nil
}

func (in *inspection) operationRunsLong() []Finding {
	return in.perOwner(func(pod *corev1.Pod) *Finding {
		at, id := since(pod, appsv1alpha1.OperateLabelPrefix)
		if id == "" || pod.DeletionTimestamp != nil || in.now.Sub(at) < in.long {
			return nil
		}
		return &Finding{
			Level: LevelWarning, Remedy: unstick(pod), Text: fmt.Sprintf("has been off traffic for %s so that it can be operated on (%s): its controller has neither "+
				"finished nor cancelled the operation", age(in.now, at), lifecycle.DescribeOperation(pod.Labels[appsv1alpha1.OperationTypeLabelPrefix+"/"+id], id)),
		}
	})
}

func (in *inspection) staysOfflineLong() []Finding {
	return in.perOwner(func(pod *corev1.Pod) *Finding {
		_, offline := pod.Labels[appsv1alpha1.StayOfflineLabelKey]
		facts := lifecycle.NewPodFacts(pod)
		if !offline || facts.Terminating || facts.Gate != lifecycle.GateFalse || in.now.Sub(facts.GateSince) < in.long {
			return nil
		}
		return &Finding{
			Level: LevelWarning, Text: fmt.Sprintf("has been off traffic for %s by the label %s", age(in.now, facts.GateSince), appsv1alpha1.StayOfflineLabelKey),
			Remedy: fmt.Sprintf("kubectl label pod -n %s %s %s-", pod.Namespace, pod.Name, appsv1alpha1.StayOfflineLabelKey),
		}
	})
}
