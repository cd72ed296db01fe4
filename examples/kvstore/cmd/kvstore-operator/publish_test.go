package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

func TestTheHookHasTheURLOfTheSample(t *testing.T) {
	for flag, want := range map[string]string{
		"":                        "https://kvstore-operator.kvstore-system.svc/hooks/leadership",
		"https://127.0.0.1:9443":  "https://127.0.0.1:9443/hooks/leadership",
		"https://127.0.0.1:9443/": "https://127.0.0.1:9443/hooks/leadership",
	} {
		if got, err := (&hookOptions{url: flag}).hookURL("kvstore-system"); err != nil || got != want {
			t.Errorf("--hook-url=%q: want %s, got %s, %v", flag, want, got, err)
		}
	}
	if url, err := (&hookOptions{url: "http://127.0.0.1"}).hookURL("kvstore-system"); err == nil {
		t.Errorf("--hook-url=http://127.0.0.1 is accepted: %s", url)
	}
}

func TestTheLimitsOfTheHookAreValid(t *testing.T) {
	if err := limits().Validate(); err != nil {
		t.Error(err)
	}
}

// TestOnlyCallsOfTheHookGetItsCA has rules of every kind.
func TestOnlyCallsOfTheHookGetItsCA(t *testing.T) {
	const hook = "https://hook/hooks/leadership"
	rule := func(name, url, bundle string) appsv1alpha1.TransitionRule {
		return appsv1alpha1.TransitionRule{Name: name, Webhook: &appsv1alpha1.TransitionRuleWebhook{
			ClientConfig: appsv1alpha1.WebhookClientConfig{URL: url, CABundle: bundle},
		}}
	}
	other := appsv1alpha1.TransitionRule{Name: "labels", LabelCheck: &appsv1alpha1.LabelCheck{}}
	for sentence, tc := range map[string]struct {
		rules, want []appsv1alpha1.TransitionRule
		changed     bool
	}{
		"a rule without the CA gets it": {
			[]appsv1alpha1.TransitionRule{other, rule("a", hook, ""), rule("b", "https://other", "theirs")},
			[]appsv1alpha1.TransitionRule{other, rule("a", hook, "ca"), rule("b", "https://other", "theirs")}, true,
		},
		"a rule with an earlier CA gets the new":    {[]appsv1alpha1.TransitionRule{rule("a", hook, "old")}, []appsv1alpha1.TransitionRule{rule("a", hook, "ca")}, true},
		"a rule with the CA stays":                  {[]appsv1alpha1.TransitionRule{rule("a", hook, "ca")}, []appsv1alpha1.TransitionRule{rule("a", hook, "ca")}, false},
		"a path that begins as the hook is another": {[]appsv1alpha1.TransitionRule{rule("a", hook+"/x", "")}, []appsv1alpha1.TransitionRule{rule("a", hook+"/x", "")}, false},
		"no rule calls the hook":                    {[]appsv1alpha1.TransitionRule{other}, []appsv1alpha1.TransitionRule{other}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			object := &appsv1alpha1.PodTransitionRule{Spec: appsv1alpha1.PodTransitionRuleSpec{Rules: tc.rules}}
			if changed := trust(object, hook, "ca"); changed != tc.changed {
				t.Errorf("changed: %t", changed)
			}
			if diff := cmp.Diff(tc.want, object.Spec.Rules); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
