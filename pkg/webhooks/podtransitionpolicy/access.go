package podtransitionpolicy

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// NewMayRead returns a MayRead that calls the API server.
func NewMayRead(reviews authorizationclient.SubjectAccessReviewInterface) MayRead {
	return func(ctx context.Context, user authenticationv1.UserInfo, namespace string) (bool, error) {
		extra := map[string]authorizationv1.ExtraValue{}
		for key, value := range user.Extra {
			extra[key] = authorizationv1.ExtraValue(value)
		}
		review, err := reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: appsv1alpha1.GroupVersion().Group, Resource: "podtransitionrules", Verb: "list", Namespace: namespace,
			},
		}}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("reviewing whether user %s may list PodTransitionRules in namespace %q: %w", user.Username, namespace, err)
		}
		return review.Status.Allowed, nil
	}
}
