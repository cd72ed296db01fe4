package audit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// events has events that differ in each field of a filter.
var events = Events{
	{User: "system:serviceaccount:podops-system:manager", Verb: "patch", Resource: "pods", Subresource: "status", Namespace: "shop", Name: "web-0", Code: 200},
	{User: "system:serviceaccount:podops-system:manager", Verb: "patch", Resource: "pods", Namespace: "shop", Name: "web-1", Code: 200},
	{User: "system:node:node-1", Verb: "delete", Resource: "pods", Namespace: "shop", Name: "db-0", Code: 200},
	{User: "alice", Verb: "update", Group: "apps", Resource: "deployments", Namespace: "test", Name: "web", Code: 403},
}

func TestWhere(t *testing.T) {
	tests := map[string]struct {
		filters []Filter
		want    Events
	}{
		"no filter selects everything":         {nil, events},
		"a user":                               {[]Filter{User("alice")}, events[3:]},
		"a service account":                    {[]Filter{ServiceAccount("podops-system", "manager")}, events[:2]},
		"verbs":                                {[]Filter{Verb("delete", "update")}, events[2:]},
		"the object is not its subresources":   {[]Filter{On("pods")}, events[1:3]},
		"a subresource is not the object":      {[]Filter{On("pods/status")}, events[:1]},
		"the object with all its subresources": {[]Filter{On("pods/*")}, events[:3]},
		"one of several targets":               {[]Filter{On("pods/status", "deployments")}, Events{events[0], events[3]}},
		"a namespace":                          {[]Filter{InNamespace("test")}, events[3:]},
		"a name is not a prefix":               {[]Filter{Named("web")}, events[3:]},
		"a prefix":                             {[]Filter{NamePrefix("web-")}, events[:2]},
		"a code":                               {[]Filter{Code(403, 409)}, events[3:]},
		"refused":                              {[]Filter{Refused}, events[3:]},
		"accepted":                             {[]Filter{Accepted}, events[:3]},
		"the opposite":                         {[]Filter{Not(Verb("patch"))}, events[2:]},
		"filters add up":                       {[]Filter{Verb("patch"), On("pods")}, events[1:2]},
		"nothing where filters exclude one another": {[]Filter{User("alice"), Verb("patch")}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, events.Where(tc.filters...)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if got := events.Count(tc.filters...); got != len(tc.want) {
				t.Errorf("count: want %d, got %d", len(tc.want), got)
			}
		})
	}
}

func TestCountBy(t *testing.T) {
	tests := map[string]struct {
		key  func(Event) string
		want []Group
	}{
		"users, the busiest first, then by name": {ByUser, []Group{
			{"system:serviceaccount:podops-system:manager", 2}, {"alice", 1}, {"system:node:node-1", 1},
		}},
		"targets": {ByTarget, []Group{
			{"delete pods", 1}, {"patch pods", 1}, {"patch pods/status", 1}, {"update deployments", 1},
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, events.CountBy(tc.key)); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
		})
	}
}
