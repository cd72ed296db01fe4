package plan_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podops-dev/podops/pkg/resourceconsist/plan"
)

type item = plan.Item[string]

var errUnequal = errors.New("cannot compare")

// equal compares values; the value "broken" cannot be compared.
func equal(expected, current string) (bool, error) {
	if expected == "broken" {
		return false, errUnequal
	}
	return expected == current, nil
}

func on(id, value string) item {
	return item{ID: id, Name: id, Intent: plan.IntentOn, Value: value}
}

func off(id, value string) item {
	return item{ID: id, Name: id, Intent: plan.IntentOff, Value: value}
}

func there(id, value string) item { return item{ID: id, Name: id, Value: value} }

func TestBetween(t *testing.T) {
	for sentence, tc := range map[string]struct {
		expected, current []item
		want              plan.Diff[string]
	}{
		"nothing and nothing": {},
		"every list is sorted by id, for arguments in any order": {
			expected: []item{on("f", "new"), on("e", "new"), on("b", "1"), on("a", "1"), off("d", "0"), on("same", "1"), off("c", "0")},
			current:  []item{there("z", "1"), there("same", "1"), there("y", "1"), there("e", "old"), there("f", "old"), there("d", "1"), there("c", "1")},
			want: plan.Diff[string]{
				Off:       []item{off("c", "0"), off("d", "0")},
				Delete:    []item{there("y", "1"), there("z", "1")},
				Create:    []item{on("a", "1"), on("b", "1")},
				Update:    []item{on("e", "new"), on("f", "new")},
				Unchanged: []item{on("same", "1")},
			},
		},
		"an item that cannot be compared fails alone": {
			expected: []item{on("a", "broken"), on("b", "new")},
			current:  []item{there("a", "1"), there("b", "1")},
			want: plan.Diff[string]{
				Update: []item{on("b", "new")},
				Failed: []plan.Failure[string]{{Item: on("a", "broken"), Err: errUnequal}},
			},
		},
		"items without an id, as of pods without an address, are never merged": {
			expected: []item{{Name: "p"}, {Name: "q"}, on("r", "1")},
			want: plan.Diff[string]{
				Create: []item{on("r", "1")},
				Failed: []plan.Failure[string]{{Item: item{Name: "p"}, Err: plan.ErrNoID}, {Item: item{Name: "q"}, Err: plan.ErrNoID}},
			},
		},
		"a duplicate id is not changed": {
			expected: []item{{ID: "a", Name: "p"}, {ID: "a", Name: "q"}},
			want: plan.Diff[string]{
				Failed: []plan.Failure[string]{{Item: item{ID: "a", Name: "p"}, Err: plan.ErrDuplicate}, {Item: item{ID: "a", Name: "q"}, Err: plan.ErrDuplicate}},
			},
		},
		"an unexpected item is deleted once, however often it is listed": {
			current: []item{there("a", "1"), there("a", "1")},
			want:    plan.Diff[string]{Delete: []item{there("a", "1")}},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			got := plan.Between(tc.expected, tc.current, equal)
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("diff (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTrafficOf(t *testing.T) {
	for sentence, tc := range map[string]struct {
		expected, current []item
		want              plan.State
	}{
		"there, and as expected on":                      {[]item{on("p", "1")}, []item{there("p", "1")}, plan.On},
		"there, and as expected off":                     {[]item{off("p", "0")}, []item{there("p", "0")}, plan.Off},
		"there, as expected, without an intent":          {[]item{{ID: "p", Name: "p", Value: "1"}}, []item{there("p", "1")}, plan.On},
		"about to be off":                                {[]item{off("p", "0")}, []item{there("p", "1")}, plan.Unconfirmed},
		"about to be on":                                 {[]item{on("p", "1")}, []item{there("p", "0")}, plan.Unconfirmed},
		"not there, and about to be created":             {[]item{on("p", "1")}, nil, plan.Unconfirmed},
		"not there, and should take none":                {[]item{off("p", "0")}, nil, plan.Off},
		"neither there nor expected":                     {nil, nil, plan.Off},
		"still there":                                    {nil, []item{there("p", "1")}, plan.Unconfirmed},
		"not there beside an unattributed item":          {nil, []item{{ID: "10.0.0.1"}}, plan.Unconfirmed},
		"one port on, one about to be on":                {[]item{{ID: "p1", Name: "p", Value: "1"}, {ID: "p2", Name: "p", Value: "1"}}, []item{{ID: "p1", Name: "p", Value: "1"}}, plan.Unconfirmed},
		"the old pod of that name is still there":        {[]item{off("p", "0")}, []item{{ID: "older", Name: "p", Value: "1"}}, plan.Unconfirmed},
		"cannot be compared":                             {[]item{on("p", "broken")}, []item{there("p", "1")}, plan.Unconfirmed},
		"an expected item without a name does not count": {[]item{{ID: "x", Value: "1"}}, []item{{ID: "x", Value: "1"}}, plan.Off},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := plan.ClassifyTraffic(plan.Between(tc.expected, tc.current, equal)).Of("p"); got != tc.want {
				t.Errorf("traffic = %v, want %v", got, tc.want)
			}
		})
	}
	if got := (plan.Traffic{}).Of("p"); got != plan.Unconfirmed {
		t.Errorf("a provider that did not answer confirms %v", got)
	}
}
