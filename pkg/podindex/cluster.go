package podindex

import (
	"maps"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
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

// SetBreakGlass stores the reason of the break-glass annotation of a namespace, or of the whole
// cluster if the namespace is empty; an empty reason is none. It notifies of the namespaces that it
// applies to, if the reason changed.
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
// every namespace with a rule that refers to the policy. The index shares the object, which
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

func (x *Index) notifyUsers(policy string) {
	for namespace := range x.users[policy] {
		x.notify(namespace)
	}
}

// use updates the users of policies after a PodTransitionRule was added, replaced or removed.
// before is nil for a new rule, after for a removed one.
func (x *Index) use(namespace string, before, after *ruleset) {
	count := func(r *ruleset, by int) {
		if r == nil {
			return
		}
		for _, policy := range r.policies {
			if x.users[policy] == nil {
				x.users[policy] = map[string]int{}
			}
			x.users[policy][namespace] += by
			if x.users[policy][namespace] == 0 {
				delete(x.users[policy], namespace)
			}
			if len(x.users[policy]) == 0 {
				delete(x.users, policy)
			}
		}
	}
	count(after, 1)
	count(before, -1)
}
