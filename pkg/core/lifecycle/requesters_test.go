package lifecycle_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
)

func TestBoundGroups(t *testing.T) {
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprintf("group-%02d", i)
	}
	long := []string{strings.Repeat("a", 600), strings.Repeat("b", 600)}
	for name, tc := range map[string]struct {
		groups    []string
		want      []string
		truncated bool
	}{
		"no groups":                     {},
		"sorted, each once":             {groups: []string{"sre", "dev", "sre"}, want: []string{"dev", "sre"}},
		"the first 32":                  {groups: many, want: many[:32], truncated: true},
		"1 KiB":                         {groups: long, want: long[:1], truncated: true},
		"none with a newline":           {groups: []string{"dev\nsre"}, truncated: true},
		"a group is as long as in JSON": {groups: []string{strings.Repeat("<", 600)}, truncated: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, truncated := lifecycle.BoundGroups(tc.groups)
			if diff := cmp.Diff(tc.want, got); diff != "" || truncated != tc.truncated {
				t.Errorf("got %v, truncated %v; -want +got:\n%s", got, truncated, diff)
			}
		})
	}
}

// A user is the requester of exactly the operations that a request of the user began, until the label or its type changes,
// in any order of requests.
func TestRequestersFollowTheLabels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var entries lifecycle.Requesters
		labels, began := map[string]string{}, map[string]string{}
		for step := range 20 {
			next := maps.Clone(labels)
			user := rapid.SampledFrom([]string{"jane", "joe"}).Draw(t, "user")
			for _, id := range []string{"a", "b"} {
				key, kind := appsv1alpha1.OperatingLabelPrefix+"/"+id, appsv1alpha1.OperationTypeLabelPrefix+"/"+id
				switch rapid.SampledFrom([]string{"keep", "begin", "end", "change the type"}).Draw(t, id) {
				case "begin":
					next[key], next[kind] = fmt.Sprint(step), "update"
					began[key] = user
				case "end":
					delete(next, key)
					delete(next, kind)
					delete(began, key)
				case "change the type":
					if _, runs := next[key]; runs {
						next[kind] = fmt.Sprint("type-", step)
						began[key] = user
					}
				}
			}
			entries = entries.Update(labels, next, appsv1alpha1.LabelRequester{Actor: "Client", User: user})
			labels = next
			parsed := lifecycle.ParseRequesters(map[string]string{appsv1alpha1.RequestersAnnotationKey: entries.Encode()})
			got := map[string]string{}
			for key := range parsed {
				if entry, valid := parsed.Find(key, labels); valid {
					got[key] = entry.User
				}
			}
			if diff := cmp.Diff(began, got); diff != "" {
				t.Fatalf("requesters after step %d: -want +got:\n%s", step, diff)
			}
			if entries.Forged(parsed, labels) || parsed.Forged(entries, labels) {
				t.Fatalf("step %d: the entries that were written count as forged", step)
			}
		}
	})
}

func TestRequestersGoWithTheirLabels(t *testing.T) {
	labels := map[string]string{appsv1alpha1.OperatingLabelPrefix + "/a": "1", appsv1alpha1.ToDeleteLabelKey: "true"}
	entries := lifecycle.Requesters{}.Update(nil, labels, appsv1alpha1.LabelRequester{Actor: "Client", User: "jane"})
	want := `{"collaset.kusionstack.io/to-delete":{"value":"true","actor":"Client","user":"jane"}}`
	if got := entries.Change(map[string]string{appsv1alpha1.ToDeleteLabelKey: "true"}); got == nil || *got != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if got := entries.Change(nil); got != nil {
		t.Errorf("got %s without labels", *got)
	}
	forged := lifecycle.Requesters{appsv1alpha1.ToDeleteLabelKey: {Value: "true", Actor: "Client", User: "mallory"}}
	if !forged.Forged(entries, labels) {
		t.Error("another user counts as the requester")
	}
}
