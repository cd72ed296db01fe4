package webhooktask_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

func TestRuleOfAWebhook(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	base := webhooktask.Rule{Generation: 3, Interval: 5 * time.Second, Timeout: time.Hour, RejectionRetry: 15 * time.Second, States: 32}
	for name, tc := range map[string]struct {
		poll  *appsv1alpha1.WebhookPoll
		rules int
		want  func(*webhooktask.Rule)
	}{
		"without poll": {rules: 1, want: func(*webhooktask.Rule) {}},
		"with poll, nothing filled in": {
			poll: &appsv1alpha1.WebhookPoll{}, rules: 1, want: func(r *webhooktask.Rule) { r.Polls = true },
		},
		"with everything": {
			poll:  &appsv1alpha1.WebhookPoll{RawQueryKey: "job", IntervalSeconds: number(1), TimeoutSeconds: number(3600)},
			rules: 1,
			want: func(r *webhooktask.Rule) {
				r.Polls, r.QueryKey, r.Interval, r.Timeout = true, "job", time.Second, time.Hour
			},
		},
		"with numbers that got around admission": {
			poll:  &appsv1alpha1.WebhookPoll{IntervalSeconds: number(0), TimeoutSeconds: number(1 << 62)},
			rules: 1,
			want:  func(r *webhooktask.Rule) { r.Polls, r.Timeout = true, 7*24*time.Hour },
		},
		"among few others":  {rules: 4, want: func(*webhooktask.Rule) {}},
		"among many others": {rules: 64, want: func(r *webhooktask.Rule) { r.States = 2 }},
		"counted wrongly":   {rules: 0, want: func(*webhooktask.Rule) {}},
	} {
		t.Run(name, func(t *testing.T) {
			want := base
			tc.want(&want)
			webhook := appsv1alpha1.TransitionRuleWebhook{ClientConfig: appsv1alpha1.WebhookClientConfig{Poll: tc.poll}}
			if diff := cmp.Diff(want, webhooktask.NewRule(3, webhook, tc.rules)); diff != "" {
				t.Errorf("rule (-want +got):\n%s", diff)
			}
		})
	}
}
