package opa

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/podops-dev/podops/pkg/fairshare"
	"github.com/podops-dev/podops/pkg/heapsize"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/rule/spec"
	"github.com/podops-dev/podops/policies"
)

// Defaults of Options.
const (
	// defaultTimeout is generous: a batch takes tens of milliseconds on a slow machine.
	defaultTimeout = time.Second

	defaultCustomTimeout = 100 * time.Millisecond
	defaultRoundBudget   = time.Second

	// defaultMemory has room for some hundred ordinary modules and the pods that they are asked about.
	defaultMemory = 128 << 20

	// maxCompilers is how many modules this process compiles at the same time at most: one takes up to
	// 100 MiB for a moment.
	maxCompilers = 2
)

// Options of an Engine. Fields that are zero take their defaults.
type Options struct {
	// Timeout of one batch of built-in rules, which is up to 256 requests. Default: 1 s.
	Timeout time.Duration

	// CustomTimeout is how much CPU time a user's module may use for one request. On a busy machine
	// that may take ten times as long on the wall. Default: 100 ms.
	CustomTimeout time.Duration

	// RoundBudget is how long one Evaluate of a user's module may take on the wall for all of its
	// requests. The last one may exceed it by its own time. Default: 1 s.
	RoundBudget time.Duration

	// Concurrency is how many requests user's modules are asked about at the same time, over all
	// programs. Default: GOMAXPROCS, at least 2. Half of it, at least 1, is for contexts of
	// WithSlowLane.
	Concurrency int

	// Memory bounds the bytes of all that is remembered: compiled modules of users, the literals and
	// parameters of rules and the pods in the form that Rego reads, and verdicts of built-in rules.
	// Namespaces and PodTransitionPolicies share it fairly. What does not fit is made again when it is
	// needed. Default: 128 MiB.
	Memory int64

	// Observe is called once for each evaluation of Rego, when it is over; nil is not called. It
	// must not block.
	Observe func(Observation)

	// AskAlike has every request put to Rego, also those that look like another one to a built-in
	// rule: an observer that wants to see each of them needs it.
	AskAlike bool

	// Precompile is called with each user's module before this process compiles it for the first time,
	// since a compiler cannot be stopped: a child process can. An error refuses the module. nil is not
	// called.
	Precompile func(ctx context.Context, source Source) error
}

// Source is a module of a user.
type Source struct {
	// Owner is charged for what checking and compiling the module takes: a namespace, or
	// spec.PolicyOwner of a PodTransitionPolicy.
	Owner string

	// Module is its text.
	Module string

	// ParametersSchema is a JSON schema of the parameters; nil leaves them open.
	ParametersSchema json.RawMessage
}

// Engine prepares rules for evaluation. It is safe for concurrent use.
type Engine struct {
	options      Options
	capabilities *ast.Capabilities
	library      *library
	facts        *facts

	// schema is that of the input of a user's module, as JSON.
	schema map[string]any

	// memory holds *compiled by programKey, documents by documentKey, versionedPod by podKey and
	// *cachedVerdicts by cacheKey.
	memory *memory

	// sizer measures what a compiled module keeps alive besides what all of them share.
	sizer *heapsize.Sizer

	// shapes are those of user's modules that are in use.
	shapes shapes

	// compilers are the slots for compiling user's modules.
	compilers    *fairshare.Slots
	compilations atomic.Int64

	// libraryMu guards what is compiled once for all rules: the built-in kinds, and the decisions about
	// user's modules by entry point.
	libraryMu     sync.Mutex
	builtIn       map[rule.Kind]*compiled
	customQueries map[spec.Entry]rego.PreparedEvalQuery

	slots    slots
	runaways atomic.Int64
}

// New returns an Engine over the Rego library that is part of the binary.
func New(options Options) (*Engine, error) {
	options.Timeout = cmp.Or(options.Timeout, defaultTimeout)
	options.CustomTimeout = cmp.Or(options.CustomTimeout, defaultCustomTimeout)
	options.RoundBudget = cmp.Or(options.RoundBudget, defaultRoundBudget)
	options.Concurrency = cmp.Or(options.Concurrency, max(2, runtime.GOMAXPROCS(0)))
	allowed := capabilities()
	parsed, err := parseLibrary(policies.Library(), ast.ParserOptions{Capabilities: allowed})
	if err != nil {
		return nil, err
	}
	schema := map[string]any{}
	if err := json.Unmarshal(policies.InputSchema(), &schema); err != nil {
		return nil, fmt.Errorf("reading the schema of the input: %w", err)
	}
	remembered := fairshare.NewCache[any, any](cmp.Or(options.Memory, defaultMemory))
	return &Engine{
		options:       options,
		capabilities:  allowed,
		library:       parsed,
		facts:         newFacts(remembered),
		schema:        schema,
		memory:        remembered,
		sizer:         newSizer(allowed, schema),
		shapes:        shapes{known: map[string]weak.Pointer[shape]{}},
		compilers:     fairshare.NewSlots(fairshare.SlotOptions{Slots: min(maxCompilers, max(1, runtime.GOMAXPROCS(0)-1))}),
		builtIn:       map[rule.Kind]*compiled{},
		customQueries: map[spec.Entry]rego.PreparedEvalQuery{},
		slots:         newSlots(options.Concurrency, max(1, options.Concurrency/2)),
	}, nil
}

// Prepare makes a rule ready to be asked. It compiles only what no rule before had: all rules of a
// built-in kind share one compiled program, and so do rules with the same user's module and schema
// of parameters. What a rule says is a document of its own.
//
// A user's module that does not compile is a *CompileError; ctx does not interrupt the compiler, and
// ends the wait for it.
func (e *Engine) Prepare(ctx context.Context, module spec.Module) (program *Program, err error) {
	defer func() {
		if value := recover(); value != nil {
			program, err = nil, &PanicError{Value: value, Stack: debug.Stack()}
		}
		if err != nil {
			err = fmt.Errorf("preparing rule %q: %w", module.ID, err)
		}
	}()
	if module.Custom == nil {
		pinned, err := e.builtInOf(ctx, module.Kind)
		if err != nil {
			return nil, err
		}
		return e.program(module, pinned.shape, pinned)
	}
	found, err := e.shapeOf(ctx, module.Owner(), keyOf(module))
	if err != nil {
		return nil, err
	}
	return e.program(module, found, nil)
}

// program is a rule of a shape. pinned is the program of a built-in kind, and nil for all others.
func (e *Engine) program(module spec.Module, of *shape, pinned *compiled) (*Program, error) {
	made := &Program{
		id: module.ID, kind: module.Kind, stage: module.Stage, enforcement: module.Enforcement,
		shape: of, pinned: pinned, owner: module.Owner(), engine: e, custom: module.Custom != nil,
		literal: module.Literal,
	}
	if module.Custom == nil {
		seen, err := lensOf(module.Kind, module.Literal)
		if err != nil {
			return nil, err
		}
		made.verdictCache = newVerdictCache(e.memory, module.ID.Object.Namespace, seen, made.VerdictsNeedCounts())
	} else {
		if module.Custom.Entry != of.entry {
			return nil, fmt.Errorf("the entry point of the module is %q, not %q", of.entry, module.Custom.Entry)
		}
		made.parameters = module.Custom.Parameters
	}
	_, err := made.documents()
	return made, err
}

// Compilations is how many programs were compiled so far.
func (e *Engine) Compilations() int { return int(e.compilations.Load()) }

// Runaways is how many evaluations of user's modules still run although their verdict was given at
// the deadline. Each of them burns a core until it ends by itself. A module of which one runs is
// not asked, so there is at most one of them per module and slot.
func (e *Engine) Runaways() int { return int(e.runaways.Load()) }
