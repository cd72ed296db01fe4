package dispatch

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podfields"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

// NewPost returns the request about the pods in a rule's task. A pod that waits with two ids is one
// resource. object returns the pod of a request; nil when it no longer exists.
func NewPost(
	id rule.RuleID, stage appsv1alpha1.TransitionStage, parameters []appsv1alpha1.WebhookParameter,
	post webhooktask.Post, object func(rule.Request) *corev1.Pod,
) *webhookclient.PostRequest {
	request := &webhookclient.PostRequest{
		TraceID: post.TraceID, Stage: string(stage), RuleName: id.Rule,
		Namespace: id.Ruleset.Namespace, PodTransitionRule: id.Ruleset.Name,
	}
	positions := map[types.UID]int{}
	for _, waiting := range post.Requests {
		request.OperationTypes = append(request.OperationTypes, waiting.Type)
		at, known := positions[waiting.Pod.UID]
		if !known {
			at = len(request.Resources)
			positions[waiting.Pod.UID] = at
			request.Resources = append(request.Resources, newResource(waiting.Pod, readParameters(parameters, object(waiting))))
		}
		if waiting.Cause != "" {
			request.Resources[at].Cause = string(waiting.Cause)
		}
	}
	slices.Sort(request.OperationTypes)
	request.OperationTypes = slices.Compact(request.OperationTypes)
	return request
}

// newResource returns a pod as calls contain it.
func newResource(pod *rule.PodFact, parameters map[string]string) webhookclient.Resource {
	resource := webhookclient.PodResource(pod.Name, string(pod.UID), parameters)
	if pod.Owner.Name != "" {
		resource.Owner = &webhookclient.ResourceOwner{Kind: pod.Owner.Kind, Name: pod.Owner.Name}
	}
	resource.Revision = pod.Revision.Current
	if pod.Revision.State != rule.RevisionUnknown {
		resource.RevisionState = string(pod.Revision.State)
	}
	resource.Labels = webhookclient.BoundedLabels(pod.Labels, isOfLifecycle)
	return resource
}

// isOfLifecycle reports whether a label belongs to PodOpsLifecycle and may change while a pod
// waits.
func isOfLifecycle(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return domain == lifecycleDomain || strings.HasSuffix(domain, "."+lifecycleDomain)
}

// lifecycleDomain ends the prefixes of all PodOpsLifecycle labels.
const lifecycleDomain = "podopslifecycle.kusionstack.io"

// readParameters returns the values that a rule sends with a pod. A field that the pod does not have is an
// empty string.
func readParameters(parameters []appsv1alpha1.WebhookParameter, pod *corev1.Pod) map[string]string {
	values := map[string]string{}
	for _, parameter := range parameters {
		values[parameter.Key] = parameter.Value
		if from := parameter.ValueFrom; from != nil && from.FieldRef != nil && pod != nil {
			values[parameter.Key], _ = podfields.Value(pod, from.FieldRef.FieldPath)
		}
	}
	return values
}
