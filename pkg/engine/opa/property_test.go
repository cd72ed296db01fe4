package opa_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/render"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// TestEvaluateEqualsReference checks that Rego and plain Go agree on every rule, for any order of
// the requests and any division into batches.
func TestEvaluateEqualsReference(t *testing.T) {
	engine := newEngine(t, opa.Options{})
	rapid.Check(t, func(t *rapid.T) {
		entry := rules().Draw(t, "rule")
		module, err := spec.Rule(types.NamespacedName{Namespace: "shop", Name: "web"}, entry, nil)
		if err != nil {
			t.Fatal(err)
		}
		source, err := render.Module(module)
		if err != nil {
			t.Fatal(err)
		}
		program, err := engine.Prepare(t.Context(), module)
		if err != nil {
			t.Fatal(err)
		}
		counts := drawCounts(t)
		requests := drawRequests(t, program.Stage())
		evaluate := func(requests []rule.Request) rule.Result {
			result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{Counts: counts}, requests)
			if err != nil {
				t.Fatalf("evaluating: %v\n%s", err, source)
			}
			return result
		}

		want := reference(entry, counts, requests)
		if diff := cmp.Diff(want, evaluate(requests)); diff != "" {
			t.Fatalf("Rego differs (-reference +Rego):\n%s\n%s", diff, source)
		}
		shuffled := append([]rule.Request{}, requests...)
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) {
			shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
		})
		if diff := cmp.Diff(want, evaluate(shuffled)); diff != "" {
			t.Fatalf("the order of requests matters (-in order +shuffled):\n%s", diff)
		}
		standing, err := engine.PrepareSource(t.Context(), module, source)
		if err != nil {
			t.Fatal(err)
		}
		asItStands, err := standing.Evaluate(t.Context(), program.Stage(), rule.Environment{Counts: counts}, requests)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, asItStands); diff != "" {
			t.Fatalf("the readable source decides differently (-shared +source):\n%s\n%s", diff, source)
		}
		for _, request := range requests {
			alone := evaluate([]rule.Request{request})
			if diff := cmp.Diff(want.Verdicts[request.Key()], alone.Verdicts[request.Key()]); diff != "" {
				t.Fatalf("the other requests matter (-together +alone):\n%s", diff)
			}
		}
	})
}

// TestVerdictsNeedCounts checks the contract for callers that cache verdicts: where verdicts do not
// need counts, counts do not change them.
func TestVerdictsNeedCounts(t *testing.T) {
	engine := newEngine(t, opa.Options{})
	rapid.Check(t, func(t *rapid.T) {
		entry := rules().Draw(t, "rule")
		module, err := spec.Rule(types.NamespacedName{Namespace: "shop", Name: "web"}, entry, nil)
		if err != nil {
			t.Fatal(err)
		}
		program, err := engine.Prepare(t.Context(), module)
		if err != nil {
			t.Fatal(err)
		}
		if program.VerdictsNeedCounts() {
			return
		}
		requests := drawRequests(t, program.Stage())
		var results [2]rule.Result
		for i := range results {
			results[i], err = program.Evaluate(t.Context(), program.Stage(), rule.Environment{Counts: drawCounts(t)}, requests)
			if err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(results[0].Verdicts, results[1].Verdicts); diff != "" {
			t.Fatalf("counts change verdicts (-some counts +other counts):\n%s", diff)
		}
	})
}

func rules() *rapid.Generator[appsv1alpha1.TransitionRule] {
	return rapid.Custom(func(t *rapid.T) appsv1alpha1.TransitionRule {
		entry := appsv1alpha1.TransitionRule{
			Name: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name"),
			Stage: rapid.SampledFrom([]appsv1alpha1.TransitionStage{
				appsv1alpha1.StagePreCheck, appsv1alpha1.StagePostCheck,
			}).Draw(t, "stage"),
			Enforcement: rapid.SampledFrom([]appsv1alpha1.Enforcement{
				"", appsv1alpha1.EnforcementEnforce, appsv1alpha1.EnforcementWarn, appsv1alpha1.EnforcementDryRun,
			}).Draw(t, "enforcement"),
			Conditions: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"update", "delete", "restart"}),
				0, 2, rapid.ID[string]).Draw(t, "conditions"),
		}
		if rapid.Bool().Draw(t, "has filter") {
			entry.Filter = &appsv1alpha1.TransitionRuleFilter{LabelSelector: drawSelector(t)}
		}
		switch rapid.SampledFrom([]rule.Kind{
			rule.KindLabelCheck, rule.KindWebhook, rule.KindAvailablePolicy,
		}).Draw(t, "kind") {
		case rule.KindLabelCheck:
			entry.LabelCheck = &appsv1alpha1.LabelCheck{Requires: drawSelector(t)}
			return entry
		case rule.KindWebhook:
			entry.Webhook = approval(rapid.SampledFrom([]appsv1alpha1.FailurePolicy{
				"", appsv1alpha1.FailurePolicyFail, appsv1alpha1.FailurePolicyIgnore,
			}).Draw(t, "failure policy")).Webhook
			return entry
		default:
		}
		entry.AvailablePolicy = &appsv1alpha1.AvailablePolicy{}
		bounds := rapid.IntRange(1, 3).Draw(t, "bounds")
		if bounds&1 != 0 {
			entry.AvailablePolicy.MaxUnavailableValue = drawBound(t, 1)
		}
		if bounds&2 != 0 {
			entry.AvailablePolicy.MinAvailableValue = drawBound(t, 0)
		}
		return entry
	})
}

func drawBound(t *rapid.T, least int) *intstr.IntOrString {
	value := intstr.FromString(fmt.Sprintf("%d%%", rapid.IntRange(least, 100).Draw(t, "percent")))
	if rapid.Bool().Draw(t, "count") {
		value = intstr.FromInt32(int32(rapid.IntRange(least, 20).Draw(t, "bound"))) //nolint:gosec // at most 20
	}
	return &value
}

func drawSelector(t *rapid.T) *metav1.LabelSelector {
	selector := &metav1.LabelSelector{
		MatchLabels: rapid.MapOfN(labelKeys(), labelValues(), 0, 2).Draw(t, "matchLabels"),
	}
	for range rapid.IntRange(0, 2).Draw(t, "expressions") {
		requirement := metav1.LabelSelectorRequirement{
			Key: labelKeys().Draw(t, "key"),
			Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{
				metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn,
				metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
			}).Draw(t, "operator"),
		}
		if requirement.Operator == metav1.LabelSelectorOpIn || requirement.Operator == metav1.LabelSelectorOpNotIn {
			requirement.Values = rapid.SliceOfN(labelValues(), 1, 2).Draw(t, "values")
		}
		selector.MatchExpressions = append(selector.MatchExpressions, requirement)
	}
	return selector
}

func labelKeys() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"app", "zone", "app.custom/ready"})
}

func labelValues() *rapid.Generator[string] { return rapid.SampledFrom([]string{"", "x", "true"}) }

func drawCounts(t *rapid.T) rule.Counts {
	counts := rule.Counts{
		Selected: rapid.IntRange(0, 30).Draw(t, "selected"),
		Desired:  rapid.IntRange(0, 30).Draw(t, "desired"),
	}
	counts.Available = rapid.IntRange(0, counts.Selected).Draw(t, "available")
	counts.Reserved = rapid.IntRange(0, counts.Available).Draw(t, "reserved")
	return counts
}

func drawRequests(t *rapid.T, stage appsv1alpha1.TransitionStage) []rule.Request {
	requests := []rule.Request{}
	// Pods of earlier examples are in the engine's cache, so each example has a name of its own.
	example := rapid.StringMatching(`[a-z0-9]{12}`).Draw(t, "example")
	for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
		pod := &rule.PodFact{
			UID:       types.UID(fmt.Sprintf("%s-%d", example, i)),
			Namespace: "shop",
			Name:      fmt.Sprintf("web-%d", i),
			Version:   rapid.SampledFrom([]string{"", "7"}).Draw(t, "version"),
			Labels:    rapid.MapOfN(labelKeys(), labelValues(), 0, 3).Draw(t, "labels"),
			SkipRules: rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 1).Draw(t, "skip"),
			Available: rapid.Bool().Draw(t, "available"),
		}
		for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x", "y"}), 1, 2,
			rapid.ID[string]).Draw(t, "ids") {
			requests = append(requests, rule.Request{
				Pod: pod, Stage: stage, ID: id,
				Type: rapid.SampledFrom([]string{"update", "delete"}).Draw(t, "type"),
				Task: drawTask(t),
			})
		}
	}
	return requests
}

func drawTask(t *rapid.T) rule.Task {
	task := rule.Task{
		State: rapid.SampledFrom([]rule.TaskState{
			"", rule.TaskCalling, rule.TaskPolling, rule.TaskApproved, rule.TaskFailed,
		}).Draw(t, "task"),
		Message: rapid.SampledFrom([]string{"", "not now"}).Draw(t, "message"),
	}
	if task.State == rule.TaskFailed {
		task.Class = rapid.SampledFrom([]string{
			"Rejected", "Stopped", "Expired", "Timeout", "TLSUntrusted", "BreakerOpen", "Busy", "Interrupted", "Unheard",
		}).Draw(t, "class")
		task.RetryDue = rapid.Bool().Draw(t, "retry due")
		task.Answered = rapid.Bool().Draw(t, "answered")
	}
	return task
}

// TestCustomSourceStandsOnItsOwn checks that the readable source of a custom rule, together with
// the user's module, decides like the shared program. Messages of errors differ: the source is
// compiled without the bounds of calls.
func TestCustomSourceStandsOnItsOwn(t *testing.T) {
	e := newEngine(t, patient())
	rapid.Check(t, func(t *rapid.T) {
		module := drawCustom(t)
		source, err := render.Module(module)
		if err != nil {
			t.Fatal(err)
		}
		shared, err := e.Prepare(t.Context(), module)
		if err != nil {
			t.Fatal(err)
		}
		standing, err := e.PrepareSource(t.Context(), module, source)
		if err != nil {
			t.Fatal(err)
		}
		requests := drawRequests(t, shared.Stage())
		env := drawSurroundings(t, requests)
		verdicts := map[string]map[string]rule.Verdict{}
		for name, program := range map[string]*opa.Program{"shared": shared, "standing": standing} {
			result, err := program.Evaluate(t.Context(), program.Stage(), env, requests)
			if err != nil {
				t.Fatal(err)
			}
			verdicts[name] = result.Verdicts
			for key, verdict := range verdicts[name] {
				if verdict.Code == rule.CodeEvaluationFailed || verdict.Would == rule.CodeEvaluationFailed {
					verdict.Message = ""
					verdicts[name][key] = verdict
				}
			}
		}
		if diff := cmp.Diff(verdicts["shared"], verdicts["standing"]); diff != "" {
			t.Fatalf("the readable source decides differently (-shared +source):\n%s\n%s", diff, source)
		}
	})
}
