package podindex

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/imports"
)

// Index holds the pods, owners and rules of all namespaces. It is safe for concurrent use.
type Index struct {
	mu sync.Mutex

	// versions numbers the lists of waiting requests.
	versions uint64

	namespaces map[string]*namespace
	seen       string // resourceVersion up to which the pods have been seen; "" before the first list
	notify     func(namespace string)

	// labels of all namespaces, also of namespaces without an entry in namespaces. No value is nil.
	labels map[string]map[string]string

	// breakGlass are the reasons of break-glass annotations by namespace; the reason for the whole
	// cluster has the empty namespace.
	breakGlass map[string]string

	// freeze is the freeze of the whole cluster.
	freeze rule.Freeze

	policies imports.Policies

	// nodes are the nodes of the cluster by name; empty unless SetNode is called.
	nodes map[string]*rule.Node

	// now is the time of the last Expire.
	now time.Time

	// retirements of rules, sorted by their end.
	retirements []retirement

	// stream has the pods themselves; nil before there is an informer of pods.
	stream *podStream

	// observer is called with each change of where a pod stands; nil: not called.
	observer Observer

	// budgetObserver is called with each change of a PodDisruptionBudget's counts; nil: not called.
	budgetObserver BudgetObserver

	// tracer is called with each change of a pod that records when a lifecycle began; nil: not called.
	tracer Tracer

	// controllers is called with each controller of pods that appears or disappears; nil: not called.
	controllers func(controller Controller, present bool)
}

type namespace struct {
	pods    map[types.UID]*pod
	waiting *queue

	// leftover are the pods with a detail annotation that must be removed.
	leftover map[types.UID]*pod
	rules    map[string]*ruleset
	retired  map[string]RetiredRule
	owners   map[types.UID]Owner

	// disruptions are the PodDisruptionBudgets by name; nil in a namespace without
	// PodDisruptionBudgets.
	disruptions map[string]*disruptionBudget

	// newest has the highest revisions of each Deployment's ReplicaSets, by its UID.
	newest map[types.UID]int64

	// newestReplicaSet has the UIDs of these ReplicaSets, by the UID of the Deployment.
	newestReplicaSet map[types.UID]types.UID

	// approvals are the PodOperationApprovals; nil without any.
	approvals decisions

	// oldest is the time at which the first ReplicaSet of each Deployment was created. See
	// noteOldest.
	oldest map[types.UID]time.Time

	// controllers of pods, also controllers that are not in owners.
	controllers map[types.UID]*controlled

	// above are controllers of ReplicaSets with pods, other than Deployments.
	above map[types.UID]Controller

	// answered are the controllers among them whose scale has been read, or cannot be.
	answered map[types.UID]bool

	// ripening are the times at which pods become available for their controllers. See ripens.
	ripening map[types.UID]time.Time

	// uncontrolled are the available pods without the control label, by their controller.
	uncontrolled map[types.UID]map[types.UID]bool

	// ledPods and ledOwners are how many pods and workloads pods own.
	ledPods, ledOwners int
}

// NewIndex returns an empty index. The index calls notify with the name of a namespace after
// each change that a decision or a status depends on; notify must not call the index.
func NewIndex(notify func(namespace string)) *Index {
	return &Index{
		namespaces: map[string]*namespace{}, notify: notify, labels: map[string]map[string]string{}, breakGlass: map[string]string{},
		policies: imports.Policies{}, nodes: map[string]*rule.Node{},
	}
}

// Synced reports whether the pods have been listed.
func (x *Index) Synced() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.seen != ""
}

func (x *Index) namespace(name string) *namespace {
	n, ok := x.namespaces[name]
	if !ok {
		n = &namespace{
			pods: map[types.UID]*pod{}, waiting: newQueue(&x.versions), leftover: map[types.UID]*pod{},
			rules: map[string]*ruleset{}, retired: map[string]RetiredRule{}, owners: map[types.UID]Owner{}, controllers: map[types.UID]*controlled{},
		}
		x.namespaces[name] = n
	}
	return n
}

// custom reports whether some rule of the namespace has the kind rego.
func (n *namespace) custom() bool {
	for _, r := range n.rules {
		if r.custom {
			return true
		}
	}
	return false
}

// forgetEmpty removes a namespace that has no pods, rules, owners, PodDisruptionBudgets or PodOperationApprovals.
func (x *Index) forgetEmpty(name string) {
	n, ok := x.namespaces[name]
	if ok && len(n.pods) == 0 && len(n.rules) == 0 && len(n.retired) == 0 && len(n.owners) == 0 && len(n.disruptions) == 0 && len(n.approvals) == 0 {
		delete(x.namespaces, name)
	}
}

func (x *Index) setPod(object *corev1.Pod) {
	n := x.namespace(object.Namespace)
	before := n.pods[object.UID]
	after := newPod(object, n.findOwner(podController(object)), n.deletionCause(podController(object).UID), n.workloadRevisions(podController(object).UID), before)
	n.pods[object.UID] = after
	delete(n.uncontrolled[after.controller.UID], object.UID)
	n.ripens(after, x.now)
	x.observe(object.Namespace, before, after)
	x.trace(before, after)
	x.own(n, after, 1)
	if before != nil {
		x.own(n, before, -1)
	}
	delete(n.leftover, object.UID)
	if after.leftover {
		n.leftover[object.UID] = after
	}
	if len(after.requests) > 0 {
		n.waiting.put(after)
	} else {
		n.waiting.drop(object.UID)
	}
	for _, r := range n.rules {
		was := before != nil && r.remove(before)
		is := r.add(after)
		switch {
		case is && !was:
			r.targetCame(after.fact.Name)
		case was && !is:
			r.targetWent(before.fact.Name)
		}
	}
	disrupted := x.putDisrupted(n, before, after)
	if before == nil || disrupted || !sameToDecisions(before, after, n.custom()) {
		x.notify(object.Namespace)
	}
}

func (x *Index) deletePod(name string, uid types.UID) {
	n := x.namespace(name)
	before, ok := n.pods[uid]
	if !ok {
		x.forgetEmpty(name)
		return
	}
	delete(n.pods, uid)
	delete(n.ripening, uid)
	x.observe(name, before, nil)
	x.trace(before, nil)
	n.waiting.drop(uid)
	delete(n.leftover, uid)
	x.own(n, before, -1)
	x.putDisrupted(n, before, nil)
	for _, r := range n.rules {
		if r.remove(before) {
			r.targetWent(before.fact.Name)
		}
	}
	x.forgetEmpty(name)
	x.notify(name)
}

// RuleWritten stores the response to a write of a status, so that the next round sees the
// status before the watch delivers it. A rule that has been deleted since stays deleted.
func (x *Index) RuleWritten(object *appsv1alpha1.PodTransitionRule) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n, ok := x.namespaces[object.Namespace]
	if !ok {
		return
	}
	if r := n.rules[object.Name]; r != nil && r.object.UID == object.UID {
		x.setRule(n, object)
	}
}

// SetRule adds or replaces a PodTransitionRule that the watch reported, unless the stored object,
// from the response to a write, is newer.
func (x *Index) SetRule(object *appsv1alpha1.PodTransitionRule) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setRule(x.namespace(object.Namespace), object)
}

func (x *Index) setRule(n *namespace, object *appsv1alpha1.PodTransitionRule) {
	before, had := n.rules[object.Name]
	if had && before.object.UID == object.UID && isOlder(object.ResourceVersion, before.object.ResourceVersion) {
		return
	}
	inherited := n.inherit(object)
	object = withRecord(object, inherited)
	delete(n.retired, object.Name)
	if had && before.object.UID == object.UID && before.object.Generation == object.Generation {
		// Only metadata or status changed, which no count depends on.
		lifts := before.object.Annotations[liftKey] != object.Annotations[liftKey]
		before.object, before.inherited = object, inherited
		if lifts {
			x.notify(object.Namespace)
		}
		return
	}
	r := newRule(object, &x.versions)
	r.inherited = inherited
	for _, p := range n.pods {
		r.add(p)
	}
	for uid, owner := range n.owners {
		r.cover(uid, owner)
	}
	n.rules[object.Name] = r
	x.notify(object.Namespace)
}

// Governed reports whether a namespace has a PodTransitionRule.
func (x *Index) Governed(namespace string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	n, ok := x.namespaces[namespace]
	return ok && len(n.rules) > 0
}

// DeleteRule removes a PodTransitionRule and does not retire it. See RetireRule.
func (x *Index) DeleteRule(key types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.deleteRule(key)
}

func (x *Index) deleteRule(key types.NamespacedName) {
	n := x.namespace(key.Namespace)
	delete(n.rules, key.Name)
	x.forgetEmpty(key.Namespace)
	x.notify(key.Namespace)
}

// SetOwner adds or replaces a workload.
func (x *Index) SetOwner(owner Owner) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.namespace(owner.Namespace)
	before, had := n.owners[owner.UID]
	n.owners[owner.UID] = owner
	n.answer(owner.UID)
	n.ledOwners += led(owner) - led(before)
	if before.MinReady != owner.MinReady {
		for _, p := range n.pods {
			if p.controller.UID == owner.UID {
				n.ripens(p, x.now)
			}
		}
	}
	if !had || !before.hasSamePlace(owner) {
		n.ownersChanged()
		x.referAbove(n, owner.Namespace)
	}
	if had && before.equals(owner) {
		return
	}
	for _, r := range n.rules {
		r.cover(owner.UID, owner)
	}
	x.notify(owner.Namespace)
}

// DeleteOwner removes a workload.
func (x *Index) DeleteOwner(namespace string, uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.namespace(namespace)
	n.ledOwners -= led(n.owners[uid])
	delete(n.owners, uid)
	delete(n.uncontrolled, uid)
	n.answer(uid)
	n.ownersChanged()
	x.referAbove(n, namespace)
	for _, r := range n.rules {
		delete(r.covered, uid)
	}
	x.forgetEmpty(namespace)
	x.notify(namespace)
}

// liftKey is the only annotation of a PodTransitionRule that decisions depend on.
const liftKey = appsv1alpha1.LiftQuarantineAnnotationKey

func isOlder(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// Targets returns the first names of the pods that a PodTransitionRule selects, sorted
// and at most MaxStatusTargets. The caller must not modify them.
func (x *Index) Targets(key types.NamespacedName) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	n, ok := x.namespaces[key.Namespace]
	if !ok || n.rules[key.Name] == nil {
		return nil
	}
	return n.rules[key.Name].firstTargets()
}

// Namespaces returns the names of all namespaces in the index, sorted.
func (x *Index) Namespaces() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Sorted(maps.Keys(x.namespaces))
}
