package render_test

import (
	"strings"
	"testing"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

func TestWebhookRule(t *testing.T) {
	parameters := []appsv1alpha1.WebhookParameter{{Key: "secret-key", Value: "secret-value"}, fieldParameter("ip", "status.podIP")}
	// The key is the name of the golden file, with spaces.
	for name, rule := range map[string]appsv1alpha1.TransitionRule{
		"webhook": {
			Webhook: &appsv1alpha1.TransitionRuleWebhook{ClientConfig: receiver("https://secret.example.com")},
		},
		"webhook with poll": {
			Webhook: &appsv1alpha1.TransitionRuleWebhook{
				ClientConfig: polled("https://secret.example.com", "https://secret.example.com/task"),
				Parameters:   parameters,
			},
		},
		"webhook ignore": {
			Webhook: &appsv1alpha1.TransitionRuleWebhook{
				ClientConfig:  receiver("https://secret.example.com"),
				FailurePolicy: appsv1alpha1.FailurePolicyIgnore,
			},
		},
		"webhook filter and conditions": {
			Conditions: []string{"update", "delete"},
			Filter:     &appsv1alpha1.TransitionRuleFilter{LabelSelector: matchLabels("canary", "true")},
			Webhook:    &appsv1alpha1.TransitionRuleWebhook{ClientConfig: receiver("https://secret.example.com")},
		},
		"webhook post check": {
			Stage:   appsv1alpha1.StagePostCheck,
			Webhook: &appsv1alpha1.TransitionRuleWebhook{ClientConfig: receiver("https://secret.example.com")},
		},
		"webhook dry run": {
			Enforcement: appsv1alpha1.EnforcementDryRun,
			Webhook:     &appsv1alpha1.TransitionRuleWebhook{ClientConfig: receiver("https://secret.example.com")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			rule.Name = "approved"
			checkRule(t, name, rule, nil)
			// A decision log must not have the address and the body of the calls.
			if text := source(t, rule); strings.Contains(text, "secret") {
				t.Errorf("the module has the address or the body of the calls:\n%s", text)
			}
		})
	}
}

func receiver(address string) appsv1alpha1.WebhookClientConfig {
	return appsv1alpha1.WebhookClientConfig{URL: address}
}

func polled(address, poll string) appsv1alpha1.WebhookClientConfig {
	return appsv1alpha1.WebhookClientConfig{URL: address, Poll: &appsv1alpha1.WebhookPoll{URL: poll}}
}

func fieldParameter(key, path string) appsv1alpha1.WebhookParameter {
	return appsv1alpha1.WebhookParameter{
		Key: key, ValueFrom: &appsv1alpha1.ParameterSource{FieldRef: &appsv1alpha1.FieldRef{FieldPath: path}},
	}
}
