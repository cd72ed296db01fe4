// Package observation keeps the inputs for which the modules of rules are evaluated.
package observation

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// Log keeps the modules of rules, and their inputs. It is safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	modules map[rule.RuleID]spec.Module
	inputs  []Input
}

// Input is the input of a module for a pod.
type Input struct {
	// Module is the module of the rule. It has its ID only for a rule that cannot be evaluated, such as one whose policy is
	// missing: no pod passes it.
	Module         spec.Module
	Namespace, Pod string

	// Document is the input document.
	Document json.RawMessage
}

// New returns an empty Log.
func New() *Log { return &Log{modules: map[rule.RuleID]spec.Module{}} }

// Prepared keeps the module of a rule: offline.Options.Prepared.
func (l *Log) Prepared(module spec.Module) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.modules[module.ID] = module
}

// Observe keeps the input that a module is evaluated for (opa.Options.Observe). The last input for a pod counts: a rule that
// reads other pods is evaluated again right before the permit.
func (l *Log) Observe(observed opa.Observation) {
	document, err := observed.Input()
	if err != nil {
		return
	}
	about := struct {
		Pod struct{ Name, Namespace string } `json:"pod"`
	}{}
	if err := json.Unmarshal(document, &about); err != nil || about.Pod.Name == "" {
		return // a batch of a built-in rule
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	module, known := l.modules[observed.Rule]
	if !known {
		module.ID = observed.Rule
	}
	made := Input{Module: module, Namespace: about.Pod.Namespace, Pod: about.Pod.Name, Document: document}
	l.inputs = slices.DeleteFunc(l.inputs, func(other Input) bool {
		return other.Module.ID == made.Module.ID && other.Namespace == made.Namespace && other.Pod == made.Pod
	})
	l.inputs = append(l.inputs, made)
}

// Take returns the inputs of selected pods, sorted by pod and rule, and forgets all inputs.
func (l *Log) Take(selected func(namespace, name string) bool) []Input {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := slices.DeleteFunc(l.inputs, func(one Input) bool { return !selected(one.Namespace, one.Pod) })
	l.inputs = nil
	slices.SortFunc(found, func(a, b Input) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Module.ID.String(), b.Module.ID.String()))
	})
	return found
}

// ByModule groups inputs by module and parameters, and leaves out rules that cannot be evaluated. The groups are in the order of
// their first inputs.
func ByModule[I interface{ GetInput() Input }](inputs []I) [][]I {
	var groups [][]I
	at := map[string]int{}
	for _, one := range inputs {
		custom := one.GetInput().Module.Custom
		if custom == nil {
			continue
		}
		key := custom.Source + "\x00" + string(custom.Parameters)
		if _, known := at[key]; !known {
			at[key] = len(groups)
			groups = append(groups, nil)
		}
		groups[at[key]] = append(groups[at[key]], one)
	}
	return groups
}

// Documents returns the input documents.
func Documents[I interface{ GetInput() Input }](inputs []I) []json.RawMessage {
	var documents []json.RawMessage
	for _, one := range inputs {
		documents = append(documents, one.GetInput().Document)
	}
	return documents
}

// GetInput returns the input itself, also of a type that embeds it.
func (i Input) GetInput() Input { return i }
