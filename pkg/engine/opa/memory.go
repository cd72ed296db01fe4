package opa

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa/vet"
	"github.com/podops-dev/podops/pkg/runtime/fairshare"
)

// memory is the cache of everything that an Engine can make again, bounded in bytes. Owners are
// namespaces and PodTransitionPolicies.
type memory = fairshare.Cache[any, any]

// programKey is the cache key of a compiled module: the source of its moduleInfo.
type programKey string

// documentKey is the cache key for the documents that one rule reads, with their JSON.
type documentKey struct{ namespace, literal, parameters string }

// Memory returns the bytes of all that is cached. It is never above Options.Memory.
func (e *Engine) Memory() int64 { return e.memory.Bytes() }

// MemoryUsedBy returns the part of Memory that an owner is charged for.
func (e *Engine) MemoryUsedBy(owner string) int64 { return e.memory.BytesUsedBy(owner) }

// Bytes of compiled modules. An estimate that is too small harms only the process of a worker, which ends when it uses too
// much.
const (
	moduleBytes     = 64 << 10
	moduleByteBytes = 128
)

// estimate returns the approximate memory of a compiled module.
func estimate(module string) int64 { return moduleBytes + moduleByteBytes*int64(len(module)) }

// Sizes of document terms in bytes, as a test measures them.
const (
	scalarBytes     = 100
	collectionBytes = 300
)

// documentBytes returns approximately the memory of JSON with its terms, and not less.
func documentBytes(document json.RawMessage) int64 {
	scalars := bytes.Count(document, []byte(",")) + bytes.Count(document, []byte(":")) + 1
	collections := bytes.Count(document, []byte("[")) + bytes.Count(document, []byte("{"))
	return int64(2*len(document) + scalarBytes*scalars + collectionBytes*collections)
}

// infoKey is the cache key of a moduleInfo: the source of the module.
type infoKey string

// infoBytes is about the size of a moduleInfo besides its text.
const infoBytes = 2 << 10

// knownInfo returns the moduleInfo of a source; nil when it is not cached. Programs that use it keep it in memory.
func (e *Engine) knownInfo(source string) *moduleInfo {
	known, _ := e.memory.Get(infoKey(source))
	found, _ := known.(*moduleInfo)
	return found
}

// keepInfo caches a moduleInfo, at the expense of owner.
func (e *Engine) keepInfo(owner string, made *moduleInfo) *moduleInfo {
	e.memory.Add(owner, infoKey(made.source), made, infoBytes+int64(len(made.key.module)+len(made.key.schema)))
	return made
}

// moduleInfoFor returns the moduleInfo of a user's module. It compiles the module on first use, at the expense
// of owner.
func (e *Engine) moduleInfoFor(ctx context.Context, owner string, key compiledKey) (*moduleInfo, error) {
	if known := e.knownInfo(key.hash()); known != nil {
		return known, nil
	}
	if err := vet.CheckSize(key.module); err != nil {
		return nil, vet.AsCompileError(err)
	}
	source := Source{Owner: owner, Module: key.module, ParametersSchema: json.RawMessage(key.schema)}
	if e.options.Workers != nil {
		found, err := e.options.Workers.Inspect(ctx, source)
		if err != nil {
			return nil, vet.AsCompileError(err)
		}
		if e.options.WholeInput {
			found.Needs = found.Needs.All()
		}
		return e.keepInfo(owner, &moduleInfo{key: key, source: key.hash(), Inspection: found}), nil
	}
	made, err := e.compileAndKeep(ctx, owner, key)
	if err != nil {
		return nil, vet.AsCompileError(err)
	}
	return made.moduleInfo, nil
}

// compiledModule returns the program of a moduleInfo, and compiles it again if it is no longer cached.
func (e *Engine) compiledModule(ctx context.Context, owner string, of *moduleInfo) (*compiled, error) {
	if known, ok := e.memory.Get(programKey(of.source)); ok {
		return known.(*compiled), nil
	}
	return e.compileAndKeep(ctx, owner, of.key)
}

// compileAndKeep compiles a user's module in this process.
func (e *Engine) compileAndKeep(ctx context.Context, owner string, key compiledKey) (*compiled, error) {
	made, err := e.compileModule(ctx, key)
	if err != nil {
		return nil, err
	}
	e.compilations.Add(1)
	e.keepInfo(owner, made.moduleInfo)
	e.memory.Add(owner, programKey(made.source), made, estimate(key.module))
	return made, nil
}

// documents are the literal and the parameters of a rule as terms, which take twenty times the
// memory of their JSON.
type documents struct {
	rule, parameters *ast.Term
}

// documents parses the JSON of a rule if its terms are not cached.
func (e *Engine) documents(namespace string, literal, parameters json.RawMessage) (documents, error) {
	key := documentKey{namespace: namespace, literal: string(literal), parameters: string(parameters)}
	if known, ok := e.memory.Get(key); ok {
		return known.(documents), nil
	}
	var read documents
	var err error
	if read.rule, err = parseObject(literal); err != nil {
		return documents{}, fmt.Errorf("reading the literal: %w", err)
	}
	if read.parameters, err = parseObject(parameters); err != nil {
		return documents{}, fmt.Errorf("reading the parameters: %w", err)
	}
	e.memory.Add(namespace, key, read, documentBytes(literal)+documentBytes(parameters))
	return read, nil
}

// documents returns the documents of the rule.
func (p *Program) documents() (documents, error) {
	return p.engine.documents(p.id.Ruleset.Namespace, p.literal, p.parameters)
}

// Sizes of pod terms in bytes, as a test measures them.
const (
	podTermBytes   = 2400
	entryTermBytes = 170

	// A container of the details has its image in parts, and two objects of quantities. A condition is as large as a quantity.
	containerTermBytes = 2600
	conditionTermBytes = 700
)

// podBytes returns approximately how much memory a pod term takes, with or without details.
func podBytes(pod *rule.PodFact, details bool) int64 {
	size := podTermBytes + len(pod.Name) + len(pod.Namespace) + len(pod.UID) + len(pod.Node)
	for _, entries := range []map[string]string{pod.Labels, pod.Annotations} {
		for key, value := range entries {
			size += entryTermBytes + len(key) + len(value)
		}
	}
	for _, rule := range pod.SkipRules {
		size += entryTermBytes + len(rule)
	}
	if details {
		for i := range pod.Details.Conditions {
			size += conditionTermBytes + len(pod.Details.Conditions[i].Type) + len(pod.Details.Conditions[i].Reason)
		}
		for i := range pod.Details.Containers {
			c := &pod.Details.Containers[i]
			size += containerTermBytes + len(c.Name) + len(c.Image) + conditionTermBytes*(len(c.Resources.Requests)+len(c.Resources.Limits))
		}
	}
	return int64(size)
}
