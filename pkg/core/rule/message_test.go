package rule_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

func TestExplainNoRoom(t *testing.T) {
	for name, tc := range map[string]struct {
		maxUnavailable, minAvailable string
		capacity                     *rule.Capacity
		want                         string
	}{
		"the upper bound is reached": {
			maxUnavailable: "25%",
			capacity:       &rule.Capacity{Available: 9, Selected: 12, Desired: 12, MaxUnavailable: 3, MinAvailable: -1},
			want:           "9 of 12 pods are available; at least 9 must be (maxUnavailable 25%, at most 3 of 12 desired pods)",
		},
		"pods beyond the desired number are starting": {
			maxUnavailable: "25%",
			capacity:       &rule.Capacity{Available: 5, Selected: 8, Desired: 6, MaxUnavailable: 1, MinAvailable: -1},
			want:           "5 of 8 pods are available; at least 5 must be (maxUnavailable 25%, at most 1 of 6 desired pods)",
		},
		"the lower bound is reached": {
			minAvailable: "9",
			capacity:     &rule.Capacity{Available: 9, Selected: 12, Desired: 12, MaxUnavailable: -1, MinAvailable: 9},
			want:         "9 of 12 pods are available; at least 9 must be (minAvailable 9 of 12 desired)",
		},
		"only the lower of two bounds is reached": {
			maxUnavailable: "5", minAvailable: "9",
			capacity: &rule.Capacity{Available: 9, Selected: 12, Desired: 12, MaxUnavailable: 5, MinAvailable: 9},
			want:     "9 of 12 pods are available; at least 9 must be (minAvailable 9 of 12 desired)",
		},
		"both bounds are passed": {
			maxUnavailable: "2", minAvailable: "90%",
			capacity: &rule.Capacity{Available: 9, Selected: 12, Desired: 12, MaxUnavailable: 2, MinAvailable: 11},
			want: "9 of 12 pods are available; at least 10 must be (maxUnavailable 2, at most 2 of 12 desired pods); " +
				"at least 11 must be (minAvailable 90% of 12 desired)",
		},
		"the slots went to other pods": {
			maxUnavailable: "25%", minAvailable: "1",
			capacity: &rule.Capacity{Slots: 2, Available: 11, Selected: 12, Desired: 12, MaxUnavailable: 3, MinAvailable: 1},
			want: "waits its turn, the next 2 slots go to other pods: 11 of 12 pods are available; at least 9 must be " +
				"(maxUnavailable 25%, at most 3 of 12 desired pods)",
		},
		"the numbers are not known": {
			maxUnavailable: "25%",
			want:           "no more pods may become unavailable now",
		},
		"the numbers are not of this rule": {
			capacity: &rule.Capacity{MaxUnavailable: -1, MinAvailable: -1},
			want:     "no more pods may become unavailable now",
		},
	} {
		t.Run(name, func(t *testing.T) {
			entry := appsv1alpha1.TransitionRule{AvailablePolicy: &appsv1alpha1.AvailablePolicy{
				MaxUnavailableValue: bound(tc.maxUnavailable),
				MinAvailableValue:   bound(tc.minAvailable),
			}}
			if got := rule.Explain(rule.CodeNoRoom, entry, rule.Request{}, tc.capacity); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestExplainLabelMismatch(t *testing.T) {
	expression := func(operator metav1.LabelSelectorOperator, key string, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: key, Operator: operator, Values: values},
		}}
	}
	const none = "the labels of the pod do not match labelCheck.requires"
	for name, tc := range map[string]struct {
		requires *metav1.LabelSelector
		want     string
	}{
		"a label is missing": {
			requires: &metav1.LabelSelector{MatchLabels: map[string]string{"app.custom/ready": "true"}},
			want:     `label app.custom/ready is missing, "true" is required`,
		},
		"labels have other values, sorted by key": {
			requires: &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "b", "app": "web", "tier": "x"}},
			want:     `label tier is missing, "x" is required; label zone is "a", "b" is required`,
		},
		"In": {
			requires: expression(metav1.LabelSelectorOpIn, "zone", "d", "b", "c"),
			want:     `label zone is "a", "b", "c" or "d" is required`,
		},
		"NotIn": {
			requires: expression(metav1.LabelSelectorOpNotIn, "zone", "b", "a"),
			want:     `label zone is "a", "a" or "b" is forbidden`,
		},
		"Exists": {
			requires: expression(metav1.LabelSelectorOpExists, "tier"),
			want:     `label tier is missing, any value is required`,
		},
		"DoesNotExist": {
			requires: expression(metav1.LabelSelectorOpDoesNotExist, "zone"),
			want:     `label zone is "a", it must not be there`,
		},
		"the same twice": {
			requires: &metav1.LabelSelector{
				MatchLabels:      map[string]string{"zone": "b"},
				MatchExpressions: expression(metav1.LabelSelectorOpIn, "zone", "b").MatchExpressions,
			},
			want: `label zone is "a", "b" is required`,
		},
		"the labels match by now": {
			requires: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			want:     none,
		},
		"no selector": {want: none},
	} {
		t.Run(name, func(t *testing.T) {
			entry := appsv1alpha1.TransitionRule{LabelCheck: &appsv1alpha1.LabelCheck{Requires: tc.requires}}
			request := rule.Request{Pod: &rule.PodFact{Labels: map[string]string{"app": "web", "zone": "a"}}}
			if got := rule.Explain(rule.CodeLabelMismatch, entry, request, nil); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestExplainEveryCode(t *testing.T) {
	seen := map[string]rule.Code{}
	for _, code := range []rule.Code{
		rule.CodeLabelMismatch, rule.CodeNoRoom, rule.CodeUndefined,
		rule.CodeEvaluationFailed, rule.CodeCompileFailed, "SomethingNew",
		rule.CodeWebhookPending, rule.CodeWebhookProcessing, rule.CodeWebhookRejected, rule.CodeWebhookFailed,
	} {
		text := rule.Explain(code, appsv1alpha1.TransitionRule{}, rule.Request{}, nil)
		if other, ok := seen[text]; ok || text == "" {
			t.Errorf("%s and %s are both explained by %q", code, other, text)
		}
		seen[text] = code
	}
}

func TestExplainIsBoundedAndStable(t *testing.T) {
	requires := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for i := range 40 {
		requires.MatchLabels[fmt.Sprintf("key-%02d", i)] = strings.Repeat("\u00e9", i)
	}
	entry := appsv1alpha1.TransitionRule{LabelCheck: &appsv1alpha1.LabelCheck{Requires: requires}}
	request := rule.Request{Pod: &rule.PodFact{}}
	first := rule.Explain(rule.CodeLabelMismatch, entry, request, nil)
	if len(first) > 512 || !strings.HasSuffix(first, "...") {
		t.Errorf("got %d bytes: %s", len(first), first)
	}
	for cut := range 8 {
		requires.MatchLabels["a"] = strings.Repeat("x", cut)
		text := rule.Explain(rule.CodeLabelMismatch, entry, request, nil)
		if !utf8.ValidString(text) || len(text) > 512 {
			t.Errorf("%d bytes, valid UTF-8 %v: %s", len(text), utf8.ValidString(text), text)
		}
		if again := rule.Explain(rule.CodeLabelMismatch, entry, request, nil); again != text {
			t.Errorf("differs the second time:\n%s\n%s", text, again)
		}
	}
}

// bound is nil for an empty text.
func bound(text string) *intstr.IntOrString {
	if text == "" {
		return nil
	}
	value := intstr.Parse(text)
	return &value
}
