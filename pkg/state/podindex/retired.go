package podindex

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// RetiredFor is the time for which a deleted PodTransitionRule still withholds permits from the
// pods that it selects. Tools that replace an object by deleting and creating it take seconds.
const RetiredFor = 30 * time.Second

// maxRetired bounds the retired rules of one namespace. Beyond it the oldest retired rule ends
// early.
const maxRetired = 100

// RetiredRule is a PodTransitionRule that was deleted less than RetiredFor ago. Until it ends,
// no pod that it selects gets a permit that the rule might have withheld. A new rule of the
// same name ends it at once, and takes over its record. Of a deleted PodDisruptionBudget
// the record is all that is kept: it withholds nothing.
type RetiredRule struct {
	// Name is the name of the PodTransitionRule, or RuleID.String of the PodDisruptionBudget.
	Name string

	// Until is when it ends.
	Until time.Time

	selector labels.Selector
	rules    []retiredEntry
	record   *appsv1alpha1.PermitRecord

	// covered are the workloads that the rule covered, by UID.
	covered map[types.UID]bool
}

// retiredEntry is an enforced PreCheck rule of a RetiredRule.
type retiredEntry struct {
	name       string
	conditions []string
	filter     labels.Selector

	// availability is true for an availablePolicy, which withholds nothing from an unavailable
	// pod, unless the pod's workload is not covered: then the record must count the pod first.
	availability bool
}

// retirement is the time at which a retired rule ends, unless another rule has replaced it.
type retirement struct {
	key   types.NamespacedName
	until time.Time
}

// Holds returns the name of the first rule that might have withheld the request; "" without
// such a rule.
func (r RetiredRule) Holds(request rule.Request) string {
	if request.Stage != appsv1alpha1.StagePreCheck || !r.selector.Matches(labels.Set(request.Pod.Labels)) {
		return ""
	}
	counts := request.Pod.Available || request.Pod.Owner.UID != "" && !r.covered[request.Pod.Owner.UID]
	i := slices.IndexFunc(r.rules, func(entry retiredEntry) bool { return entry.holds(request, counts) })
	if i < 0 {
		return ""
	}
	return r.rules[i].name
}

// holds reports whether the rule might have withheld the request. counts is true if an
// availablePolicy depends on the pod.
func (e retiredEntry) holds(request rule.Request, counts bool) bool {
	return (len(e.conditions) == 0 || slices.Contains(e.conditions, request.Type)) &&
		e.filter.Matches(labels.Set(request.Pod.Labels)) && !slices.Contains(request.Pod.SkipRules, e.name) &&
		(counts || !e.availability)
}

// RetireRule removes a PodTransitionRule that was deleted. If it may withhold requests, it is
// retired for RetiredFor, whether or not it selects pods: the pods may not have been listed
// yet, or be seen later than the rule.
func (x *Index) RetireRule(key types.NamespacedName, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.expire(now)
	n := x.namespace(key.Namespace)
	if r := n.rules[key.Name]; r != nil {
		if retired := r.retire(now.Add(RetiredFor)); len(retired.rules) > 0 {
			x.retire(key.Namespace, retired)
		}
	}
	x.deleteRule(key)
}

// retire keeps a retired rule until it ends.
func (x *Index) retire(namespace string, retired RetiredRule) {
	n := x.namespace(namespace)
	n.makeRoom()
	n.retired[retired.Name] = retired
	x.retirements = append(x.retirements, retirement{key: types.NamespacedName{Namespace: namespace, Name: retired.Name}, until: retired.Until})
}

// Expire removes the retired rules of all namespaces that have ended, and sets the time of the next snapshots.
func (x *Index) Expire(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.now = now
	x.expire(now)
}

func (x *Index) expire(now time.Time) {
	for len(x.retirements) > 0 && !x.retirements[0].until.After(now) {
		key := x.retirements[0].key
		x.retirements = x.retirements[1:]
		n, ok := x.namespaces[key.Namespace]
		if !ok {
			continue
		}
		// A later rule of the name may have retired since.
		if retired, ok := n.retired[key.Name]; ok && !retired.Until.After(now) {
			delete(n.retired, key.Name)
			x.forgetEmpty(key.Namespace)
		}
	}
}

// makeRoom removes the oldest retired rule if there are maxRetired.
func (n *namespace) makeRoom() {
	if len(n.retired) < maxRetired {
		return
	}
	oldest := ""
	for name, retired := range n.retired {
		if oldest == "" || retired.Until.Before(n.retired[oldest].Until) {
			oldest = name
		}
	}
	delete(n.retired, oldest)
}

// retire returns the retired rule of a rule that was deleted.
func (r *ruleset) retire(until time.Time) RetiredRule {
	retired := RetiredRule{Name: r.object.Name, Until: until, selector: r.selector, record: r.object.Status.Permits, covered: r.covered}
	for _, entry := range r.object.Spec.Rules {
		enforced := entry.Enforcement == "" || entry.Enforcement == appsv1alpha1.EnforcementEnforce
		if entry.Disabled || !enforced || entry.Stage == appsv1alpha1.StagePostCheck {
			continue
		}
		filter := labels.Everything()
		if entry.Filter != nil && entry.Filter.LabelSelector != nil {
			// A filter that is not valid withheld the requests of every pod.
			if parsed, err := metav1.LabelSelectorAsSelector(entry.Filter.LabelSelector); err == nil {
				filter = parsed
			}
		}
		retired.rules = append(retired.rules, retiredEntry{
			name: entry.Name, conditions: entry.Conditions, filter: filter, availability: entry.AvailablePolicy != nil,
		})
	}
	return retired
}

// inherit returns the record that a PodTransitionRule without a record takes over: the record
// of the deleted rule with the same name, whose reservations may still become permits.
func (n *namespace) inherit(object *appsv1alpha1.PodTransitionRule) *appsv1alpha1.PermitRecord {
	if object.Status.Permits != nil {
		return nil
	}
	before, had := n.rules[object.Name]
	switch {
	case !had:
		return n.retired[object.Name].record
	case before.object.UID != object.UID:
		return before.object.Status.Permits
	default:
		return before.inherited
	}
}

// withRecord returns the object with a record; unchanged if record is nil.
func withRecord(object *appsv1alpha1.PodTransitionRule, record *appsv1alpha1.PermitRecord) *appsv1alpha1.PodTransitionRule {
	if record == nil {
		return object
	}
	grafted := *object
	grafted.Status.Permits = record
	return &grafted
}
