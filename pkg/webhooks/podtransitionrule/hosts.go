package podtransitionrule

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/remote"
)

// validateHosts denies addresses that the client refuses as they are written, such as numbers that
// some resolvers take for an address. Which addresses a name has, and which of them rules may reach,
// is known when they are dialled.
func validateHosts(object *appsv1alpha1.PodTransitionRule) field.ErrorList {
	var errs field.ErrorList
	for i, rule := range object.Spec.Rules {
		if rule.Webhook == nil {
			continue
		}
		path := rulesPath().Index(i).Child("webhook", "clientConfig")
		errs = append(errs, validateHost(rule.Webhook.ClientConfig.URL, path.Child("url"))...)
		if poll := rule.Webhook.ClientConfig.Poll; poll != nil {
			errs = append(errs, validateHost(poll.URL, path.Child("poll", "url"))...)
		}
	}
	return errs
}

func validateHost(address string, path *field.Path) field.ErrorList {
	if _, err := remote.ParseURL(address); err != nil {
		return field.ErrorList{field.Invalid(path, address, remote.AsFailure(err).Message)}
	}
	return nil
}
