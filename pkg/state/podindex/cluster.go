package podindex

import (
	"maps"
	"slices"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// SetNamespace adds or replaces a namespace, and notifies if its labels changed. The index
// shares the map, which must not be modified afterwards.
func (x *Index) SetNamespace(name string, labels map[string]string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before, known := x.labels[name]
	if labels == nil {
		labels = map[string]string{}
	}
	if known && maps.Equal(before, labels) {
		return
	}
	x.labels[name] = labels
	x.notifyKnown(name)
}

// SetBreakGlass stores the reason of a namespace's break-glass annotation, or of the whole
// cluster if the namespace is empty; an empty reason means that the annotation is absent. If the
// reason changed, SetBreakGlass notifies of the namespaces that it applies to.
func (x *Index) SetBreakGlass(namespace, reason string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.breakGlass[namespace] == reason {
		return
	}
	x.breakGlass[namespace] = reason
	if reason == "" {
		delete(x.breakGlass, namespace)
	}
	if namespace != "" {
		x.notifyKnown(namespace)
		return
	}
	for name := range x.namespaces {
		x.notify(name)
	}
}

// SetFreeze stores the freeze of the whole cluster; the zero value ends it. If it changed, SetFreeze notifies of every namespace.
func (x *Index) SetFreeze(freeze rule.Freeze) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.freeze.Message == freeze.Message && x.freeze.Until.Equal(freeze.Until) {
		return
	}
	x.freeze = freeze
	for name := range x.namespaces {
		x.notify(name)
	}
}

// DeleteNamespace removes a namespace.
func (x *Index) DeleteNamespace(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.breakGlass, name)
	if _, known := x.labels[name]; !known {
		return
	}
	delete(x.labels, name)
	x.notifyKnown(name)
}

// notifyKnown notifies of a namespace that is in the index.
func (x *Index) notifyKnown(name string) {
	if _, ok := x.namespaces[name]; ok {
		x.notify(name)
	}
}

// SetPolicy adds or replaces a PodTransitionPolicy. If its spec changed, SetPolicy notifies of
// every namespace with a rule that refers to the policy, or to one that imports it. The index shares the object, which
// must not be modified afterwards.
func (x *Index) SetPolicy(object *appsv1alpha1.PodTransitionPolicy) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before, had := x.policies[object.Name]
	x.policies[object.Name] = object
	if had && before.UID == object.UID && before.Generation == object.Generation {
		return
	}
	x.notifyUsers(object.Name)
}

// DeletePolicy removes a PodTransitionPolicy.
func (x *Index) DeletePolicy(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, had := x.policies[name]; !had {
		return
	}
	delete(x.policies, name)
	x.notifyUsers(name)
}

// notifyUsers notifies of every namespace with a rule that refers to a policy, or to one that imports it. It reads all rules:
// edits of policies are rare, and package policyusers already keeps an index of their users.
func (x *Index) notifyUsers(policy string) {
	changed := append(x.policies.Importers(policy), policy)
	for name, namespace := range x.namespaces {
		for _, r := range namespace.rules {
			if slices.ContainsFunc(r.policies, func(used string) bool { return slices.Contains(changed, used) }) {
				x.notify(name)
				break
			}
		}
	}
}
