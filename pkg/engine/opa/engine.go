package opa

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa/vet"
	"github.com/podops-dev/podops/pkg/runtime/fairshare"
	"github.com/podops-dev/podops/policies"
)

// Defaults of Options.
const (
	// defaultTimeout is wall-clock time and generous: a batch takes tens of milliseconds, but a node may
	// be busy, and a limit of CPU may stop the process for a while.
	defaultTimeout = 10 * time.Second

	defaultCustomTimeout = 100 * time.Millisecond

	// roundBudgetFactor times CustomTimeout is the default of RoundBudget.
	roundBudgetFactor = 10

	// defaultMemory holds some hundred ordinary modules and the pods that they are evaluated for.
	defaultMemory = 128 << 20
)

// Options configures an Engine. Fields that are zero take their defaults.
type Options struct {
	// Timeout is the time limit for one batch of a built-in rule, with up to 256 requests. Default:
	// 10 s.
	Timeout time.Duration

	// CustomTimeout is the CPU time that a user's module may use for one request. Default: 100 ms.
	CustomTimeout time.Duration

	// RoundBudget is the wall-clock time that one Evaluate of a user's module may take for all of
	// its requests. The last request may exceed it by its own CPU time. Default: 10 times CustomTimeout.
	RoundBudget time.Duration

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

	// Workers compile and evaluate users' modules; nil: this process does. With Workers it neither parses,
	// compiles nor evaluates any, except for Trace.
	Workers Workers
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

	// schema is the JSON schema for the input of a user's module.
	schema map[string]any

	// memory holds *moduleInfo by infoKey, *compiled by programKey, documents by documentKey, versionedPod by podKey and
	// *cachedVerdicts by cacheKey.
	memory *memory

	compilations atomic.Int64

	// libraryMu guards the programs that are compiled once for all rules: the programs of the
	// built-in kinds, and the queries that decide about users' modules, by entry point.
	libraryMu     sync.Mutex
	builtIn       map[rule.Kind]*compiled
	customQueries map[spec.Entry]rego.PreparedEvalQuery
}

// New returns an Engine with the Rego library that is part of the binary.
func New(options Options) (*Engine, error) {
	options.Timeout = cmp.Or(options.Timeout, defaultTimeout)
	options.CustomTimeout = cmp.Or(options.CustomTimeout, defaultCustomTimeout)
	options.RoundBudget = cmp.Or(options.RoundBudget, roundBudgetFactor*options.CustomTimeout)
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
		terms:         &termCache{memory: remembered},
		schema:        schema,
		memory:        remembered,
		builtIn:       map[rule.Kind]*compiled{},
		customQueries: map[spec.Entry]rego.PreparedEvalQuery{},
	}, nil
}

// Prepare returns the Program of a rule. It compiles only new programs: all rules of a built-in
// kind share a program, and so do rules with the same user's module and schema of parameters. The
// literal of the rule is a separate document.
//
// A user's module that does not compile is a *CompileError. ctx does not interrupt the compiler of this process.
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
		pinned, err := e.compiledBuiltIn(ctx, module.Kind)
		if err != nil {
			return nil, err
		}
		return e.program(module, pinned.moduleInfo, pinned)
	}
	found, err := e.moduleInfoFor(ctx, module.Owner(), newCompiledKey(module))
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
		seen, err := newProjection(module.Kind, module.Literal)
		if err != nil {
			return nil, err
		}
		made.verdictCache = newVerdictCache(e.memory, module.ID.Ruleset.Namespace, seen, made.VerdictsNeedCounts())
	} else {
		if module.Custom.Entry != of.Entry {
			return nil, fmt.Errorf("the entry point of the module is %q, not %q", of.Entry, module.Custom.Entry)
		}
		made.parameters = module.Custom.Parameters
		if e.options.Workers != nil {
			return made, nil // the worker reads them
		}
	}
	_, err := made.documents()
	return made, err
}

// Compilations returns how many programs were compiled so far.
func (e *Engine) Compilations() int { return int(e.compilations.Load()) }
