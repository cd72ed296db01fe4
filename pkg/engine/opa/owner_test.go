package opa_test

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/rule"
)

// ownedRequest returns a request for a pod of the Deployment web.
func ownedRequest() rule.Request {
	made := request(0, true)
	made.Pod.Owner = rule.Owner{Kind: "Deployment", Name: "web", UID: "d"}
	return made
}

// TestOwner shows what modules that read the owner find in it. Others have none.
func TestOwner(t *testing.T) {
	const whole = "package rule\n\ndeny contains {\"message\": \"m\", \"details\": input.owner}\n"
	known := rule.Environment{Workloads: map[types.UID]rule.Workload{"d": {Desired: 3, Revision: "5d4f", Paused: true}, "e": {Desired: 7}}}
	for name, tc := range map[string]struct {
		request rule.Request
		env     rule.Environment
		want    string
	}{
		"a Deployment":           {ownedRequest(), known, `{"desired":3,"kind":"Deployment","name":"web","paused":true,"revision":"5d4f","uid":"d"}`},
		"a pod without workload": {request(0, true), rule.Environment{}, `{"desired":1,"kind":"","name":"","paused":false,"revision":"","uid":""}`},
	} {
		if got := verdictFor(t, patient(), custom(t, whole), tc.env, tc.request); got.Details != tc.want {
			t.Errorf("%s: %s, want %s", name, got.Details, tc.want)
		}
	}
	without := custom(t, "package rule\n\ndeny contains sprintf(\"%d counts\", [count(input.counts)])\n")
	if got := verdictFor(t, patient(), without, known, ownedRequest()); got.Message != "4 counts" {
		t.Errorf("a module that does not read the owner: %+v", got)
	}
}

// TestUnknownWorkloadsWithhold shows that no pod passes a module that reads the owner while its numbers are not known.
func TestUnknownWorkloadsWithhold(t *testing.T) {
	reads := custom(t, "package rule\n\nallow if not input.owner.paused\n")
	got := verdictFor(t, patient(), reads, rule.Environment{Workloads: map[types.UID]rule.Workload{"other": {}}}, ownedRequest())
	if want := "the desired number of Deployment web is not known, and the module reads input.owner"; got.Outcome != 0 || got.Message != want {
		t.Errorf("%+v, want %q", got, want)
	}
	others := custom(t, "package rule\n\nallow if input.pod.owner.kind == \"Deployment\"\n")
	if got := verdictFor(t, patient(), others, rule.Environment{}, ownedRequest()); got.Outcome != rule.Passed {
		t.Errorf("a module that does not read it: %+v", got)
	}
}

// TestRecordedWithoutOwner shows that an input which was recorded for a module that does not read the owner is not replayed with
// one that does.
func TestRecordedWithoutOwner(t *testing.T) {
	input, err := json.Marshal(completed(map[string]any{}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = newEngine(t, patient()).Replay(t.Context(), custom(t, "package rule\n\nallow if not input.owner.paused\n"), input)
	if err == nil || !strings.Contains(err.Error(), "the input was recorded without input.owner") {
		t.Errorf("got %v", err)
	}
}
