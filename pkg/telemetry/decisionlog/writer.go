package decisionlog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/core/tracing"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/runtime/fairshare"
)

const (
	// queued is the number of lines that wait for the disk. More are dropped and counted,
	// because no pod may wait for a log.
	queued = 1024

	// queuedBytes bounds the bytes of these lines. An input has the labels of all pods in a batch.
	queuedBytes = 16 << 20

	// namespaceLines and namespaceBytes are the share of a namespace in these lines: none loses its lines because of
	// another.
	namespaceLines, namespaceBytes = queued / 4, queuedBytes / 4

	// lineBytes is the size of a line without its documents.
	lineBytes = 512

	// moduleBytes bounds the bytes of the modules that are known to be in the log, or wait for
	// their first decision. Namespaces share them fairly. Decisions of other modules are not
	// written.
	moduleBytes = 32 << 20
)

// Options of a Writer.
type Options struct {
	// Sample is the share of the decisions that are written, from 0 to 1.
	Sample float64

	// Masks are the parts of the input that are masked.
	Masks []Mask

	// Metrics count lost lines; nil: nothing does.
	Metrics *Metrics

	// Tracer exports a span of each decision that is written; nil: no spans.
	Tracer Tracer
}

// Tracer exports the spans of evaluations. It must not block.
type Tracer interface {
	// Lifecycles returns the lifecycles of requests whose traces are exported.
	Lifecycles(requests []rule.Request) []tracing.Lifecycle

	// Evaluated exports the spans of an evaluation in the traces of lifecycles.
	Evaluated(evaluation tracing.Evaluation, of []tracing.Lifecycle)
}

// Writer writes decisions. Its methods never block on the disk; they are safe for
// concurrent use.
type Writer struct {
	options Options
	clock   clock.PassiveClock
	lines   chan Record

	modules *fairshare.Cache[rule.RuleID, *prepared]

	mu      sync.Mutex
	waiting int64 // bytes of the lines that wait for the disk
	tenants map[string]share
	dropped int
}

// share are the lines of a namespace that wait for the disk.
type share struct {
	lines int
	bytes int64
}

// prepared is the present module of a rule.
type prepared struct {
	module  Module
	written bool
}

// New returns a Writer. Run must be called to write its lines.
func New(options Options, clk clock.PassiveClock) *Writer {
	return &Writer{
		options: options, clock: clk, lines: make(chan Record, queued), modules: fairshare.NewCache[rule.RuleID, *prepared](moduleBytes),
		tenants: map[string]share{},
	}
}

// Prepared records the module with which a rule is evaluated from now on. A nil Writer records nothing.
func (w *Writer) Prepared(module spec.Module) {
	if w == nil {
		return
	}
	text, err := json.Marshal(module)
	if err != nil {
		return // strings and JSON documents always encode
	}
	sum := sha256.Sum256(text)
	w.mu.Lock()
	defer w.mu.Unlock()
	hash := hex.EncodeToString(sum[:])
	if known, ok := w.modules.Get(module.ID); ok && known.module.Hash == hash {
		return
	}
	made := &prepared{module: Module{Hash: hash, Compiled: maskedModule(module, w.options.Masks)}}
	w.modules.Add(module.ID.Ruleset.Namespace, module.ID, made, int64(len(text)))
}

// Observe writes one evaluation. It is opa.Options.Observe.
func (w *Writer) Observe(observed opa.Observation) {
	if w.options.Sample < 1 && rand.Float64() >= w.options.Sample { //nolint:gosec // A sample is no secret.
		return
	}
	module, isNew, ok := w.loggedModule(observed.Rule)
	if !ok {
		return // evaluated with a fallback program, which has no decisions of its own
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
	decision.ID = fmt.Sprintf("%016x", rand.Uint64()) //nolint:gosec // An id is no secret.
	traced := w.traced(observed.Requests)
	decision.TraceIDs = traceIDs(traced)
	if w.send(Record{Time: now, Decision: &decision}) && len(traced) > 0 {
		w.options.Tracer.Evaluated(newEvaluation(observed, decision, now), traced)
	}
}

// traced returns the lifecycles of requests that have a trace.
func (w *Writer) traced(requests []rule.Request) []tracing.Lifecycle {
	if w.options.Tracer == nil {
		return nil
	}
	return w.options.Tracer.Lifecycles(requests)
}

// traceIDs returns the trace ids of lifecycles, sorted.
func traceIDs(of []tracing.Lifecycle) []string {
	var ids []string
	for _, lifecycle := range of {
		ids = append(ids, lifecycle.Trace.String())
	}
	slices.Sort(ids)
	return ids
}

// newEvaluation returns an observation that ended now as a span has it.
func newEvaluation(observed opa.Observation, decision Decision, now time.Time) tracing.Evaluation {
	return tracing.Evaluation{
		Rule: observed.Rule, Stage: observed.Stage, Decision: decision.ID, Pods: len(observed.Requests),
		Start: now.Add(-observed.Duration), End: now, Failure: decision.Error,
	}
}

func (w *Writer) loggedModule(rule rule.RuleID) (module Module, isNew, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found, ok := w.modules.Get(rule)
	if !ok {
		return Module{}, false, false
	}
	isNew = !found.written
	found.written = true
	return found.module, isNew, true
}

// forget makes the next decision of a rule write its module again.
func (w *Writer) forget(rule rule.RuleID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known, ok := w.modules.Get(rule); ok {
		known.written = false
	}
}

func (w *Writer) decision(observed opa.Observation, module string) (Decision, error) {
	decision := Decision{Rule: ruleName(observed.Rule), Module: module, DurationMicroseconds: observed.Duration.Microseconds()}
	input, err := observed.Input()
	if err != nil {
		return Decision{}, fmt.Errorf("writing the input: %w", err)
	}
	var secrets []string
	if decision.Input, decision.Masked, secrets, err = masked(input, w.options.Masks); err != nil {
		return Decision{}, err
	}
	if failed := observed.Err; failed != nil {
		decision.Error = hiding(secrets).Replace(failed.Error())
		return decision, nil
	}
	output, err := observed.Output()
	if err != nil {
		return Decision{}, fmt.Errorf("writing the output: %w", err)
	}
	decision.Output, err = withoutSecrets(output, secrets)
	return decision, err
}

// send queues a line, and reports whether the queue accepted it.
func (w *Writer) send(record Record) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	bytes, namespace := record.bytes(), record.namespace()
	own := w.tenants[namespace]
	if w.waiting+bytes > queuedBytes || own.bytes+bytes > namespaceBytes || own.lines == namespaceLines {
		return w.drop()
	}
	select {
	case w.lines <- record:
		w.waiting += bytes
		w.tenants[namespace] = share{lines: own.lines + 1, bytes: own.bytes + bytes}
		return true
	default:
		return w.drop()
	}
}

// drop counts a line that is lost. The caller holds the lock.
func (w *Writer) drop() (queued bool) {
	w.dropped++
	if w.options.Metrics != nil {
		w.options.Metrics.dropped.Inc()
	}
	return false
}

// write encodes a line that was queued.
func (w *Writer) write(encoder *json.Encoder, record Record) error {
	w.taken(record)
	if err := encoder.Encode(record); err != nil {
		return fmt.Errorf("writing the decision log: %w", err)
	}
	return nil
}

// taken records that a line does not wait any more.
func (w *Writer) taken(record Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	bytes, namespace := record.bytes(), record.namespace()
	w.waiting -= bytes
	own := w.tenants[namespace]
	if own.lines, own.bytes = own.lines-1, own.bytes-bytes; own.lines == 0 {
		delete(w.tenants, namespace)
	} else {
		w.tenants[namespace] = own
	}
}

// Dropped returns how many lines were lost because the disk was too slow.
func (w *Writer) Dropped() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}

// reportDropped is the interval at which lost lines are reported.
const reportDropped = time.Minute

// Run writes lines to out until ctx ends, and then the queued lines. A line that cannot be
// written is reported, and ends the log but nothing else.
func (w *Writer) Run(ctx context.Context, out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	ticker := time.NewTicker(reportDropped)
	defer ticker.Stop()
	reported := 0
	for {
		select {
		case record := <-w.lines:
			if err := w.write(encoder, record); err != nil {
				return err
			}
		case <-ticker.C:
			if dropped := w.Dropped(); dropped > reported {
				ctrllog.FromContext(ctx).Info("Decisions are missing in the log: the disk is too slow", "lines", dropped-reported)
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
			if err := w.write(encoder, record); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func ruleName(rule rule.RuleID) string { return rule.Ruleset.Namespace + "/" + rule.String() }
