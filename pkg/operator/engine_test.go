package operator

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/utils/clock"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/telemetry/decisionlog"
)

// Any namespace can fill the disk of a decision log. A manager that ended then would end again after each restart.
func TestAFullDiskDoesNotEndTheManager(t *testing.T) {
	log := decisionlog.New(decisionlog.Options{Sample: 1}, clock.RealClock{})
	id := rule.RuleID{Rule: "mine"}
	log.Prepared(spec.Module{ID: id})
	nothing := func() (json.RawMessage, error) { return json.RawMessage(`{}`), nil }
	log.Observe(opa.Observation{Rule: id, Input: nothing, Output: nothing})
	var logged strings.Builder
	ctx, end := context.WithCancel(logr.NewContext(t.Context(), funcr.New(func(_, args string) { logged.WriteString(args) }, funcr.Options{})))
	defer end()
	if err := (decisionLogFile{log: log, path: "/dev/full"}).Start(ctx); err != nil {
		t.Errorf("the manager ends: %v", err)
	}
	if !strings.Contains(logged.String(), "no space left") {
		t.Errorf("logged: %s", logged.String())
	}
}
