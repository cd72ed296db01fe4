package podindex

import (
	"fmt"
	"maps"
	"slices"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// DisruptionBudget is a PodDisruptionBudget, as far as permits depend on it.
type DisruptionBudget struct {
	Namespace       string
	Name            string
	UID             types.UID
	ResourceVersion string

	// Selector of its pods; nil selects no pod.
	Selector labels.Selector

	// Desired, Healthy and Expected are status.desiredHealthy, the number of pods that must
	// be healthy, status.currentHealthy, the number that the disruption controller counted,
	// and status.expectedPods, the number of all pods.
	Desired  int
	Healthy  int
	Expected int

	// EvictsUnready is true if the eviction API evicts an unready pod in any case (AlwaysAllow), and else
	// only while enough pods are healthy.
	EvictsUnready bool

	// Unknown is why the status does not have these numbers; empty if it does.
	Unknown string

	// Record is the record of permits in its annotation; nil without one. Inherited is true if the stored
	// object does not have it (see inheritRecord).
	Record    *appsv1alpha1.PermitRecord
	Inherited bool
}

// ID returns the id of the PodDisruptionBudget among rules.
func (b DisruptionBudget) ID() rule.RuleID { return rule.DisruptionBudgetID(b.Namespace, b.Name) }

// NewDisruptionBudget returns the part of a PodDisruptionBudget that permits depend on. Without a
// selector that can be parsed, the budget selects no pod.
func NewDisruptionBudget(object *policyv1.PodDisruptionBudget) DisruptionBudget {
	b := DisruptionBudget{
		Namespace: object.Namespace, Name: object.Name, UID: object.UID, ResourceVersion: object.ResourceVersion,
		Record:  permit.Decode(object.Annotations[appsv1alpha1.PermitsAnnotationKey]),
		Desired: int(object.Status.DesiredHealthy), Healthy: int(object.Status.CurrentHealthy), Expected: int(object.Status.ExpectedPods),
	}
	if policy := object.Spec.UnhealthyPodEvictionPolicy; policy != nil {
		b.EvictsUnready = *policy == policyv1.AlwaysAllow
	}
	if selector, err := metav1.LabelSelectorAsSelector(object.Spec.Selector); object.Spec.Selector != nil && err == nil {
		b.Selector = selector
	}
	allowed := meta.FindStatusCondition(object.Status.Conditions, policyv1.DisruptionAllowedCondition)
	switch {
	case allowed != nil && allowed.Status == metav1.ConditionFalse && allowed.Reason == policyv1.SyncFailedReason:
		b.Unknown = "the disruption controller could not count the pods of the PodDisruptionBudget: " +
			text.Line(allowed.Message, maxUnknownBytes)
	case object.Status.ObservedGeneration < object.Generation:
		b.Unknown = fmt.Sprintf("the status of the PodDisruptionBudget is of generation %d, and the present one is %d",
			object.Status.ObservedGeneration, object.Generation)
	}
	return b
}

// maxUnknownBytes bounds the message of the disruption controller.
const maxUnknownBytes = 256

// equals reports whether another version of a PodDisruptionBudget counts the same.
func (b DisruptionBudget) equals(other DisruptionBudget) bool {
	return b.hasSameSelector(other) && b.Desired == other.Desired && b.Healthy == other.Healthy && b.Expected == other.Expected &&
		b.EvictsUnready == other.EvictsUnready && b.Unknown == other.Unknown
}

func (b DisruptionBudget) hasSameSelector(other DisruptionBudget) bool {
	if b.Selector == nil || other.Selector == nil {
		return b.Selector == nil && other.Selector == nil
	}
	_, selects := b.Selector.Requirements()
	_, otherSelects := other.Selector.Requirements()
	return selects == otherSelects && b.Selector.String() == other.Selector.String()
}

func (b DisruptionBudget) selects(p *pod) bool {
	return b.Selector != nil && b.Selector.Matches(labels.Set(p.fact.Labels))
}

// disruptionBudget is one PodDisruptionBudget and the counts of the pods that it selects.
type disruptionBudget struct {
	DisruptionBudget
	selected map[types.UID]*pod

	// pods counts the selected pods.
	pods PodCounts

	// unhealthy are the pods that are counted, and are not among pods.Available.
	unhealthy map[types.UID]*pod

	waiting *queue
}

// add counts a pod if the PodDisruptionBudget selects it.
func (b *disruptionBudget) add(p *pod) {
	if !b.selects(p) {
		return
	}
	b.selected[p.fact.UID] = p
	if len(p.requests) > 0 {
		b.waiting.put(p)
	}
	if p.counts && !p.isHealthy() {
		b.unhealthy[p.fact.UID] = p
	}
	b.count(p, 1)
}

// remove removes a pod from the counts.
func (b *disruptionBudget) remove(p *pod) {
	if _, ok := b.selected[p.fact.UID]; !ok {
		return
	}
	delete(b.selected, p.fact.UID)
	delete(b.unhealthy, p.fact.UID)
	b.waiting.drop(p.fact.UID)
	b.count(p, -1)
}

func (b *disruptionBudget) count(p *pod, by int) {
	if !p.counts {
		return
	}
	b.pods.Counted += by
	if p.offTraffic {
		b.pods.OffTraffic += by
	}
	if p.fact.Ready {
		b.pods.Ready += by
	}
	if p.isHealthy() {
		b.pods.Available += by
	}
}

// isHealthy reports whether a PodDisruptionBudget counts the pod, and PodOps is not about to make
// it unready. A pod that is Ready serves once it has the label service-available, a moment later.
func (p *pod) isHealthy() bool { return p.counts && p.fact.Available && !p.offTraffic }

// MaxDisruptionBudgets bounds the PodDisruptionBudgets of a namespace that are counted, since each
// event of a pod costs time for every one of them. The eviction API applies the others.
const MaxDisruptionBudgets = 256

// SetDisruptionBudget adds or replaces a PodDisruptionBudget that the watch reported, unless the stored
// one, from the response to a write, is newer. It notifies if a pod that it selects waits, and ignores
// further budgets beyond MaxDisruptionBudgets.
func (x *Index) SetDisruptionBudget(budget DisruptionBudget) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setDisruptionBudget(x.namespace(budget.Namespace), budget)
}

// DisruptionBudgetWritten stores the response to a write of a record, so that the next round sees the
// record before the watch delivers it. A PodDisruptionBudget that has been deleted since stays deleted.
func (x *Index) DisruptionBudgetWritten(budget DisruptionBudget) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n, ok := x.namespaces[budget.Namespace]
	if !ok {
		return
	}
	if b := n.disruptions[budget.Name]; b != nil && b.UID == budget.UID {
		x.setDisruptionBudget(n, budget)
	}
}

func (x *Index) setDisruptionBudget(n *namespace, budget DisruptionBudget) {
	before, had := n.disruptions[budget.Name]
	if had && before.UID == budget.UID && isOlder(budget.ResourceVersion, before.ResourceVersion) || !had && len(n.disruptions) == MaxDisruptionBudgets {
		return
	}
	n.inheritRecord(&budget)
	if had && before.hasSameSelector(budget) {
		changed := !before.equals(budget)
		before.DisruptionBudget = budget
		if changed {
			x.observeBudget(before)
			x.notifyWaiting(budget.Namespace, before)
		}
		return
	}
	made := &disruptionBudget{
		DisruptionBudget: budget, selected: map[types.UID]*pod{}, unhealthy: map[types.UID]*pod{}, waiting: newQueue(&x.versions),
	}
	for _, p := range n.pods {
		made.add(p)
	}
	if n.disruptions == nil {
		n.disruptions = map[string]*disruptionBudget{}
	}
	n.disruptions[budget.Name] = made
	x.observeBudget(made)
	x.notifyWaiting(budget.Namespace, before, made)
}

// inheritRecord gives a PodDisruptionBudget without a record the record of its last version, or of a
// PodDisruptionBudget of its name that was deleted less than RetiredFor ago: its annotation was removed,
// or it was replaced, and the reservations may still become permits.
func (n *namespace) inheritRecord(budget *DisruptionBudget) {
	id := budget.ID().String()
	if budget.Record == nil {
		budget.Record = n.retired[id].record
		if before, had := n.disruptions[budget.Name]; had {
			budget.Record = before.Record
		}
		budget.Inherited = budget.Record != nil
	}
	delete(n.retired, id)
}

// RetireDisruptionBudget removes a PodDisruptionBudget that was deleted, and notifies if a pod that it
// selected waits. For RetiredFor its record is kept for a PodDisruptionBudget of the same name. It withholds
// nothing meanwhile.
func (x *Index) RetireDisruptionBudget(key types.NamespacedName, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.expire(now)
	n := x.namespace(key.Namespace)
	before := n.disruptions[key.Name]
	delete(n.disruptions, key.Name)
	if before != nil && before.Record != nil {
		x.retire(key.Namespace, RetiredRule{Name: before.ID().String(), Until: now.Add(RetiredFor), selector: labels.Nothing(), record: before.Record})
	}
	if x.budgetObserver != nil {
		x.budgetObserver.BudgetDeleted(key)
	}
	x.forgetEmpty(key.Namespace)
	x.notifyWaiting(key.Namespace, before)
}

// notifyWaiting notifies if a pod of these PodDisruptionBudgets waits.
func (x *Index) notifyWaiting(namespace string, budgets ...*disruptionBudget) {
	for _, b := range budgets {
		if b != nil && len(b.waiting.pods) > 0 {
			x.notify(namespace)
			return
		}
	}
}

// putDisrupted replaces a pod in the counts of the PodDisruptionBudgets, either of which may be
// nil. It reports whether a pod that waits may depend on the difference.
func (x *Index) putDisrupted(n *namespace, before, after *pod) (changed bool) {
	for _, b := range n.disruptions {
		counts := b.pods
		if before != nil {
			b.remove(before)
		}
		if after != nil {
			b.add(after)
		}
		if b.pods == counts {
			continue
		}
		x.observeBudget(b)
		changed = changed || len(b.waiting.pods) > 0
	}
	return changed
}

// observeBudget reports a PodDisruptionBudget to the BudgetObserver.
func (x *Index) observeBudget(b *disruptionBudget) {
	if x.budgetObserver != nil {
		x.budgetObserver.BudgetChanged(b.counts())
	}
}

func (b *disruptionBudget) counts() DisruptionCounts {
	return DisruptionCounts{DisruptionBudget: b.DisruptionBudget, PodCounts: b.pods}
}

// PodCounts are the controlled pods of a PodDisruptionBudget, without terminating and finished pods.
type PodCounts struct {
	// Counted is the number of all.
	Counted int

	// Ready is the number of pods that are Ready as the disruption controller counts them, and Available the
	// number of these that PodOps does not keep off traffic.
	Ready     int
	Available int

	// OffTraffic is the number of pods that PodOps keeps off traffic, Ready or not.
	OffTraffic int
}

// DisruptionCounts is one PodDisruptionBudget and its controlled pods.
type DisruptionCounts struct {
	DisruptionBudget
	PodCounts
}

// Total returns the number of pods that the PodDisruptionBudget counts, controlled or not.
func (c DisruptionCounts) Total() int { return max(c.Expected, c.Counted) }

// Uncontrolled returns the number of healthy pods without the control label. Only the status counts them: their
// number is its healthy pods less the controlled Ready pods, and at most its expected pods less the controlled
// pods. It is wrong for as long as the status is older than the pods.
func (c DisruptionCounts) Uncontrolled() int {
	return max(0, min(c.Healthy-c.Ready, c.Expected-c.Counted))
}

// DisruptionView is one PodDisruptionBudget in a Snapshot.
type DisruptionView struct {
	DisruptionCounts

	// Waiting are the requests of the pods that it selects, oldest first.
	Waiting []rule.Request

	// Unavailable are the first names of the counted pods that are not among Available, sorted; at
	// most rule.MaxBlockingPods.
	Unavailable []string

	// Live are the reservations of its record whose permit may still be written, by UID.
	Live map[types.UID]appsv1alpha1.ReservedPod

	// Reserved is the number of pods among Available that are in Live.
	Reserved int
}

// disruptionViews returns the PodDisruptionBudgets of pods that wait, sorted by name, and adds the
// resourceVersions of the pods that their records list to versions.
func (n *namespace) disruptionViews(versions map[types.UID]string) []DisruptionView {
	var views []DisruptionView
	for _, name := range slices.Sorted(maps.Keys(n.disruptions)) {
		b := n.disruptions[name]
		if len(b.waiting.pods) == 0 {
			continue
		}
		view := DisruptionView{
			DisruptionCounts: b.counts(), Waiting: b.waiting.ordered().requests, Unavailable: b.unavailable(), Live: n.live(b.Record, versions),
		}
		for uid := range view.Live {
			if p := b.selected[uid]; p != nil && p.isHealthy() {
				view.Reserved++
			}
		}
		views = append(views, view)
	}
	return views
}

// unavailable returns the first names of the counted pods that are not healthy.
func (b *disruptionBudget) unavailable() []string {
	var names []string
	for _, p := range b.unhealthy {
		names = withFirst(names, p.fact.Name)
	}
	return names
}
