package pod

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/surge"
	"github.com/podops-dev/podops/pkg/runtime/text"
	"github.com/podops-dev/podops/pkg/state/replicasetpods"
	"github.com/podops-dev/podops/pkg/webhooks/review"
)

// Bounds of a message.
const (
	// maxReasons bounds the rules that a message names.
	maxReasons = 3

	// maxReasonBytes bounds the reason of one rule.
	maxReasonBytes = 300
)

// CauseHeld is the cause of a response with 429 to the request of a client. It never changes.
const CauseHeld metav1.CauseType = "PodOpsHeld"

// ended is the end of a wait: the response, and the reason for the metric.
type ended struct {
	response admission.Response
	outcome  deferreddelete.Outcome
	reason   deferreddelete.Reason
}

// await begins the lifecycle of a request's pod, and returns once the pod is prepared or its rules
// withhold it, or after a while. A user with a held request for another pod of the owner waits for nothing.
func (d *reviewer) await(
	ctx context.Context, req admission.Request, reviewed deferreddelete.Review, request deferreddelete.Request, reason deferreddelete.Reason,
) ended {
	pod := reviewed.Pod
	key := waitKey{uid: string(pod.UID), user: request.User}
	if response, ok := d.Waits.heldBefore(key, request.Method); ok {
		return ended{response, deferreddelete.Hold, reason}
	}
	if other := d.unrepeated(ctx, pod, request.User); other != nil {
		why := fmt.Sprintf("%s has requested the removal of pod %s of the same owner, which is pending", text.Line(request.User, maxReasonBytes), other.Name)
		return refused(request.Method, why, "Repeat that request, or wait until it lapses", deferreddelete.ReasonAnother)
	}
	repeated := deferreddelete.IsRequestedBy(pod, request.User)
	leave, ok := d.Waits.enter(request.User, pod.Namespace, key.uid, len(req.Object.Raw)+len(req.OldObject.Raw), repeated)
	if !ok {
		if repeated { // the pod keeps its place
			d.Deferrer.Defer(client.ObjectKeyFromObject(pod), pod.UID, request)
		}
		return refused(request.Method, "too many requests of the user or in the namespace wait already", "Repeat it", deferreddelete.ReasonBusy)
	}
	defer leave()
	if before := d.Waits.refusal(key); before.Refused && before.Age < deferreddelete.MaxLapse {
		request.Interval = before.Age
	}
	d.Waits.answers.Remove(key)
	d.Deferrer.Defer(client.ObjectKeyFromObject(pod), pod.UID, request)
	end := d.poll(ctx, reviewed, request, reason)
	if end.outcome == deferreddelete.Hold {
		if ctx.Err() != nil && !d.Waits.waitsAnother(key.uid) {
			d.Deferrer.Ended(client.ObjectKeyFromObject(pod), pod.UID, deferreddelete.LapseAbandoned)
		}
		d.Waits.hold(pod.Namespace, key, request.Method, end.response)
	}
	return end
}

// poll looks at the pod in the cache until there is an answer to the request.
func (d *reviewer) poll(ctx context.Context, reviewed deferreddelete.Review, request deferreddelete.Request, reason deferreddelete.Reason) ended {
	began := d.Waits.clock.Now()
	ticker := d.Waits.clock.NewTicker(pollInterval)
	defer ticker.Stop()
	bound := d.Waits.bound(string(reviewed.Pod.UID))
	known := false // the cache has the pod: it may be behind the API server
	seen := ""     // the last version of the pod, on which alone the answer depends
	for {
		pod := &corev1.Pod{}
		err := d.Reader.Get(ctx, client.ObjectKeyFromObject(reviewed.Pod), pod)
		same := err == nil && pod.UID == reviewed.Pod.UID
		if !same && known {
			return d.vanished(ctx, reviewed.Pod)
		}
		if same && pod.ResourceVersion != seen {
			known, seen, reviewed.Pod = true, pod.ResourceVersion, pod
			if decision := deferreddelete.Decide(reviewed); decision.Outcome == deferreddelete.Allow {
				return ended{admission.Allowed(""), deferreddelete.Allow, decision.Reason}
			}
			if why := verdict(pod); why != "" && !request.Supersedes(pod) {
				return refused(request.Method, why, withheldAdvice(pod, request.Method), reason)
			}
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return preparing(reviewed.Pod, request.Method, reason)
		}
		if d.Waits.clock.Since(began) >= bound {
			ctrllog.FromContext(ctx).V(1).Info("A request has waited for too long", "pod", client.ObjectKeyFromObject(pod), "waited", bound)
			return preparing(reviewed.Pod, request.Method, reason)
		}
	}
}

// vanished answers the request for a pod that has left the cache. A pod that is not under PodOps any more passes.
// For one that is gone the answer is that of the API server, which may have another pod of the name by now.
func (d *reviewer) vanished(ctx context.Context, pod *corev1.Pod) ended {
	current := &corev1.Pod{}
	err := d.APIReader.Get(ctx, client.ObjectKeyFromObject(pod), current)
	if err == nil && current.UID == pod.UID || err != nil && !apierrors.IsNotFound(err) {
		return ended{admission.Allowed(""), deferreddelete.Allow, deferreddelete.ReasonNotControlled}
	}
	response := admission.Denied(fmt.Sprintf("pod %s with the UID %s is gone", pod.Name, pod.UID))
	response.Result.Code, response.Result.Reason = http.StatusNotFound, metav1.StatusReasonNotFound
	return ended{response, deferreddelete.Allow, deferreddelete.ReasonOtherPod}
}

// unrepeated returns the pod for which the user has to repeat a request first; nil for no pod, and without the
// cache.
func (d *reviewer) unrepeated(ctx context.Context, pod *corev1.Pod, user string) *corev1.Pod {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return nil
	}
	list := &corev1.PodList{}
	err := d.Reader.List(ctx, list, client.InNamespace(pod.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{replicasetpods.ControllerUIDField: string(controller.UID)})
	if err != nil {
		return nil
	}
	siblings := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		siblings[i] = &list.Items[i]
	}
	requester := deferreddelete.Requester{
		User: user, Wait: d.Waits.wait,
		Refusal: func(sibling *corev1.Pod) deferreddelete.Refusal {
			return d.Waits.refusal(waitKey{uid: string(sibling.UID), user: user})
		},
		Withheld: func(sibling *corev1.Pod) bool { return verdict(sibling) != "" },
	}
	return requester.Unrepeated(pod, siblings, d.Waits.clock.Now())
}

// verdict returns why rules withhold a pod whose delete waits, empty while that is not known.
func verdict(pod *corev1.Pod) string {
	if _, waits := pod.Labels[appsv1alpha1.PreCheckLabelPrefix+"/"+appsv1alpha1.PodDeleteID]; !waits {
		return ""
	}
	var reasons []string
	for _, withheld := range podstate.WithheldBy(pod.Annotations) {
		if withheld.Stage != appsv1alpha1.StagePreCheck || len(reasons) == maxReasons {
			continue
		}
		reasons = append(reasons, fmt.Sprintf("%s/%s withholds it (%s: %s)",
			withheld.Ruleset, withheld.Rule, withheld.Code, text.Line(withheld.Message, maxReasonBytes)))
	}
	return strings.Join(reasons, "; ")
}

// noun returns what a request is.
func noun(method deferreddelete.Method) string {
	if method == deferreddelete.MethodEviction {
		return "eviction"
	}
	return "delete"
}

func held(message string, reason deferreddelete.Reason) ended {
	return ended{review.TooManyRequests(message), deferreddelete.Hold, reason}
}

// refused is the end of a client's request: the message of its response has why it is held and what the client can
// do, and the cause has why alone, for clients that know what to do.
func refused(method deferreddelete.Method, why, advice string, reason deferreddelete.Reason) ended {
	end := held(fmt.Sprintf("PodOps holds this %s: %s. %s", noun(method), why, advice), reason)
	end.response.Result.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: CauseHeld, Message: why}}}
	return end
}

// withheldAdvice returns what the client of a pod that rules withhold can do.
func withheldAdvice(pod *corev1.Pod, method deferreddelete.Method) string {
	surging := ""
	if surge.Surges(pod) {
		surging = "Its Deployment starts another pod, and this one may go once that is available. "
	}
	return fmt.Sprintf("%sIt is not carried out later. %s repeats it; or have the pod deleted once its rules permit it: "+
		"kubectl label pod %s -n %s %s=true, or a PodOperation", surging, repeating(method), pod.Name, pod.Namespace, appsv1alpha1.ToDeleteLabelKey)
}

// preparing is the end of a request for a pod that is not prepared in time.
func preparing(pod *corev1.Pod, method deferreddelete.Method, reason deferreddelete.Reason) ended {
	why := fmt.Sprintf("pod %s is being prepared, and its traffic goes off", pod.Name)
	if pending, waits := lifecycle.FindPending(lifecycle.NewPodFacts(pod)); waits {
		why = fmt.Sprintf("pod %s is being prepared, and %s", pod.Name, text.Line(pending.Text, maxReasonBytes))
	}
	advice := fmt.Sprintf("Repeat the request within %s, as %s does, or its traffic goes on again",
		duration.HumanDuration(deferreddelete.MinLapse), repeating(method))
	return refused(method, why, advice, reason)
}

// repeating returns the command that repeats requests.
func repeating(method deferreddelete.Method) string {
	if method == deferreddelete.MethodEviction {
		return "kubectl podops drain"
	}
	return "kubectl podops delete"
}
