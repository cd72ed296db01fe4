package policytest

import "testing"

func TestRows(t *testing.T) {
	for want, numbers := range map[string][]int{
		"row 11":               {11},
		"rows 11-12":           {11, 12},
		"rows 3, 11, 14-16":    {3, 11, 14, 15, 16},
		"rows 3-4, 11, 14, 16": {3, 4, 11, 14, 16},
	} {
		if got := rows(numbers); got != want {
			t.Errorf("%v: got %q, want %q", numbers, got, want)
		}
	}
}
