package rule_test

import (
	"testing"

	"github.com/podops-dev/podops/pkg/core/rule"
)

func TestCapacityMissing(t *testing.T) {
	for name, tc := range map[string]struct {
		capacity rule.Capacity
		want     int
	}{
		"no bound":                           {capacity: rule.Capacity{Desired: 5, MaxUnavailable: -1, MinAvailable: -1}},
		"slots are left":                     {capacity: rule.Capacity{Slots: 1, Available: 5, Desired: 5, MaxUnavailable: 1, MinAvailable: -1}},
		"just enough are available":          {capacity: rule.Capacity{Available: 4, Desired: 5, MaxUnavailable: 1, MinAvailable: -1}},
		"maxUnavailable is exceeded":         {capacity: rule.Capacity{Available: 2, Desired: 5, MaxUnavailable: 1, MinAvailable: -1}, want: 2},
		"more are reserved than available":   {capacity: rule.Capacity{Available: -1, Desired: 1, MaxUnavailable: 3, MinAvailable: -1}},
		"minAvailable is exceeded":           {capacity: rule.Capacity{Available: 2, Desired: 5, MaxUnavailable: -1, MinAvailable: 3}, want: 1},
		"the bound that is exceeded by more": {capacity: rule.Capacity{Available: 2, Desired: 5, MaxUnavailable: 2, MinAvailable: 4}, want: 2},
		"one bound is exceeded, one is not":  {capacity: rule.Capacity{Available: 2, Desired: 5, MaxUnavailable: 1, MinAvailable: 1}, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.capacity.Missing(); got != tc.want {
				t.Errorf("%d pods are missing, want %d", got, tc.want)
			}
		})
	}
}
