package decisionlog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/podops-dev/podops/pkg/policy"
	"github.com/podops-dev/podops/pkg/policy/compile"
	"github.com/podops-dev/podops/pkg/policy/engine"
)

const (
	// queued is how many lines wait for the disk. More are dropped and counted, since no
	// pod may wait for a log.
	queued = 1024

	// remembered is how many modules are known to be in the log, or waiting for their
	// first decision.
	remembered = 4096
)

// Options of a Writer.
type Options struct {
	// Sample is the share of the decisions that are written, from 0 to 1.
	Sample float64

	// Masks are the parts of the input that nobody is to read.
	Masks []Mask
}

// Writer writes decisions. Its methods never block on the disk; they are safe for
// concurrent use.
type Writer struct {
	options Options
	clock   clock.PassiveClock
	lines   chan Record

	mu      sync.Mutex
	modules *lru.Cache // *prepared by policy.RuleID
	dropped int
}

// prepared is the module that a rule is asked with.
type prepared struct {
	module  Module
	written bool
}

// New returns a Writer. Run makes it write.
func New(options Options, clk clock.PassiveClock) *Writer {
	return &Writer{options: options, clock: clk, lines: make(chan Record, queued), modules: lru.New(remembered)}
}

// Prepared takes note of the module that a rule is asked with from now on.
func (w *Writer) Prepared(module compile.Module) {
	text, err := json.Marshal(module)
	if err != nil {
		return // strings and JSON documents always encode
	}
	sum := sha256.Sum256(text)
	w.mu.Lock()
	defer w.mu.Unlock()
	hash := hex.EncodeToString(sum[:])
	if known, ok := w.modules.Get(module.ID); ok && known.(*prepared).module.Hash == hash {
		return
	}
	w.modules.Add(module.ID, &prepared{module: Module{Hash: hash, Compiled: module}})
}

// Observe writes one evaluation. It is engine.Options.Observe.
func (w *Writer) Observe(observed engine.Observation) {
	if w.options.Sample < 1 && rand.Float64() >= w.options.Sample { //nolint:gosec // A sample is no secret.
		return
	}
	module, isNew, ok := w.moduleOf(observed.Rule)
	if !ok {
		return // asked with a stand-in, which decides nothing by itself
	}
	now := w.clock.Now()
	if isNew && !w.send(Record{Time: now, Module: &module}) {
		w.forget(observed.Rule)
		return
	}
	decision, err := w.decision(observed, module.Hash)
	if err != nil {
		decision = Decision{Rule: ruleName(observed.Rule), Module: module.Hash, Error: err.Error()}
	}
	w.send(Record{Time: now, Decision: &decision})
}

func (w *Writer) moduleOf(rule policy.RuleID) (module Module, isNew, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known, ok := w.modules.Get(rule)
	if !ok {
		return Module{}, false, false
	}
	found := known.(*prepared)
	isNew = !found.written
	found.written = true
	return found.module, isNew, true
}

// forget makes the next decision of a rule write its module again.
func (w *Writer) forget(rule policy.RuleID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known, ok := w.modules.Get(rule); ok {
		known.(*prepared).written = false
	}
}

func (w *Writer) decision(observed engine.Observation, module string) (Decision, error) {
	decision := Decision{Rule: ruleName(observed.Rule), Module: module, DurationMicroseconds: observed.Duration.Microseconds()}
	input, err := observed.Input()
	if err != nil {
		return Decision{}, fmt.Errorf("writing the input: %w", err)
	}
	if decision.Input, decision.Masked, err = masked(input, w.options.Masks); err != nil {
		return Decision{}, err
	}
	if failed := observed.Err; failed != nil {
		decision.Error = failed.Error()
	} else if decision.Output, err = observed.Output(); err != nil {
		return Decision{}, fmt.Errorf("writing the output: %w", err)
	}
	return decision, nil
}

func (w *Writer) send(record Record) bool {
	select {
	case w.lines <- record:
		return true
	default:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.dropped++
		return false
	}
}

// Dropped is how many lines were lost because the disk was too slow.
func (w *Writer) Dropped() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}

// reportDropped is how often lost lines are reported.
const reportDropped = time.Minute

// Run writes lines to out until ctx ends, and then what is queued. A line that cannot be
// written is reported, and ends the log: nothing else does.
func (w *Writer) Run(ctx context.Context, out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	ticker := time.NewTicker(reportDropped)
	defer ticker.Stop()
	reported := 0
	for {
		select {
		case record := <-w.lines:
			if err := encoder.Encode(record); err != nil {
				return fmt.Errorf("writing the decision log: %w", err)
			}
		case <-ticker.C:
			if dropped := w.Dropped(); dropped > reported {
				logr.FromContextOrDiscard(ctx).Info("Decisions are missing in the log: the disk is too slow", "lines", dropped-reported)
				reported = dropped
			}
		case <-ctx.Done():
			return w.drain(encoder)
		}
	}
}

func (w *Writer) drain(encoder *json.Encoder) error {
	for {
		select {
		case record := <-w.lines:
			if err := encoder.Encode(record); err != nil {
				return fmt.Errorf("writing the decision log: %w", err)
			}
		default:
			return nil
		}
	}
}

func ruleName(rule policy.RuleID) string { return rule.Object.Namespace + "/" + rule.String() }
