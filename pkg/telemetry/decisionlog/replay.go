package decisionlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

// Replayer repeats decisions. It is an *opa.Engine.
type Replayer interface {
	Replay(ctx context.Context, module spec.Module, input json.RawMessage) (json.RawMessage, error)
}

// Report is the result of replaying a log.
type Report struct {
	// Equal decisions are the same, byte for byte.
	Equal int

	// Differ decisions are not; Different are the first of them, at most 20.
	Differ    int
	Different []Difference

	// Skipped decisions had an error in the log, or a masked input.
	Skipped int

	// Unknown decisions are of modules that are not in the log before them, as in a log that was rotated.
	Unknown int
}

// Difference is a decision with another result.
type Difference struct {
	Line      int
	Rule      string
	Then, Now json.RawMessage

	// Err is the error of the new evaluation.
	Err error
}

const maxDifferences = 20

// Replay repeats every decision of a log. It returns an error for a log that cannot be read,
// with the line.
func Replay(ctx context.Context, engine Replayer, log io.Reader) (Report, error) {
	report := Report{}
	unknown, err := each(log, func(line int, decision Decision, module spec.Module) error {
		if decision.Error != "" || len(decision.Masked) > 0 {
			report.Skipped++
			return nil
		}
		now, err := engine.Replay(ctx, module, decision.Input)
		if err == nil && bytes.Equal(now, decision.Output) {
			report.Equal++
			return ctx.Err()
		}
		report.Differ++
		if len(report.Different) < maxDifferences {
			report.Different = append(report.Different, Difference{Line: line, Rule: decision.Rule, Then: decision.Output, Now: now, Err: err})
		}
		return ctx.Err()
	})
	report.Unknown = unknown
	return report, err
}

// each calls a function with each decision of a log and its module, until it returns an error. It returns the number of
// decisions whose module is not in the log before them.
func each(log io.Reader, use func(line int, decision Decision, module spec.Module) error) (unknown int, err error) {
	modules := map[string]spec.Module{}
	decoder := json.NewDecoder(log)
	for line := 1; ; line++ {
		var record Record
		err := decoder.Decode(&record)
		if errors.Is(err, io.EOF) {
			return unknown, nil
		}
		if err != nil {
			return unknown, fmt.Errorf("line %d: %w", line, err)
		}
		if record.Module != nil {
			modules[record.Module.Hash] = record.Module.Compiled
		}
		if record.Decision == nil {
			continue
		}
		module, ok := modules[record.Decision.Module]
		if !ok {
			unknown++
			continue
		}
		if err := use(line, *record.Decision, module); err != nil {
			return unknown, err
		}
	}
}
