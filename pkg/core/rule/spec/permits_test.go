package spec_test

import (
	"testing"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

func TestPermitsNone(t *testing.T) {
	for sentence, tc := range map[string]struct {
		policy *appsv1alpha1.AvailablePolicy
		pods   int
		want   string
	}{
		"no policy":                          {pods: 3},
		"one may be unavailable":             {policy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound(1)}, pods: 1},
		"a percentage rounds down to one":    {policy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound("1%")}, pods: 3},
		"none may be unavailable":            {policy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound("0%")}, pods: 3, want: "has maxUnavailable 0%"},
		"as many must be available":          {policy: &appsv1alpha1.AvailablePolicy{MinAvailableValue: bound(3)}, pods: 3, want: "has minAvailable 3 with 3 pods"},
		"more must be available":             {policy: &appsv1alpha1.AvailablePolicy{MinAvailableValue: bound(4)}, pods: 3, want: "has minAvailable 4 with 3 pods"},
		"fewer must be available":            {policy: &appsv1alpha1.AvailablePolicy{MinAvailableValue: bound(2)}, pods: 3},
		"a percentage rounds up to all":      {policy: &appsv1alpha1.AvailablePolicy{MinAvailableValue: bound("67%")}, pods: 3, want: "has minAvailable 67% with 3 pods"},
		"a percentage that leaves one":       {policy: &appsv1alpha1.AvailablePolicy{MinAvailableValue: bound("66%")}, pods: 3},
		"all, of a number that is not known": {policy: &appsv1alpha1.AvailablePolicy{MinAvailableValue: bound("100%")}, want: "has minAvailable 100%"},
		"a count, of a number not known":     {policy: &appsv1alpha1.AvailablePolicy{MinAvailableValue: bound(3)}},
		"the stricter of two bounds": {
			policy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound(1), MinAvailableValue: bound(3)}, pods: 3, want: "has minAvailable 3 with 3 pods",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := spec.PermitsNone(tc.policy, tc.pods); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPermitsAll(t *testing.T) {
	for sentence, tc := range map[string]struct {
		policy *appsv1alpha1.AvailablePolicy
		pods   int
		want   string
	}{
		"no policy":                        {pods: 3},
		"fewer":                            {policy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound(2)}, pods: 3},
		"as many as there are":             {policy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound(3)}, pods: 3, want: "permits all of 3 pods at once: maxUnavailableValue is 3"},
		"a count that may be a percentage": {policy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound(25)}, pods: 3, want: `permits all of 3 pods at once: maxUnavailableValue is 25; a percentage is written "25%"`},
		"more than a percentage has":       {policy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound(101)}, pods: 3, want: "permits all of 3 pods at once: maxUnavailableValue is 101"},
		"all of them, as a percentage":     {policy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound("100%")}, pods: 3},
		"one of one":                       {policy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound(1)}, pods: 1},
		"another bound that limits them":   {policy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound(3), MinAvailableValue: bound(1)}, pods: 3},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := spec.PermitsAll(tc.policy, tc.pods); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
