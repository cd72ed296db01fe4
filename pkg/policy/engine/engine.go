package engine

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

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"k8s.io/utils/lru"

	"github.com/podops-dev/podops/pkg/policy/compile"
	"github.com/podops-dev/podops/policies"
)

// Defaults of Options.
const (
	// defaultTimeout is generous: a batch takes tens of milliseconds on a slow machine.
	defaultTimeout = time.Second

	defaultCustomTimeout = 100 * time.Millisecond
	defaultRoundBudget   = time.Second

	// defaultPrograms bounds the cache to about 100 MiB, at 200 KB a program.
	defaultPrograms = 512

	// defaultFacts bounds the cache to about 80 MiB.
	defaultFacts = 20000
)

// Options of an Engine. Fields that are zero take their defaults.
type Options struct {
	// Timeout of one batch of built-in rules, which is up to 256 requests. Default: 1 s.
	Timeout time.Duration

	// CustomTimeout is how long a user's module may take for one request. Default: 100 ms.
	CustomTimeout time.Duration

	// RoundBudget is how long one Evaluate of a user's module may take for all of its requests. The
	// last one may exceed it by its CustomTimeout. Default: 1 s.
	RoundBudget time.Duration

	// Concurrency is how many requests user's modules are asked about at the same time, over all
	// programs. Default: one less than GOMAXPROCS, which leaves a core to admission; at least 1.
	Concurrency int

	// Programs is how many compiled programs are remembered. Rules that differ in no more than their
	// numbers, labels and parameters share one. Default: 512.
	Programs int

	// Facts is how many pods are remembered in the form that Rego reads, over all programs.
	// Default: 20000.
	Facts int

	// Observe is called once for each evaluation of Rego, when it is over; nil is not called. It
	// must not block.
	Observe func(Observation)

	// AskAlike has every request put to Rego, also those that look like another one to a built-in
	// rule: an observer that wants to see each of them needs it.
	AskAlike bool

	// Precompile is asked about each user's module before this process compiles it, since a
	// compiler cannot be stopped: a child process can. An error refuses the module. nil asks nobody.
	Precompile func(ctx context.Context, source string, parametersSchema json.RawMessage) error
}

// Engine prepares rules for evaluation. It is safe for concurrent use.
type Engine struct {
	options      Options
	capabilities *ast.Capabilities
	library      *library
	facts        *facts

	// schema is that of the input of a user's module, as JSON.
	schema map[string]any

	// shapes holds *shape by shapeKey.
	shapes       *lru.Cache
	compilations atomic.Int64

	// customQueries are the decisions about user's modules, by entry point.
	customMu      sync.Mutex
	customQueries map[compile.Entry]rego.PreparedEvalQuery

	// slots has room for as many evaluations of user's modules as may run at the same time.
	slots    chan struct{}
	runaways atomic.Int64
}

// New returns an Engine over the Rego library that is part of the binary.
func New(options Options) (*Engine, error) {
	options.Timeout = cmp.Or(options.Timeout, defaultTimeout)
	options.CustomTimeout = cmp.Or(options.CustomTimeout, defaultCustomTimeout)
	options.RoundBudget = cmp.Or(options.RoundBudget, defaultRoundBudget)
	options.Concurrency = max(1, cmp.Or(options.Concurrency, runtime.GOMAXPROCS(0)-1))
	allowed := capabilities()
	parsed, err := parseLibrary(policies.Library(), ast.ParserOptions{Capabilities: allowed})
	if err != nil {
		return nil, err
	}
	schema := map[string]any{}
	if err := json.Unmarshal(policies.InputSchema(), &schema); err != nil {
		return nil, fmt.Errorf("reading the schema of the input: %w", err)
	}
	return &Engine{
		options:       options,
		capabilities:  allowed,
		library:       parsed,
		facts:         newFacts(cmp.Or(options.Facts, defaultFacts)),
		schema:        schema,
		shapes:        lru.New(cmp.Or(options.Programs, defaultPrograms)),
		customQueries: map[compile.Entry]rego.PreparedEvalQuery{},
		slots:         make(chan struct{}, options.Concurrency),
	}, nil
}

// Prepare makes a rule ready to be asked. It compiles only what no rule before had: all rules of a
// built-in kind share one compiled program, and so do rules with the same user's module and schema
// of parameters. What a rule says is a document of its own.
//
// A user's module that does not compile is a *CompileError; ctx does not interrupt the compiler. Two
// calls at the same time may both compile, which costs time and nothing else.
func (e *Engine) Prepare(ctx context.Context, module compile.Module) (program *Program, err error) {
	defer func() {
		if value := recover(); value != nil {
			program, err = nil, &PanicError{Value: value, Stack: debug.Stack()}
		}
		if err != nil {
			err = fmt.Errorf("preparing rule %q: %w", module.ID, err)
		}
	}()
	found, err := e.shapeOf(ctx, keyOf(module))
	if err != nil {
		return nil, err
	}
	return e.program(module, found)
}

// program is a rule of a shape.
func (e *Engine) program(module compile.Module, of *shape) (*Program, error) {
	made := &Program{
		id: module.ID, kind: module.Kind, stage: module.Stage, enforcement: module.Enforcement,
		shape: of, engine: e, custom: module.Custom != nil,
	}
	var err error
	if made.rule, err = objectOf(module.Literal); err != nil {
		return nil, fmt.Errorf("reading the literal: %w", err)
	}
	if module.Custom == nil {
		seen, err := lensOf(module.Kind, module.Literal)
		made.sights = &sights{lens: seen, counted: made.VerdictsNeedCounts()}
		return made, err
	}
	if module.Custom.Entry != of.entry {
		return nil, fmt.Errorf("the entry point of the module is %q, not %q", of.entry, module.Custom.Entry)
	}
	if made.parameters, err = objectOf(module.Custom.Parameters); err != nil {
		return nil, fmt.Errorf("reading the parameters: %w", err)
	}
	return made, nil
}

// Compilations is how many programs were compiled so far.
func (e *Engine) Compilations() int { return int(e.compilations.Load()) }

// Runaways is how many evaluations of user's modules still run although their verdict was given at
// the deadline. Each of them burns a core until it ends by itself. A module of which one runs is
// not asked, so there is at most one of them per module and slot.
func (e *Engine) Runaways() int { return int(e.runaways.Load()) }
