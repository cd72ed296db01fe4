package pod

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// requester returns the user of a request as the requester of the operations that begin with its labels.
func requester(req admission.Request, pod *corev1.Pod, identity string) appsv1alpha1.LabelRequester {
	user := appsv1alpha1.LabelRequester{Actor: string(deferreddelete.ActorClient), User: text.Prefix(req.UserInfo.Username, lifecycle.MaxUserBytes)}
	user.Groups, user.GroupsTruncated = lifecycle.BoundGroups(req.UserInfo.Groups)
	actor := deferreddelete.ClassifyActor(req.UserInfo.Username, req.UserInfo.Groups, deferreddelete.MethodLabel, pod, identity)
	if actor == deferreddelete.ActorManager || actor == deferreddelete.ActorController {
		user.Actor = string(actor)
	}
	return user
}

// requesters returns the entries of a pod after a request of the user, with the labels of after. Entries from before the pod
// came under PodOps count for nothing: the user who sets its control label requests its operations.
func requesters(old *corev1.Pod, after map[string]string, user appsv1alpha1.LabelRequester) lifecycle.Requesters {
	if !appsv1alpha1.IsControlled(after) {
		return nil
	}
	if !appsv1alpha1.IsControlled(old.Labels) {
		return lifecycle.Requesters{}.Update(nil, after, user)
	}
	return lifecycle.ParseRequesters(old.Annotations).Update(old.Labels, after, user)
}

// requestersChange returns the change of the annotation that gives a pod these entries in place of those in the request.
func requestersChange(requested *corev1.Pod, entries lifecycle.Requesters) map[string]any {
	key, value := appsv1alpha1.RequestersAnnotationKey, entries.Encode()
	switch written, has := requested.Annotations[key]; {
	case requested.DeletionTimestamp != nil: // nothing is changed any more
		return nil
	case value != "" && value != written:
		return map[string]any{key: value}
	case value == "" && has:
		return map[string]any{key: nil}
	default:
		return nil
	}
}
