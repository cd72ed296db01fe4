package rule_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

func TestExplainWebhook(t *testing.T) {
	failed := func(class, message string) rule.Task {
		return rule.Task{State: rule.TaskFailed, Class: class, Message: message}
	}
	for name, tc := range map[string]struct {
		code rule.Code
		task rule.Task
		want string
	}{
		"not called":          {code: rule.CodeWebhookPending, want: "the service has not been called yet"},
		"called":              {code: rule.CodeWebhookPending, task: rule.Task{State: rule.TaskCalling}, want: "the service is being called and has not answered yet"},
		"worked on":           {code: rule.CodeWebhookProcessing, task: rule.Task{State: rule.TaskPolling}, want: "the approval is pending at the service"},
		"worked on, in words": {code: rule.CodeWebhookProcessing, task: rule.Task{State: rule.TaskPolling, Message: "2 of 5"}, want: "the approval is pending at the service: 2 of 5"},
		"rejected":            {code: rule.CodeWebhookRejected, task: failed("Rejected", "not on a Friday"), want: "the service rejected the pod, and is called again later: not on a Friday"},
		"stopped":             {code: rule.CodeWebhookRejected, task: failed("Stopped", ""), want: "the service gave up, and is called again later"},
		"expired":             {code: rule.CodeWebhookRejected, task: failed("Expired", "no end within 1m0s"), want: "the service took too long, and is called again later: no end within 1m0s"},
		"failed":              {code: rule.CodeWebhookFailed, task: failed("Timeout", "no answer within 10 s"), want: "the call of the service failed (Timeout), and is repeated later: no answer within 10 s"},
		"more than one line":  {code: rule.CodeWebhookProcessing, task: rule.Task{Message: "\x1b[31mred\r\n\u2028Warning\tx\x00 "}, want: `the approval is pending at the service: \x1b[31mred Warning x\x00`},
	} {
		t.Run(name, func(t *testing.T) {
			request := rule.Request{Task: tc.task}
			got := rule.Explain(tc.code, appsv1alpha1.TransitionRule{}, request, nil)
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			// A time in the text would cause another event and another status each time.
			request.Task.RetryAt, request.Task.RetryDue = time.Unix(1, 0), true
			if later := rule.Explain(tc.code, appsv1alpha1.TransitionRule{}, request, nil); later != got {
				t.Errorf("with another time it is: %s", later)
			}
		})
	}
}

func TestExplainWebhookIsBounded(t *testing.T) {
	for _, message := range []string{strings.Repeat("\u00e9", rule.MaxMessageBytes), strings.Repeat("\xff", rule.MaxMessageBytes)} {
		request := rule.Request{Task: rule.Task{State: rule.TaskFailed, Class: "Rejected", Message: message}}
		got := rule.Explain(rule.CodeWebhookRejected, appsv1alpha1.TransitionRule{}, request, nil)
		if len(got) > rule.MaxMessageBytes || !utf8.ValidString(got) {
			t.Errorf("%d bytes, valid %v", len(got), utf8.ValidString(got))
		}
	}
}
