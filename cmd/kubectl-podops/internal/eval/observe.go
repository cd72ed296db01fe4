package eval

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"

	"github.com/podops-dev/podops/pkg/evaluation/offline"
	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/rule/spec"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// observations are the evaluations of users' modules.
type observations struct {
	mu      sync.Mutex
	modules map[rule.RuleID]spec.Module
	seen    []observation
}

// observation is one evaluation of a module for a pod.
type observation struct {
	rule           rule.RuleID
	namespace, pod string
	input          json.RawMessage
}

// prepared keeps the module of a rule.
func (o *observations) prepared(module spec.Module) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.modules[module.ID] = module
}

// observe keeps the input of an evaluation of a user's module. The last input of a pod counts: a rule that
// reads other pods is evaluated again right before the permit.
func (o *observations) observe(observed opa.Observation) {
	input, err := observed.Input()
	if err != nil {
		return
	}
	about := struct {
		Pod struct{ Name, Namespace string } `json:"pod"`
	}{}
	if err := json.Unmarshal(input, &about); err != nil || about.Pod.Name == "" {
		return // a batch of a built-in rule
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	made := observation{rule: observed.Rule, namespace: about.Pod.Namespace, pod: about.Pod.Name, input: input}
	o.seen = slices.DeleteFunc(o.seen, func(other observation) bool {
		return other.rule == made.rule && other.namespace == made.namespace && other.pod == made.pod
	})
	o.seen = append(o.seen, made)
}

// of returns the observations of selected pods, sorted by pod and rule.
func (o *observations) of(selected func(namespace, name string) bool) []observation {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := slices.DeleteFunc(slices.Clone(o.seen), func(one observation) bool { return !selected(one.namespace, one.pod) })
	slices.SortFunc(found, func(a, b observation) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.pod, b.pod), cmp.Compare(a.rule.String(), b.rule.String()))
	})
	return found
}

// probe adds a module to each PodTransitionRule without a module, so that the input of its pods can be
// shown.
func probe(objects *offline.Objects) {
	for i, object := range objects.Rules {
		for _, stage := range []appsv1alpha1.TransitionStage{appsv1alpha1.StagePreCheck, appsv1alpha1.StagePostCheck} {
			if slices.ContainsFunc(object.Spec.Rules, func(entry appsv1alpha1.TransitionRule) bool {
				return entry.Rego != nil && !entry.Disabled && cmp.Or(entry.Stage, appsv1alpha1.StagePreCheck) == stage
			}) {
				continue
			}
			object = object.DeepCopy()
			object.Spec.Rules = append(object.Spec.Rules, appsv1alpha1.TransitionRule{
				Name: "input", Stage: stage, Enforcement: appsv1alpha1.EnforcementDryRun,
				Rego: &appsv1alpha1.RegoRule{Module: "package rule\n\nallow := true\n"},
			})
			objects.Rules[i] = object
		}
	}
}
