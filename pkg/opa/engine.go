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
	"github.com/podops-dev/podops/pkg/opa/vet"
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

	// defaultMemory holds some hundred ordinary modules and the pods that they are evaluated for.
	defaultMemory = 128 << 20

	// maxCompilers is the maximum number of modules that this process compiles at the same time:
	// each takes up to 100 MiB while it is compiled.
	maxCompilers = 2
)

// Options configures an Engine. Fields that are zero take their defaults.
type Options struct {
	// Timeout is the time limit of one batch of a built-in rule, of up to 256 requests. Default: 1
	// s.
	Timeout time.Duration

	// CustomTimeout is the CPU time that a user's module may use for one request. On a busy machine
	// that may be ten times as long in wall-clock time. Default: 100 ms.
	CustomTimeout time.Duration

	// RoundBudget is the wall-clock time that one Evaluate of a user's module may take for all of
	// its requests. The last request may exceed it by its own CPU time. Default: 1 s.
	RoundBudget time.Duration

	// Concurrency is the number of evaluations of users' modules that run at the same time,
	// over all programs. Default: GOMAXPROCS, at least 2. Half of it, at least 1, is for
	// contexts of WithSlowLane.
	Concurrency int

	// Memory bounds the bytes of all caches: compiled modules of users, the literals and parameters
	// of rules and the pods as Rego terms, and verdicts of built-in rules. Namespaces and
	// PodTransitionPolicies share it fairly. Evicted entries are made again when they are needed.
	// Default: 128 MiB.
	Memory int64

	// Observe is called once for each batch of requests that a program has evaluated, with the input and
	// decision of all of them, cached or not; nil is not called. It does not change how verdicts are
	// made: Rego evaluates the batch again for it. It must not block.
	Observe func(Observation)

	// WholeInput gives users' modules the whole input, also the parts that they do not read. It costs time
	// for all pods with each evaluation, and is for showing the input.
	WholeInput bool

	// Precompile is called with each user's module before this process compiles it for the first
	// time, since only a child process can be stopped while it compiles. An error rejects the
	// module. nil is not called.
	Precompile func(ctx context.Context, source Source) error
}

// Source is a user's module.
type Source struct {
	// Owner is charged for checking and compiling the module: a namespace, or spec.PolicyOwner of a
	// PodTransitionPolicy.
	Owner string

	// Module is the Rego text.
	Module string

	// ParametersSchema is a JSON schema of the parameters; nil leaves them open.
	ParametersSchema json.RawMessage
}

// Engine prepares rules for evaluation. It is safe for concurrent use.
type Engine struct {
	options      Options
	capabilities *ast.Capabilities
	library      *library
	terms        *termCache

	// schema is the JSON schema of the input of a user's module.
	schema map[string]any

	// memory holds *compiled by programKey, documents by documentKey, versionedPod by podKey and
	// *cachedVerdicts by cacheKey.
	memory *memory

	// sizer measures the memory of a compiled module without the parts that all modules share.
	sizer *heapsize.Sizer

	// infos has an entry for each user's module that is in use.
	infos moduleInfos

	// compilers are the slots for compiling users' modules.
	compilers    *fairshare.Slots
	compilations atomic.Int64

	// libraryMu guards the programs that are compiled once for all rules: the programs of the
	// built-in kinds, and the queries that decide about users' modules, by entry point.
	libraryMu     sync.Mutex
	builtIn       map[rule.Kind]*compiled
	customQueries map[spec.Entry]rego.PreparedEvalQuery

	slots    slots
	runaways atomic.Int64
}

// New returns an Engine with the Rego library that is part of the binary.
func New(options Options) (*Engine, error) {
	options.Timeout = cmp.Or(options.Timeout, defaultTimeout)
	options.CustomTimeout = cmp.Or(options.CustomTimeout, defaultCustomTimeout)
	options.RoundBudget = cmp.Or(options.RoundBudget, defaultRoundBudget)
	options.Concurrency = cmp.Or(options.Concurrency, max(2, runtime.GOMAXPROCS(0)))
	allowed := vet.Capabilities()
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
		terms:         newTermCache(remembered),
		schema:        schema,
		memory:        remembered,
		sizer:         newSizer(allowed, schema),
		infos:         moduleInfos{known: map[string]weak.Pointer[moduleInfo]{}},
		compilers:     fairshare.NewSlots(fairshare.SlotOptions{Slots: min(maxCompilers, max(1, runtime.GOMAXPROCS(0)-1))}),
		builtIn:       map[rule.Kind]*compiled{},
		customQueries: map[spec.Entry]rego.PreparedEvalQuery{},
		slots:         newSlots(options.Concurrency, max(1, options.Concurrency/2)),
	}, nil
}

// Prepare returns the Program of a rule. It compiles only new programs: all rules of a built-in
// kind share a program, and so do rules with the same user's module and schema of parameters. The
// literal of the rule is a separate document.
//
// A user's module that does not compile is a *CompileError. ctx ends the wait for the compiler, and
// does not interrupt it.
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
		return e.program(module, pinned.moduleInfo, pinned)
	}
	found, err := e.infoOf(ctx, module.Owner(), keyOf(module))
	if err != nil {
		return nil, err
	}
	return e.program(module, found, nil)
}

// program returns a rule of a moduleInfo. pinned is the program of a built-in kind, and nil for all
// others.
func (e *Engine) program(module spec.Module, of *moduleInfo, pinned *compiled) (*Program, error) {
	made := &Program{
		id: module.ID, kind: module.Kind, stage: module.Stage, enforcement: module.Enforcement,
		info: of, pinned: pinned, owner: module.Owner(), engine: e, custom: module.Custom != nil,
		literal: module.Literal,
	}
	if module.Custom == nil {
		seen, err := projectionOf(module.Kind, module.Literal)
		if err != nil {
			return nil, err
		}
		made.verdictCache = newVerdictCache(e.memory, module.ID.Ruleset.Namespace, seen, made.VerdictsNeedCounts())
	} else {
		if module.Custom.Entry != of.entry {
			return nil, fmt.Errorf("the entry point of the module is %q, not %q", of.entry, module.Custom.Entry)
		}
		made.parameters = module.Custom.Parameters
	}
	_, err := made.documents()
	return made, err
}

// Compilations returns how many programs were compiled so far.
func (e *Engine) Compilations() int { return int(e.compilations.Load()) }

// Runaways returns how many evaluations of users' modules still run although their verdict was
// given at the deadline. Each of them uses a core until it ends. A module with a running
// evaluation is not evaluated again, so a module has at most one runaway per slot.
func (e *Engine) Runaways() int { return int(e.runaways.Load()) }
