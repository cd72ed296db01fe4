package decisionlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	testingclock "k8s.io/utils/clock/testing"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/telemetry/decisionlog"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// rules returns one rule of each kind, by name.
func rules() map[string]appsv1alpha1.TransitionRule {
	half := intstr.FromString("50%")
	return map[string]appsv1alpha1.TransitionRule{
		"available": {AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: &half}},
		"labelled":  {LabelCheck: &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{MatchLabels: map[string]string{"approved": "yes"}}}},
		"mine":      {Rego: &appsv1alpha1.RegoRule{Module: "package rule\n\ndeny contains sprintf(\"%s is one of %d\", [input.pod.name, count(input.pods)]) if input.now > 0\n"}},
		"caused":    {Rego: &appsv1alpha1.RegoRule{Module: "package rule\n\nallow if input.operation.cause == \"ScaleIn\"\n"}},
	}
}

// logged evaluates every rule for some pods, and returns the log.
func logged(t *testing.T, options decisionlog.Options) string {
	t.Helper()
	w := decisionlog.New(options, testingclock.NewFakePassiveClock(epoch))
	e, err := opa.New(opa.Options{Observe: w.Observe, Timeout: time.Minute, CustomTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var requests []rule.Request
	var pods []*rule.PodFact
	for i, cause := range []rule.Cause{"", rule.CauseScaleIn, rule.CauseRollout} {
		pod := &rule.PodFact{
			UID: types.UID(fmt.Sprint(i)), Namespace: "shop", Name: fmt.Sprintf("web-%d", i), Version: "1",
			Labels: map[string]string{"approved": "yes"}, Annotations: map[string]string{"token": "secret"}, Available: i > 0,
		}
		pods = append(pods, pod)
		requests = append(requests, rule.Request{Pod: pod, Stage: appsv1alpha1.StagePreCheck, ID: "a", Type: "upgrade", Cause: cause, Since: epoch})
	}
	env := rule.Environment{Now: epoch.Add(time.Nanosecond), Pods: pods, Counts: rule.Counts{Selected: 3, Desired: 3, Available: 2}}
	for name, rule := range rules() {
		rule.Name = name
		var custom *spec.Custom
		if rule.Rego != nil {
			custom = &spec.Custom{Source: rule.Rego.Module, Entry: spec.EntryDeny, Parameters: json.RawMessage(`{}`)}
			if strings.Contains(rule.Rego.Module, "allow if") {
				custom.Entry = spec.EntryAllow
			}
		}
		module, err := spec.Rule(types.NamespacedName{Namespace: "shop", Name: "web"}, rule, custom)
		if err != nil {
			t.Fatal(err)
		}
		program, err := e.Prepare(t.Context(), module)
		if err != nil {
			t.Fatal(err)
		}
		w.Prepared(module)
		if _, err := program.Evaluate(t.Context(), appsv1alpha1.StagePreCheck, env, requests); err != nil {
			t.Fatal(err)
		}
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	var out bytes.Buffer
	if err := w.Run(ctx, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func newEngine(t *testing.T) *opa.Engine {
	t.Helper()
	e, err := opa.New(opa.Options{Timeout: time.Minute, CustomTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestReplay shows that the log suffices to repeat every decision, bit for bit, in another
// process.
func TestReplay(t *testing.T) {
	log := logged(t, decisionlog.Options{Sample: 1})
	report, err := decisionlog.Replay(t.Context(), newEngine(t), strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	// One batch for each built-in rule, and one evaluation for each pod of the others.
	if diff := cmp.Diff(decisionlog.Report{Equal: 8}, report); diff != "" {
		t.Errorf("report differs (-want +got):\n%s\n%s", diff, log)
	}
	// However similar the pods are for a built-in rule, each is in the log.
	for i := range 3 {
		key := fmt.Sprintf(`"%d/PreCheck/a":{"operation"`, i)
		if got := strings.Count(log, key); got != 2 {
			t.Errorf("%s is in %d inputs, want it in those of both built-in rules", key, got)
		}
	}
	forged := strings.Replace(log, "is one of 2", "is one of 9", 1)
	if forged == log {
		t.Fatalf("the log has no decision to forge:\n%s", log)
	}
	report, err = decisionlog.Replay(t.Context(), newEngine(t), strings.NewReader(forged))
	if err != nil || report.Equal != 7 || len(report.Different) != 1 || report.Different[0].Rule != "shop/web/mine" {
		t.Errorf("of a forged log: %+v, %v", report, err)
	}
}

// TestReplayOfACause shows that the input in the log has the cause, and that the verdict depends on it in both runs.
func TestReplayOfACause(t *testing.T) {
	log := logged(t, decisionlog.Options{Sample: 1})
	passed := map[string]bool{}
	decoder := json.NewDecoder(strings.NewReader(log))
	for {
		var record decisionlog.Record
		if err := decoder.Decode(&record); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if record.Decision == nil || record.Decision.Rule != "shop/web/caused" {
			continue
		}
		var input struct{ Operation struct{ Cause string } }
		var output struct{ Passed []string }
		if err := errors.Join(json.Unmarshal(record.Decision.Input, &input), json.Unmarshal(record.Decision.Output, &output)); err != nil {
			t.Fatal(err)
		}
		passed[input.Operation.Cause] = len(output.Passed) > 0
	}
	if diff := cmp.Diff(map[string]bool{"": false, "ScaleIn": true, "Rollout": false}, passed); diff != "" {
		t.Errorf("pods that passed by their cause differ (-want +got):\n%s\n%s", diff, log)
	}

	// Of the two rules of users, only the verdict of this one depends on the cause.
	report, err := decisionlog.Replay(t.Context(), newEngine(t), strings.NewReader(strings.ReplaceAll(log, `"cause":"Rollout"`, `"cause":"ScaleIn"`)))
	if err != nil || report.Equal != 7 || len(report.Different) != 1 || report.Different[0].Rule != "shop/web/caused" || report.Different[0].Err != nil {
		t.Errorf("of a log with another cause: %+v, %v", report, err)
	}
}

func TestReplayOfAMalformedLog(t *testing.T) {
	if _, err := decisionlog.Replay(t.Context(), newEngine(t), strings.NewReader("decisions:\n")); err == nil || !strings.HasPrefix(err.Error(), "line 1: ") {
		t.Errorf("got %v, want an error that names line 1", err)
	}
}

// TestReplayOfARotatedLog has a log whose modules are in an earlier file, and 101 decisions that differ.
func TestReplayOfARotatedLog(t *testing.T) {
	log := logged(t, decisionlog.Options{Sample: 1})
	var decisions []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, `"decision":`) && !strings.Contains(line, `"compiled":`) {
			decisions = append(decisions, line)
		}
	}
	report, err := decisionlog.Replay(t.Context(), newEngine(t), strings.NewReader(strings.Join(decisions, "")))
	if err != nil || report.Unknown != len(decisions) || report.Unknown == 0 || report.Equal > 0 {
		t.Errorf("of %d decisions without their modules: %+v, %v", len(decisions), report, err)
	}
	changed := strings.ReplaceAll(decisions[0], `"output":{`, `"output":{"other":true,`)
	report, err = decisionlog.Replay(t.Context(), newEngine(t), strings.NewReader(log+strings.Repeat(changed, 101)))
	if err != nil || report.Differ != 101 || len(report.Different) != 20 {
		t.Errorf("of 101 decisions that differ: %d, %d are listed, %v", report.Differ, len(report.Different), err)
	}
}

// TestMasks shows that masked values are in no line, and that each line lists its masked paths.
func TestMasks(t *testing.T) {
	masks, err := decisionlog.ParseMasks("pod.annotations, input.pods.*.annotations, requests.*.pod.annotations")
	if err != nil {
		t.Fatal(err)
	}
	log := logged(t, decisionlog.Options{Sample: 1, Masks: masks})
	if strings.Contains(log, "secret") {
		t.Errorf("the log contains a masked value:\n%s", log)
	}
	if !strings.Contains(log, `"masked":["pod.annotations"`) {
		t.Errorf("the log does not list the masked paths:\n%s", log)
	}
	if !strings.Contains(log, fmt.Sprint(epoch.UnixNano()+1)) {
		t.Errorf("masking has changed a number:\n%s", log)
	}
	if report, err := decisionlog.Replay(t.Context(), newEngine(t), strings.NewReader(log)); err != nil || report.Skipped < 3 {
		t.Errorf("of a masked log: %+v, %v", report, err)
	}
	if _, err := decisionlog.ParseMasks("pod..annotations"); err == nil {
		t.Error("a path with an empty part is accepted")
	}
}

func TestNoSample(t *testing.T) {
	if log := logged(t, decisionlog.Options{Sample: 0}); log != "" {
		t.Errorf("got %s", log)
	}
}

// TestAFullQueueDropsAndCounts shows that writers never wait for the disk.
func TestAFullQueueDropsAndCounts(t *testing.T) {
	w := decisionlog.New(decisionlog.Options{Sample: 1}, testingclock.NewFakePassiveClock(epoch))
	id := rule.RuleID{Rule: "mine"}
	w.Prepared(spec.Module{ID: id})
	nothing := func() (json.RawMessage, error) { return json.RawMessage(`{}`), nil }
	for range 5000 {
		w.Observe(opa.Observation{Rule: id, Input: nothing, Output: nothing})
	}
	if w.Dropped() < 3000 {
		t.Errorf("%d lines were dropped", w.Dropped())
	}
}

// TestANamespaceFillsItsShareOnly shows that no namespace loses its lines because of another.
func TestANamespaceFillsItsShareOnly(t *testing.T) {
	small, large := json.RawMessage(`{}`), json.RawMessage(`"`+strings.Repeat("x", 1<<20)+`"`)
	for name, loud := range map[string]json.RawMessage{"many lines": small, "large lines": large} {
		t.Run(name, func(t *testing.T) {
			w := decisionlog.New(decisionlog.Options{Sample: 1}, testingclock.NewFakePassiveClock(epoch))
			observe := func(namespace string, input json.RawMessage) {
				id := rule.RuleID{Ruleset: types.NamespacedName{Namespace: namespace, Name: "web"}, Rule: "mine"}
				w.Prepared(spec.Module{ID: id})
				w.Observe(opa.Observation{
					Rule: id, Input: func() (json.RawMessage, error) { return input, nil }, Output: func() (json.RawMessage, error) { return small, nil },
				})
			}
			for range 2000 {
				observe("loud", loud)
			}
			before := w.Dropped()
			for range 100 {
				observe("quiet", small)
			}
			if before == 0 || w.Dropped() != before {
				t.Errorf("%d lines of the loud namespace were dropped, and %d of the other", before, w.Dropped()-before)
			}
			ctx, end := context.WithCancel(t.Context())
			end()
			if err := w.Run(ctx, &bytes.Buffer{}); err != nil {
				t.Fatal(err)
			}
			if observe("loud", loud); w.Dropped() != before {
				t.Error("a line is dropped when the queue is empty again")
			}
		})
	}
}

// TestAQueueOfLargeLinesIsBoundedInBytes matters because an input has the labels of many pods.
func TestAQueueOfLargeLinesIsBoundedInBytes(t *testing.T) {
	w := decisionlog.New(decisionlog.Options{Sample: 1}, testingclock.NewFakePassiveClock(epoch))
	id := rule.RuleID{Rule: "mine"}
	w.Prepared(spec.Module{ID: id})
	large := json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
	document := func() (json.RawMessage, error) { return large, nil }
	for namespace := range 10 {
		id.Ruleset.Namespace = fmt.Sprint(namespace)
		w.Prepared(spec.Module{ID: id})
		for range 3 {
			w.Observe(opa.Observation{Rule: id, Input: document, Output: func() (json.RawMessage, error) { return json.RawMessage(`{}`), nil }})
		}
	}
	if w.Dropped() != 15 {
		t.Errorf("%d of 30 lines of 1 MiB were dropped, want those beyond 16 MiB", w.Dropped())
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := w.Run(ctx, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	w.Observe(opa.Observation{Rule: id, Input: document, Output: document})
	if w.Dropped() != 15 {
		t.Error("a line is dropped when the queue is empty again")
	}
}

func TestCompareReturnsTheVerdictsOfOtherRules(t *testing.T) {
	log := logged(t, decisionlog.Options{Sample: 1})
	other := func(name string, change func(*appsv1alpha1.TransitionRule), entry spec.Entry) spec.Module {
		entered := rules()[name]
		entered.Name = name
		change(&entered)
		var custom *spec.Custom
		if entered.Rego != nil {
			custom = &spec.Custom{Source: entered.Rego.Module, Entry: entry, Parameters: json.RawMessage(`{}`)}
		}
		module, err := spec.Rule(types.NamespacedName{Namespace: "shop", Name: "web"}, entered, custom)
		if err != nil {
			t.Fatal(err)
		}
		return module
	}
	all := intstr.FromString("100%")
	with := map[string]spec.Module{
		"shop/web/available": other("available", func(r *appsv1alpha1.TransitionRule) { r.AvailablePolicy.MaxUnavailableValue = &all }, ""),
		"shop/web/labelled":  other("labelled", func(*appsv1alpha1.TransitionRule) {}, ""),
		"shop/web/caused": other("caused", func(r *appsv1alpha1.TransitionRule) {
			r.Rego.Module = "package rule\n\nallow if input.operation.cause in {\"ScaleIn\", \"Rollout\"}\n"
		}, spec.EntryAllow),
	}
	got, err := decisionlog.Compare(t.Context(), newEngine(t), strings.NewReader(log), with)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got.Verdicts, func(a, b decisionlog.Change) int { return strings.Compare(a.Rule, b.Rule) })
	for i := range got.Verdicts {
		got.Verdicts[i].Line = 0 // rules are evaluated in any order
	}
	want := decisionlog.Changes{Same: 3, Changed: 2, Unrelated: 3, Verdicts: []decisionlog.Change{
		{Rule: "shop/web/available", Then: "0 slots", Now: "2 slots"},
		{Rule: "shop/web/caused", Pod: "web-2", Then: "withheld, NotAllowed", Now: "permitted"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestCompareSkipsRulesOfAnotherKind(t *testing.T) {
	log := logged(t, decisionlog.Options{Sample: 1})
	labelled := rules()["labelled"]
	labelled.Name = "mine"
	module, err := spec.Rule(types.NamespacedName{Namespace: "shop", Name: "web"}, labelled, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decisionlog.Compare(t.Context(), newEngine(t), strings.NewReader(log), map[string]spec.Module{"shop/web/mine": module})
	if want := (decisionlog.Changes{Unrelated: 5, Skipped: 3}); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("got %+v, %v", got, err)
	}
}
