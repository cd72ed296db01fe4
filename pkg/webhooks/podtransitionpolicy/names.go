package podtransitionpolicy

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/state/policyusers"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
)

const (
	// maxNamed is the number of users that a message names.
	maxNamed = 10

	// maxReviewed is the number of namespaces for which one message calls the API server.
	maxReviewed = 10
)

// MayRead reports whether a user may read the PodTransitionRules of a namespace, of every
// namespace when that is empty.
type MayRead func(ctx context.Context, user authenticationv1.UserInfo, namespace string) (bool, error)

// visible returns the first users that the requester may see. An unverified review may name any
// requester, so it sees no user.
func visible(ctx context.Context, mayRead MayRead, requester authenticationv1.UserInfo, users []policyusers.User) []policyusers.User {
	if !clientauth.Verified(ctx) {
		return nil
	}
	allowed := map[string]bool{}
	mayReadIn := func(namespace string) bool {
		known, called := allowed[namespace]
		if called || len(allowed) > maxReviewed {
			return known
		}
		may, err := mayRead(ctx, requester, namespace)
		if err != nil {
			ctrllog.FromContext(ctx).Error(err, "Authorizing the reader of a message", "user", requester.Username)
		}
		allowed[namespace] = err == nil && may
		return allowed[namespace]
	}
	var named []policyusers.User
	for _, user := range users {
		if len(named) == maxNamed {
			break
		}
		if mayReadIn("") || mayReadIn(user.Object.Namespace) {
			named = append(named, user)
		}
	}
	return named
}

// list names users, and counts all of them.
func list(named []policyusers.User, count int) string {
	if len(named) == 0 {
		return fmt.Sprintf("%d rules in namespaces whose rules are not shown to you", count)
	}
	texts := make([]string, 0, len(named))
	for _, user := range named {
		texts = append(texts, user.String())
	}
	text := strings.Join(texts, ", ")
	if more := count - len(named); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// ignoresUsers reports whether the owner of a policy accepts that rules lose it.
func ignoresUsers(policy *appsv1alpha1.PodTransitionPolicy) bool {
	return policy.Annotations[appsv1alpha1.IgnoreUsersAnnotationKey] == "true"
}

// heldBack returns the warning about ignored users.
func heldBack(rules, importers int) string {
	if rules == 0 {
		return fmt.Sprintf("rules of %d policies that import this PodTransitionPolicy hold back their pods until these policies are edited (annotation %s)",
			importers, appsv1alpha1.IgnoreUsersAnnotationKey)
	}
	return fmt.Sprintf("%d rules that use this PodTransitionPolicy hold back their pods until they are edited (annotation %s)",
		rules, appsv1alpha1.IgnoreUsersAnnotationKey)
}
