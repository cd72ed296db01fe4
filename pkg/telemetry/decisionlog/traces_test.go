package decisionlog_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/tracing"
	"github.com/podops-dev/podops/pkg/telemetry/decisionlog"
)

// tracer gives the pods with UIDs "0" and "2" a trace, and collects evaluations by their decision.
type tracer struct {
	evaluations map[string]tracing.Evaluation
	of          map[string][]string
}

func (tr *tracer) Lifecycles(requests []rule.Request) []tracing.Lifecycle {
	var traced []tracing.Lifecycle
	for _, request := range slices.Backward(requests) {
		if uid := request.Pod.UID; uid != "1" {
			traced = append(traced, tracing.Lifecycle{Namespace: "shop", UID: uid, ID: request.ID, Trace: trace.TraceID{uid[0]}})
		}
	}
	return traced
}

func (tr *tracer) Evaluated(evaluation tracing.Evaluation, of []tracing.Lifecycle) {
	tr.evaluations[evaluation.Decision] = evaluation
	for _, lifecycle := range of {
		tr.of[evaluation.Decision] = append(tr.of[evaluation.Decision], lifecycle.Trace.String())
	}
	slices.Sort(tr.of[evaluation.Decision])
}

// TestDecisionsAreJoinedWithTraces shows that a decision has the traces of its requests, that its span has the id of the
// decision, and that the log can be replayed.
func TestDecisionsAreJoinedWithTraces(t *testing.T) {
	traces := &tracer{evaluations: map[string]tracing.Evaluation{}, of: map[string][]string{}}
	log := logged(t, decisionlog.Options{Sample: 1, Tracer: traces})
	first, third := trace.TraceID{'0'}.String(), trace.TraceID{'2'}.String()
	found := map[string]map[string]int{} // how many decisions of a rule have which traces
	for line := range strings.Lines(log) {
		var record decisionlog.Record
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		decision := record.Decision
		if decision == nil {
			continue
		}
		if found[decision.Rule] == nil {
			found[decision.Rule] = map[string]int{}
		}
		found[decision.Rule][strings.Join(decision.TraceIDs, " ")]++
		if diff := cmp.Diff(traces.of[decision.ID], decision.TraceIDs); diff != "" {
			t.Errorf("the spans of decision %s are in other traces (-span +log):\n%s", decision.ID, diff)
		}
		if evaluation, ok := traces.evaluations[decision.ID]; ok != (len(decision.TraceIDs) > 0) ||
			ok && "shop/"+evaluation.Rule.String() != decision.Rule {
			t.Errorf("decision %s of %s with the traces %v has the span %+v", decision.ID, decision.Rule, decision.TraceIDs, evaluation)
		}
	}
	each := map[string]int{first: 1, "": 1, third: 1}
	batch := map[string]int{first + " " + third: 1}
	want := map[string]map[string]int{
		"shop/web/available": batch, "shop/web/labelled": batch, "shop/web/mine": each, "shop/web/caused": each,
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("traces of decisions differ (-want +got):\n%s", diff)
	}
	report, err := decisionlog.Replay(t.Context(), newEngine(t), strings.NewReader(log))
	if err != nil || report.Equal != 8 {
		t.Errorf("replay: %+v, %v", report, err)
	}
}
