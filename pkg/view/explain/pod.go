package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
)

// Pod explains a pod of a snapshot.
func Pod(s *clusterstate.Snapshot, pod *corev1.Pod, now time.Time) Explanation {
	x := &explainer{s: s, pod: pod, state: s.State(pod), now: now}
	x.explain()
	x.rank()
	return Explanation{
		Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, Phase: string(x.state.Phase), Since: timeOrNil(x.state.Since),
		Summary: x.summary(), Operations: x.operations(), Reasons: x.reasons, Notes: x.notes, LetGo: x.letGo(),
		Unreadable: unreadable(s),
	}
}

// explainer collects the reasons of one pod.
type explainer struct {
	s     *clusterstate.Snapshot
	pod   *corev1.Pod
	state podstate.State
	now   time.Time

	reasons []Reason
	notes   []Reason
}

func (x *explainer) because(rank rank, reason Reason) {
	reason.rank, reason.Docs = rank, reason.Situation.Anchor()
	x.reasons = append(x.reasons, reason)
}

func (x *explainer) note(reason Reason) {
	reason.Docs = reason.Situation.Anchor()
	x.notes = append(x.notes, reason)
}

// rank orders the reasons; reasons of one rank stay in the order in which they were found.
func (x *explainer) rank() {
	slices.SortStableFunc(x.reasons, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.Rule, b.Rule))
	})
	if x.reasons == nil {
		x.reasons = []Reason{}
	}
}

func (x *explainer) explain() {
	switch x.state.Phase {
	case podstate.PhaseTerminating:
		x.terminating()
		return
	case podstate.PhaseFinished:
		return
	case podstate.PhaseNotControlled:
		x.notControlled()
		return
	default:
	}
	if x.pod.Annotations[corev1.MirrorPodAnnotationKey] != "" {
		x.note(Reason{Situation: MirrorPod, Message: "it is a mirror pod of a static pod, which only its kubelet stops: PodOps does not guard it"})
	}
	x.managerAway()
	x.problems()
	for _, operation := range x.state.Operations {
		x.operation(operation)
	}
	if x.state.Phase == podstate.PhaseUnavailable || x.state.Phase == podstate.PhaseOffline {
		x.comesBack()
	}
	x.context()
}

// managerAway reports that no manager leads, if the pod waits for it.
func (x *explainer) managerAway() {
	moves := len(x.state.Operations) > 0 || x.state.Phase != podstate.PhaseAvailable
	if x.s.Manager.Away(x.now) && moves {
		x.because(rankNothingMoves, managerAway(x.s.Manager))
	}
}

func managerAway(manager clusterstate.Manager) Reason {
	message := "no manager runs: its Lease was last renewed by " + manager.Holder + " and has expired, and nothing moves until a manager runs"
	if manager.Holder == "" {
		message = "no manager runs: its Lease was released, and nothing moves until a manager runs"
	}
	return Reason{
		Situation: ManagerAway, Message: message, Since: timeOrNil(manager.Renewed),
		Commands: []Command{
			{"see the pods of the manager", "kubectl -n " + manager.Namespace + " get pods"},
			{"see why they end", "kubectl -n " + manager.Namespace + " logs deploy/podops-controller-manager --previous"},
		},
	}
}

// problems reports the problems of the pod itself.
func (x *explainer) problems() {
	problem := lifecycle.FindProblem(x.state.Facts, lifecycle.Change{}, lifecycle.Options{})
	switch problem.Reason {
	case lifecycle.ProblemInvalidLifecycle:
		id := lifecycle.UntypedIDs(x.state.Facts)[0]
		x.because(rankNothingMoves, Reason{Situation: InvalidLifecycle, Message: problem.Text, Commands: []Command{
			{"add the type", x.kubectl("label pod %s %s/%s=<type>", x.pod.Name, appsv1alpha1.OperationTypeLabelPrefix, id)},
			{"or cancel the operation", x.kubectl("label pod %s %s/%s-", x.pod.Name, appsv1alpha1.OperatingLabelPrefix, id)},
		}})
	case lifecycle.ProblemBadAvailableConditions:
		x.because(rankNothingMoves, Reason{Situation: BadAvailability, Message: problem.Text, Commands: []Command{
			{"remove it, if no service controller needs it", x.kubectl("annotate pod %s %s-", x.pod.Name, appsv1alpha1.AvailableConditionsAnnotationKey)},
		}})
	case lifecycle.ProblemBadAnnotation:
		x.note(Reason{Situation: BadAnnotation, Message: problem.Text})
	case lifecycle.ProblemKubeletNotSyncing:
		x.because(rankDenied, Reason{Situation: Kubelet, Message: problem.Text, Since: timeOrNil(x.state.Facts.GateSince), Commands: x.nodeCommands()})
	}
	if x.state.Facts.Gate == lifecycle.GateMissing {
		x.gateMissing()
	}
}

// gateMissing notes that the pod has no gate. A pod that is created again from a template without the control label would
// have neither label nor gate.
func (x *explainer) gateMissing() {
	note := Reason{Situation: GateMissing, Message: lifecycle.GateMissingText()}
	owner := x.s.Owner(x.pod)
	switch template := x.s.Template(owner); {
	case template == nil && owner.Kind == "":
		note.Message += "; no controller creates it again"
	case template == nil:
		note.Message += fmt.Sprintf("; the template of its %s %s needs the label %s", owner.Kind, owner.Name, appsv1alpha1.ControlLabelKey)
	case !appsv1alpha1.IsControlled(template.Labels):
		note.Message += "; the template of its " + owner.Kind + " has no label " + appsv1alpha1.ControlLabelKey
		note.Commands = []Command{x.labelTemplate(owner)}
	default:
		note.Commands = []Command{{"have the pod created again, with the gate", x.kubectl("delete pod %s", x.pod.Name)}}
	}
	x.note(note)
}

// labelTemplate returns the command that puts the pods of a workload under PodOps.
func (x *explainer) labelTemplate(owner rule.Owner) Command {
	purpose := "have its pods created again, with label and gate"
	if x.keepsPods(owner) {
		purpose = "have pods created with label and gate from now on"
	}
	return Command{purpose, x.kubectl(`patch %s %s -p '{"spec":{"template":{"metadata":{"labels":{"%s":"%s"}}}}}'`,
		strings.ToLower(owner.Kind), owner.Name, appsv1alpha1.ControlLabelKey, appsv1alpha1.ControlLabelValue)}
}

// keepsPods reports whether a workload does not replace its pods when its template changes.
func (x *explainer) keepsPods(owner rule.Owner) bool {
	if set := x.s.StatefulSet(owner.Name); owner.Kind == "StatefulSet" && set != nil {
		return set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType
	}
	if set := x.s.DaemonSet(owner.Name); owner.Kind == "DaemonSet" && set != nil {
		return set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	}
	return owner.Kind == "ReplicaSet"
}

// operation reports the conditions that one operation waits for.
func (x *explainer) operation(operation podstate.Operation) {
	switch operation.Phase {
	case podstate.PhasePreCheck, podstate.PhasePostCheck:
		if operation.Phase == podstate.PhasePostCheck && x.waitsForOthers(operation) {
			return
		}
		x.withheld(operation)
	case podstate.PhasePreparing:
		x.trafficOff()
	case podstate.PhaseOperating:
		x.operating(operation)
	case podstate.PhaseCompleting:
		x.comesBack()
	default:
	}
}

// waitsForOthers reports that a finished operation is checked after the other permitted operations.
func (x *explainer) waitsForOthers(operation podstate.Operation) bool {
	others := append(x.state.In(podstate.PhaseOperating), x.state.In(podstate.PhasePreparing)...)
	if len(others) == 0 {
		return false
	}
	x.because(rankLater, Reason{
		Situation: OtherOperation,
		Message:   fmt.Sprintf("%s is over, and its PostCheck rules are evaluated after %s", operation.Describe(), others[0].Describe()),
	})
	return true
}

// operating reports that an operation has its permit, and who acts next.
func (x *explainer) operating(operation podstate.Operation) {
	undo := Command{"cancel it", x.undo(operation)}
	finish := Command{"finish it", x.kubectl("label pod %s %s/%s-", x.pod.Name, appsv1alpha1.OperatingLabelPrefix, operation.ID)}
	since := timeOrNil(operation.Since)
	podOperation := x.podOperation(operation.ID)
	switch {
	case operation.ID == appsv1alpha1.PodDeleteID:
		x.because(rankLater, Reason{
			Situation: DeletePermitted, Message: "the deletion is permitted and its traffic is off: " + x.deletedBy() + " deletes the pod next",
			Since: since, Commands: []Command{undo},
		})
	case x.startedSince(operation.Since):
		x.because(rankDenied, Reason{
			Situation: OperationNotEnded, Since: since,
			Message: fmt.Sprintf("%s seems to be over, since its containers were started after the permit and are ready, but label %s/%s is still there",
				operation.Describe(), appsv1alpha1.OperatingLabelPrefix, operation.ID),
			Commands: []Command{finish, undo},
		})
	case podOperation != nil:
		x.because(rankLater, Reason{
			Situation: OperationOfPodOp, Message: fmt.Sprintf("PodOperation %s carries it out (%s)", podOperation.Name, podOperation.Spec.Action.Type),
			Since: since, Commands: []Command{{"see it", x.kubectl("describe podoperation %s", podOperation.Name)}, undo},
		})
	default:
		x.because(rankLater, Reason{
			Situation: WaitsForOperation, Since: since,
			Message: fmt.Sprintf("%s is permitted and traffic is off: its operation controller has to act, and then to remove label %s/%s",
				operation.Describe(), appsv1alpha1.OperatingLabelPrefix, operation.ID),
			Commands: []Command{finish, undo},
		})
	}
}

// deletedBy returns the component that deletes the pod once it is permitted.
func (x *explainer) deletedBy() string {
	if deferreddelete.Finishes(x.pod) {
		return "PodOps"
	}
	if record := x.state.Delete; record != nil && record.Actor != string(deferreddelete.ActorOwner) {
		return cmpUser(record.User) + ", by repeating its request,"
	}
	if owner := x.s.Owner(x.pod); owner.Kind != "" {
		return "its controller (" + owner.Kind + " " + owner.Name + ")"
	}
	return "its client"
}

// podOperation returns the PodOperation of an id; nil if the id belongs to no PodOperation.
func (x *explainer) podOperation(id string) *appsv1alpha1.PodOperation {
	uid, ok := strings.CutPrefix(id, appsv1alpha1.PodOperationIDPrefix)
	if !ok {
		return nil
	}
	return x.s.Operation(types.UID(uid))
}

// startedSince reports whether a container was started after a time, and all are ready.
func (x *explainer) startedSince(at time.Time) bool {
	started := false
	for _, status := range x.pod.Status.ContainerStatuses {
		if !status.Ready || status.State.Running == nil {
			return false
		}
		started = started || status.State.Running.StartedAt.After(at)
	}
	return started && !at.IsZero()
}

// notControlled reports that PodOps holds nothing.
func (x *explainer) notControlled() {
	message := "the pod is not under PodOps: no rule holds it, and nothing takes it off traffic before it is deleted"
	if rules := x.s.RulesFor(x.pod); len(rules) > 0 {
		message += fmt.Sprintf("; PodTransitionRule %s would select it", rules[0].Name)
	}
	note := Reason{Situation: NotControlled, Message: message}
	label := appsv1alpha1.ControlLabelKey + "=" + appsv1alpha1.ControlLabelValue
	switch owner := x.s.Owner(x.pod); {
	case x.s.Template(owner) != nil:
		note.Commands = []Command{x.labelTemplate(owner)}
	case owner.Kind == "":
		note.Commands = []Command{{"put the pod under PodOps, without a readiness gate", x.kubectl("label pod %s --overwrite %s", x.pod.Name, label)}}
	default:
		note.Message += fmt.Sprintf("; the template of its %s %s decides about its label %s", owner.Kind, owner.Name, appsv1alpha1.ControlLabelKey)
	}
	x.note(note)
}

// terminating reports why a deleted pod still exists.
func (x *explainer) terminating() {
	if len(x.pod.Finalizers) == 0 {
		x.because(rankLater, Reason{
			Situation: Terminating, Message: "its kubelet stops the containers, and then removes the pod",
			Since: timeOrNil(x.state.Since), Commands: x.nodeCommands(),
		})
		return
	}
	var left []Finalizer
	for _, finalizer := range x.state.Finalizers {
		if finalizer.Present {
			left = append(left, x.finalizer(finalizer, "left"))
		}
	}
	x.because(rankDenied, Reason{
		Situation: TerminatingFinalizer, Since: timeOrNil(x.state.Since), Finalizers: left,
		Message: "finalizers keep it: " + strings.Join(x.pod.Finalizers, ", "), Commands: []Command{x.unstick()},
	})
}

// operations returns the operations of the pod.
func (x *explainer) operations() []Operation {
	var operations []Operation
	for _, operation := range x.state.Operations {
		shown := Operation{
			ID: operation.ID, Type: operation.Type, Phase: string(operation.Phase),
			Since: timeOrNil(operation.Since), Requested: timeOrNil(operation.Requested),
		}
		if user, known := lifecycle.ParseRequesters(x.pod.Annotations).Find(appsv1alpha1.OperatingLabelPrefix+"/"+operation.ID, x.pod.Labels); known {
			shown.By = fmt.Sprintf("%s (%s)", user.User, deferreddelete.MethodLabel)
		}
		if record := x.state.Delete; record != nil && operation.ID == appsv1alpha1.PodDeleteID {
			shown.By = strings.TrimSpace(fmt.Sprintf("%s (%s)", record.User, record.Method))
		}
		if podOperation := x.podOperation(operation.ID); podOperation != nil {
			shown.By = "PodOperation " + podOperation.Name
		}
		operations = append(operations, shown)
	}
	return operations
}

// summary returns the answer in one sentence.
func (x *explainer) summary() string {
	switch x.state.Phase {
	case podstate.PhaseTerminating:
		return "it is deleted, and ends"
	case podstate.PhaseFinished:
		return "it has ended (" + string(x.pod.Status.Phase) + ")"
	case podstate.PhaseNotControlled:
		return "it is not under PodOps"
	case podstate.PhaseAvailable:
		return "it is available, and nothing is requested of it"
	case podstate.PhaseOffline:
		return "a label keeps it off traffic"
	case podstate.PhaseUnavailable:
		return "it is not available, and no operation is the cause"
	default:
	}
	first := x.state.In(x.state.Phase)[0].Describe()
	switch x.state.Phase {
	case podstate.PhasePreCheck:
		serves := "serves"
		if !x.state.Available {
			serves = "is not available"
		}
		return first + " waits for its rules; the pod " + serves
	case podstate.PhasePreparing:
		return first + " is permitted; traffic goes off"
	case podstate.PhaseOperating:
		return first + " may run; the pod is off traffic"
	case podstate.PhasePostCheck:
		return first + " is over and waits for its PostCheck rules; the pod is off traffic"
	default:
		return first + " is over; traffic comes back"
	}
}

// kubectl returns a command line of kubectl in the namespace of the pod.
func (x *explainer) kubectl(format string, arguments ...any) string {
	return kubectl(x.pod.Namespace, format, arguments...)
}

func kubectl(namespace, format string, arguments ...any) string {
	return "kubectl -n " + namespace + " " + fmt.Sprintf(format, arguments...)
}

// podops returns a command line of the plugin in the namespace of the pod.
func (x *explainer) podops(format string, arguments ...any) string {
	return podops(x.pod.Namespace, format, arguments...)
}

// podops returns a command line of the plugin. kubectl takes no flags before the name of a plugin.
func podops(namespace, format string, arguments ...any) string {
	return "kubectl podops " + fmt.Sprintf(format, arguments...) + " -n " + namespace
}

// undo returns the command that cancels an operation.
func (x *explainer) undo(operation podstate.Operation) string {
	return x.kubectl("label pod %s %s/%s=%s", x.pod.Name, appsv1alpha1.UndoOperationTypeLabelPrefix, operation.ID, operation.Type)
}

func (x *explainer) unstick() Command {
	return Command{"list the repairs, and make them with --yes", x.podops("unstick pod/%s", x.pod.Name)}
}

func (x *explainer) nodeCommands() []Command {
	if x.pod.Spec.NodeName == "" {
		return nil
	}
	return []Command{{"see its node", "kubectl describe node " + x.pod.Spec.NodeName}}
}

func unreadable(s *clusterstate.Snapshot) []string {
	var lines []string
	for _, u := range s.Unreadable {
		lines = append(lines, u.Resource+": "+u.Reason)
	}
	return lines
}
