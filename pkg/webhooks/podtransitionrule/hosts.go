package podtransitionrule

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
)

// CheckURL returns why webhook rules may not call a URL, without a connection. Errors are
// *webhookclient.Failures, whose message is for users.
type CheckURL func(url string) error

// validateHosts denies addresses that the webhook client rejects in their written form: addresses
// that rules may not reach, and numbers that some resolvers take for an address. The addresses
// behind a name are checked when it is dialled. An address that a rule of this name has already
// passes, because an edit of another field must not fail on an address that the manager rejects
// since then.
func (v *Validator) validateHosts(object, old *appsv1alpha1.PodTransitionRule) field.ErrorList {
	known := map[string]appsv1alpha1.WebhookClientConfig{}
	for _, rule := range old.Spec.Rules {
		if rule.Webhook != nil {
			known[rule.Name] = rule.Webhook.ClientConfig
		}
	}
	var errs field.ErrorList
	for i, rule := range object.Spec.Rules {
		if rule.Webhook == nil {
			continue
		}
		path := rulesPath().Index(i).Child("webhook", "clientConfig")
		before, config := known[rule.Name], rule.Webhook.ClientConfig
		errs = append(errs, v.validateHost(config.URL, before.URL, path.Child("url"))...)
		if config.Poll != nil {
			errs = append(errs, v.validateHost(config.Poll.URL, pollURL(before), path.Child("poll", "url"))...)
		}
	}
	return errs
}

func (v *Validator) validateHost(address, before string, path *field.Path) field.ErrorList {
	if address == before {
		return nil
	}
	if err := v.checkURL(address); err != nil {
		return field.ErrorList{field.Invalid(path, address, webhookclient.AsFailure(err).Message)}
	}
	return nil
}

// pollURL returns the URL of the polls; empty without a poll.
func pollURL(config appsv1alpha1.WebhookClientConfig) string {
	if config.Poll == nil {
		return ""
	}
	return config.Poll.URL
}
