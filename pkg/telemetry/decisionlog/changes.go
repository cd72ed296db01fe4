package decisionlog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

// Changes are the verdicts of a log that other rules give differently.
type Changes struct {
	// Same is the number of decisions that are the same, and Changed the number of decisions that
	// are not.
	Same    int `json:"same"`
	Changed int `json:"changed"`

	// Unrelated decisions are of rules that the other rules do not replace. Skipped decisions had an error, a
	// masked input, a module that is not in the log before them, or a rule of another kind, which reads another input.
	Unrelated int `json:"unrelated"`
	Skipped   int `json:"skipped"`

	// Verdicts are the first verdicts that changed, at most 1,000.
	Verdicts []Change `json:"verdicts,omitempty"`
}

// Change is a verdict that changed.
type Change struct {
	// Line is the line of the log.
	Line int `json:"line"`

	// Rule is "<namespace>/<PodTransitionRule>/<rule>", and Pod the name of the pod; empty if the number of
	// slots of the rule changed.
	Rule string `json:"rule"`
	Pod  string `json:"pod,omitempty"`

	Then string `json:"then"`
	Now  string `json:"now"`
}

const maxChanges = 1000

// Compare evaluates other rules, by Decision.Rule, on the inputs of a log. It returns an error for a log that
// cannot be read, with the line.
func Compare(ctx context.Context, engine Replayer, log io.Reader, with map[string]spec.Module) (Changes, error) {
	changes := Changes{}
	unknown, err := each(log, func(line int, decision Decision, module spec.Module) error {
		other, related := with[decision.Rule]
		switch {
		case !related:
			changes.Unrelated++
			return nil
		case decision.Error != "" || len(decision.Masked) > 0 || other.Kind != module.Kind || other.Stage != module.Stage:
			changes.Skipped++
			return nil
		}
		input, err := inputWith(decision.Input, other)
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		now, err := engine.Replay(ctx, other, input)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		found, readErr := differences(decision, now, err)
		if readErr != nil {
			return fmt.Errorf("line %d: %w", line, readErr)
		}
		if len(found) == 0 {
			changes.Same++
			return nil
		}
		changes.Changed++
		for i := range found {
			found[i].Line = line
		}
		changes.Verdicts = append(changes.Verdicts, found[:min(len(found), maxChanges-len(changes.Verdicts))]...)
		return nil
	})
	changes.Skipped += unknown
	return changes, err
}

// inputWith returns an input with the fields of another rule.
func inputWith(input json.RawMessage, other spec.Module) (json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(input, &fields); err != nil {
		return nil, fmt.Errorf("reading the input: %w", err)
	}
	fields["rule"] = other.Literal
	if other.Custom != nil {
		fields["parameters"] = json.RawMessage(`{}`)
		if len(other.Custom.Parameters) > 0 {
			fields["parameters"] = other.Custom.Parameters
		}
	}
	return json.Marshal(fields)
}

// verdicts is the decision document of a rule, as far as it differs for readers.
type verdicts struct {
	Passed    []string          `json:"passed"`
	NeedsSlot []string          `json:"needs_slot"`
	Withheld  map[string]string `json:"withheld"`
	Would     map[string]string `json:"would"`
	Capacity  *struct {
		Slots int `json:"slots"`
	} `json:"capacity"`
	Explanation struct {
		Messages []string `json:"messages"`
	} `json:"explanation"`
}

// of returns the verdict on a request as text.
func (v verdicts) of(key string) string {
	reason := ""
	if len(v.Explanation.Messages) > 0 {
		reason = ": " + strings.Join(v.Explanation.Messages, "; ")
	}
	switch {
	case v.Withheld[key] != "":
		return "withheld, " + v.Withheld[key] + reason
	case v.Would[key] != "":
		return "would be withheld, " + v.Would[key] + reason
	case slices.Contains(v.NeedsSlot, key):
		return "permitted with a slot"
	case slices.Contains(v.Passed, key):
		return "permitted"
	default:
		return "withheld, without a verdict"
	}
}

func (v verdicts) keys() []string {
	return slices.Concat(v.Passed, v.NeedsSlot, slices.Collect(maps.Keys(v.Withheld)))
}

// differences returns the verdicts that differ. failed is the error of the other evaluation.
func differences(decision Decision, output json.RawMessage, failed error) ([]Change, error) {
	var then, now verdicts
	if err := json.Unmarshal(decision.Output, &then); err != nil {
		return nil, fmt.Errorf("reading the output: %w", err)
	}
	if failed != nil {
		return []Change{{Rule: decision.Rule, Then: "a decision", Now: failed.Error()}}, nil //nolint:nilerr // an evaluation that fails now is a difference
	}
	if bytes.Equal(output, decision.Output) {
		return nil, nil
	}
	if err := json.Unmarshal(output, &now); err != nil {
		return nil, fmt.Errorf("reading the new output: %w", err)
	}
	var found []Change
	if then.Capacity != nil && now.Capacity != nil && then.Capacity.Slots != now.Capacity.Slots {
		found = append(found, Change{
			Rule: decision.Rule, Then: fmt.Sprintf("%d slots", then.Capacity.Slots), Now: fmt.Sprintf("%d slots", now.Capacity.Slots),
		})
	}
	keys := slices.Concat(then.keys(), now.keys())
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if before, after := then.of(key), now.of(key); before != after {
			found = append(found, Change{Rule: decision.Rule, Pod: requestedPod(decision.Input, key), Then: before, Now: after})
		}
	}
	return found, nil
}

// requestedPod returns the name of a request's pod, or else the key of the request.
func requestedPod(input json.RawMessage, key string) string {
	type pod struct {
		Pod struct {
			Name string `json:"name"`
		} `json:"pod"`
	}
	about := struct {
		pod
		Requests map[string]pod `json:"requests"`
	}{}
	if err := json.Unmarshal(input, &about); err != nil {
		return key
	}
	return cmp.Or(about.Pod.Name, about.Requests[key].Pod.Name, key)
}
