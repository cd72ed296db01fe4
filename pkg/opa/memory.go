package opa

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"weak"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/pkg/fairshare"
	"github.com/podops-dev/podops/pkg/heapsize"
	"github.com/podops-dev/podops/pkg/opa/vet"
	"github.com/podops-dev/podops/pkg/rule"
)

// memory is the cache of everything that an Engine can make again, bounded in bytes. Owners are
// namespaces and PodTransitionPolicies.
type memory = fairshare.Cache[any, any]

// programKey is the cache key of a compiled module: the source of its moduleInfo.
type programKey string

// documentKey is the cache key of the documents of one rule.
type documentKey struct{ of *Program }

// Memory returns the bytes of all that is cached. It is never above Options.Memory.
func (e *Engine) Memory() int64 { return e.memory.Bytes() }

// MemoryOf returns the part of Memory that an owner is charged for.
func (e *Engine) MemoryOf(owner string) int64 { return e.memory.BytesOf(owner) }

// newSizer returns a Sizer of compiled modules. Modules share the data that a compiler reads and
// the query of the library. Their terms refer to the text of the module, which counts once, as a
// part of the moduleInfo.
func newSizer(shared ...any) *heapsize.Sizer {
	return heapsize.New(heapsize.Options{
		Shared: append(shared, ast.BuiltinMap),
		Skip: map[reflect.Type]string{
			reflect.TypeFor[ast.Location](): "Text",
			reflect.TypeFor[compiled]():     "query",
		},
	})
}

// moduleInfos has one moduleInfo for each key that a Program or the memory of the engine refers to, so that
// all evaluations of a module share their count of runaways.
type moduleInfos struct {
	mu    sync.Mutex
	known map[string]weak.Pointer[moduleInfo]
}

// get returns the moduleInfo of a source, or nil.
func (s *moduleInfos) get(source string) *moduleInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[source].Value()
}

// put adds a moduleInfo, and returns it; or, for a source that is known, the existing moduleInfo.
func (s *moduleInfos) put(made *moduleInfo) *moduleInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.known[made.source].Value(); known != nil {
		return known
	}
	s.known[made.source] = weak.Make(made)
	runtime.AddCleanup(made, s.drop, made.source)
	return made
}

// drop deletes the entry of a source that is no longer referenced.
func (s *moduleInfos) drop(source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[source].Value() == nil {
		delete(s.known, source)
	}
}

// infoOf returns the moduleInfo of a user's module. It compiles the module on first use, at the expense
// of owner.
func (e *Engine) infoOf(ctx context.Context, owner string, key compiledKey) (*moduleInfo, error) {
	if known := e.infos.get(key.hash()); known != nil {
		return known, nil
	}
	if err := vet.CheckSize(key.module); err != nil {
		return nil, vet.AsCompileError(err)
	}
	if e.options.Precompile != nil {
		source := Source{Owner: owner, Module: key.module, ParametersSchema: json.RawMessage(key.schema)}
		if err := e.options.Precompile(ctx, source); err != nil {
			return nil, vet.AsCompileError(err)
		}
	}
	made, err := e.compileAndKeep(ctx, owner, key)
	if err != nil {
		return nil, vet.AsCompileError(err)
	}
	return made.moduleInfo, nil
}

// compiledOf returns the program of a moduleInfo, and compiles it again if it is no longer cached.
func (e *Engine) compiledOf(ctx context.Context, owner string, of *moduleInfo) (*compiled, error) {
	if known, ok := e.memory.Get(programKey(of.source)); ok {
		return known.(*compiled), nil
	}
	return e.compileAndKeep(ctx, owner, of.key)
}

// compileAndKeep compiles a user's module when a slot is free. The owner that compiles most waits
// longest.
func (e *Engine) compileAndKeep(ctx context.Context, owner string, key compiledKey) (*compiled, error) {
	release, err := e.compilers.Acquire(ctx, owner)
	if err != nil {
		return nil, fmt.Errorf("waiting for the compiler: %w", err)
	}
	defer release()
	if known, ok := e.memory.Get(programKey(key.hash())); ok {
		return known.(*compiled), nil
	}
	made, err := e.compileModule(ctx, key)
	if err != nil {
		return nil, err
	}
	e.compilations.Add(1)
	made.moduleInfo = e.infos.put(made.moduleInfo)
	e.memory.Add(owner, programKey(made.source), made, e.sizer.Of(made))
	return made, nil
}

// compiled returns the compiled program of a rule.
func (p *Program) compiled(ctx context.Context) (*compiled, error) {
	if p.pinned != nil {
		return p.pinned, nil
	}
	found, err := p.engine.compiledOf(ctx, p.owner, p.info)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return nil, errNotReached
	}
	return found, err
}

// documents are the literal and the parameters of a rule as terms, which take twenty times the
// memory of their JSON.
type documents struct {
	rule, parameters *ast.Term
}

// documents parses the JSON of a rule if its terms are not cached.
func (p *Program) documents() (documents, error) {
	if known, ok := p.engine.memory.Get(documentKey{p}); ok {
		return known.(documents), nil
	}
	var read documents
	var err error
	if read.rule, err = objectOf(p.literal); err != nil {
		return documents{}, fmt.Errorf("reading the literal: %w", err)
	}
	if read.parameters, err = objectOf(p.parameters); err != nil {
		return documents{}, fmt.Errorf("reading the parameters: %w", err)
	}
	bytes := int64(len(p.literal)+len(p.parameters)) + p.engine.sizer.Of(read.rule) + p.engine.sizer.Of(read.parameters)
	p.engine.memory.Add(p.id.Ruleset.Namespace, documentKey{p}, read, bytes)
	return read, nil
}

// Bytes of the terms of a pod, as a test measures them.
const (
	podTermBytes   = 2400
	entryTermBytes = 170
)

// podBytes returns the approximate memory of the term of a pod.
func podBytes(pod *rule.PodFact, whole bool) int64 {
	bytes := podTermBytes + len(pod.Name) + len(pod.Namespace) + len(pod.UID) + len(pod.Node)
	held := []map[string]string{pod.Labels}
	if whole {
		held = append(held, pod.Annotations)
	}
	for _, entries := range held {
		for key, value := range entries {
			bytes += entryTermBytes + len(key) + len(value)
		}
	}
	for _, rule := range pod.SkipRules {
		bytes += entryTermBytes + len(rule)
	}
	return int64(bytes)
}
