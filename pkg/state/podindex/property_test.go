package podindex_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

// cluster is an index and its expected content.
type cluster struct {
	x      *index
	pods   map[types.UID]*corev1.Pod
	rules  map[types.NamespacedName]*appsv1alpha1.PodTransitionRule
	owners map[types.UID]podindex.Owner
	made   int

	// budgets are the PodDisruptionBudgets of the namespace default, by name.
	budgets map[string]podindex.DisruptionBudget

	// records are the last records of PodDisruptionBudgets by name, also of deleted ones.
	records map[string]*appsv1alpha1.PermitRecord
}

// TestIndexCountsLikeARecount tests that after any events the counts of the index equal a
// recount.
func TestIndexCountsLikeARecount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &cluster{
			x: newIndex(t), pods: map[types.UID]*corev1.Pod{}, owners: map[types.UID]podindex.Owner{},
			rules: map[types.NamespacedName]*appsv1alpha1.PodTransitionRule{}, budgets: map[string]podindex.DisruptionBudget{},
			records: map[string]*appsv1alpha1.PermitRecord{},
		}
		t.Repeat(map[string]func(*rapid.T){
			"": c.check, "create": c.Create, "change": c.Change, "change again": c.Change, "delete": c.Delete, "relist": c.Relist,
			"rule": c.Rule, "status": c.Status, "drop rule": c.DropRule, "owner": c.Owner, "drop owner": c.DropOwner,
			"budget": c.Budget, "drop budget": c.DropBudget,
		})
	})
}

func drawNamespace(t *rapid.T) string {
	return rapid.SampledFrom([]string{"default", "default", "other"}).Draw(t, "namespace")
}

// drawPod makes a pod in any state.
func drawPod(t *rapid.T, namespace, name string, uid types.UID) *corev1.Pod {
	b := builders.MakePod(name).Namespace(namespace).UID(uid).
		Label("app", rapid.SampledFrom([]string{"web", "db"}).Draw(t, "app")).
		Label("tier", rapid.SampledFrom([]string{"gold", "iron"}).Draw(t, "tier"))
	switch rapid.IntRange(0, 3).Draw(t, "state") {
	case 0:
		b.Unready(builders.Epoch)
	case 1:
		b.Available().Waiting("a", "upgrade", builders.Epoch.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "since"))*time.Second))
	case 2:
		b.Available()
	case 3:
		b.Finished("b", "upgrade", builders.Epoch)
	}
	if rapid.IntRange(0, 5).Draw(t, "terminating") == 0 {
		b.Terminating(builders.Epoch)
	}
	if rapid.IntRange(0, 5).Draw(t, "failed") == 0 {
		b.Phase(corev1.PodFailed)
	}
	if owner := types.UID(rapid.SampledFrom([]string{"", "rs-1", "rs-2", "sts"}).Draw(t, "owner")); owner != "" {
		b.OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: string(owner), UID: owner})
	}
	return b.Obj()
}

func (c *cluster) put(pod *corev1.Pod) {
	pod.ResourceVersion = c.x.put(pod)
	c.pods[pod.UID] = pod
}

// Create makes a pod, perhaps of a name that is taken.
func (c *cluster) Create(t *rapid.T) {
	c.made++
	c.put(drawPod(t, drawNamespace(t), fmt.Sprintf("p-%d", rapid.IntRange(0, 5).Draw(t, "name")), types.UID(fmt.Sprintf("u-%d", c.made))))
}

func (c *cluster) draw(t *rapid.T) *corev1.Pod {
	if len(c.pods) == 0 {
		t.Skip("no pods")
	}
	return c.pods[rapid.SampledFrom(slices.Sorted(maps.Keys(c.pods))).Draw(t, "pod")]
}

// Change makes another pod of one, of the same UID.
func (c *cluster) Change(t *rapid.T) {
	pod := c.draw(t)
	c.put(drawPod(t, pod.Namespace, pod.Name, pod.UID))
}

func (c *cluster) Delete(t *rapid.T) {
	pod := c.draw(t)
	c.x.remove(pod)
	delete(c.pods, pod.UID)
}

// Relist finds some pods gone, some changed and some new.
func (c *cluster) Relist(t *rapid.T) {
	var listed []*corev1.Pod
	for _, uid := range slices.Sorted(maps.Keys(c.pods)) {
		switch pod := c.pods[uid]; rapid.IntRange(0, 2).Draw(t, "fate") {
		case 0:
			delete(c.pods, uid)
		case 1:
			c.pods[uid] = drawPod(t, pod.Namespace, pod.Name, uid)
		}
	}
	if rapid.Bool().Draw(t, "new") {
		c.made++
		uid := types.UID(fmt.Sprintf("u-%d", c.made))
		c.pods[uid] = drawPod(t, drawNamespace(t), "p-new", uid)
	}
	for _, uid := range slices.Sorted(maps.Keys(c.pods)) {
		listed = append(listed, c.pods[uid])
	}
	before := c.x.version
	c.x.list(listed...)
	for i, pod := range listed {
		pod.ResourceVersion = fmt.Sprint(before + 1 + i)
	}
}

// Rule makes or edits a rule.
func (c *cluster) Rule(t *rapid.T) {
	rule := c.x.rule(rapid.SampledFrom([]string{"x", "y"}).Draw(t, "rule"))
	rule.Namespace = drawNamespace(t)
	rule.Generation = int64(c.x.version)
	rule.Spec.Selector = rapid.SampledFrom([]*metav1.LabelSelector{
		{MatchLabels: map[string]string{"app": "web"}},
		{MatchLabels: map[string]string{"tier": "gold"}},
		{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}},
		{},
	}).Draw(t, "selector")
	c.rules[types.NamespacedName{Namespace: rule.Namespace, Name: rule.Name}] = rule
	c.x.SetRule(rule)
}

func (c *cluster) drawRule(t *rapid.T) types.NamespacedName {
	var known []types.NamespacedName
	for key := range c.rules {
		known = append(known, key)
	}
	if len(known) == 0 {
		t.Skip("no rules")
	}
	slices.SortFunc(known, func(a, b types.NamespacedName) int { return slices.Compare([]string{a.String()}, []string{b.String()}) })
	return rapid.SampledFrom(known).Draw(t, "rule")
}

// Status writes the record of a rule: some pods at their versions, some at others.
func (c *cluster) Status(t *rapid.T) {
	key := c.drawRule(t)
	rule := c.rules[key].DeepCopy()
	rule.ResourceVersion = c.x.next()
	rule.Status.Permits = c.drawRecord(t)
	c.rules[key] = rule
	if rapid.Bool().Draw(t, "written") {
		c.x.RuleWritten(rule)
		return
	}
	c.x.SetRule(rule)
}

// drawRecord makes a record of some pods, at present or earlier resourceVersions.
func (c *cluster) drawRecord(t *rapid.T) *appsv1alpha1.PermitRecord {
	record := &appsv1alpha1.PermitRecord{}
	for _, uid := range slices.Sorted(maps.Keys(c.pods)) {
		version := rapid.SampledFrom([]string{"", "1", c.pods[uid].ResourceVersion}).Draw(t, "version")
		if version != "" {
			record.Reserved = append(record.Reserved, appsv1alpha1.ReservedPod{UID: uid, ResourceVersion: version})
		}
	}
	return record
}

func (c *cluster) DropRule(t *rapid.T) {
	key := c.drawRule(t)
	delete(c.rules, key)
	c.x.DeleteRule(key)
}

// Owner makes or changes a workload: rs-1 and rs-2 may belong to deploy.
func (c *cluster) Owner(t *rapid.T) {
	owner := workload(types.UID(rapid.SampledFrom([]string{"rs-1", "rs-2", "sts", "deploy"}).Draw(t, "owner")), "", rapid.IntRange(0, 4).Draw(t, "desired"))
	if owner.UID == "rs-1" || owner.UID == "rs-2" {
		owner.Controller = types.UID(rapid.SampledFrom([]string{"", "deploy", "unknown"}).Draw(t, "controller"))
	}
	if rapid.IntRange(0, 3).Draw(t, "other labels") == 0 {
		owner.TemplateLabels = map[string]string{"app": "db"}
	}
	owner.Terminating = rapid.IntRange(0, 4).Draw(t, "terminating") == 0
	c.owners[owner.UID] = owner
	c.x.SetOwner(owner)
}

func (c *cluster) DropOwner(t *rapid.T) {
	if len(c.owners) == 0 {
		t.Skip("no owners")
	}
	uid := rapid.SampledFrom(slices.Sorted(maps.Keys(c.owners))).Draw(t, "owner")
	delete(c.owners, uid)
	c.x.DeleteOwner("default", uid)
}

// counted has the counts of one rule.
type counted struct {
	Counts  rule.Counts
	Waiting []string
	Live    []types.UID
	Targets []string

	// OffTraffic as in RuleView.
	OffTraffic int
}

func (c *cluster) check(t *rapid.T) {
	got, want := map[string]counted{}, map[string]counted{}
	for _, namespace := range []string{"default", "other"} {
		for _, rule := range c.x.Snapshot(namespace, nil).Rules {
			key := types.NamespacedName{Namespace: namespace, Name: rule.Object.Name}
			waiting := keys(rule.Waiting)
			slices.Sort(waiting)
			got[key.String()] = counted{rule.Counts, waiting, slices.Sorted(maps.Keys(rule.Live)), c.x.Targets(key), rule.OffTraffic}
		}
	}
	for key, rule := range c.rules {
		want[key.String()] = c.recount(key.Namespace, rule)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b []string) bool { return slices.Equal(a, b) })); diff != "" {
		t.Fatalf("the index has lost count (-want +got):\n%s", diff)
	}
	c.checkBudgets(t)
	c.checkNamespaces(t)
}

// live are the pods of a record at their recorded resourceVersion, sorted.
func (c *cluster) live(namespace string, record *appsv1alpha1.PermitRecord) (live []types.UID) {
	if record == nil {
		return nil
	}
	for _, reserved := range record.Reserved {
		if pod := c.pods[reserved.UID]; pod != nil && pod.Namespace == namespace && pod.ResourceVersion == reserved.ResourceVersion {
			live = append(live, reserved.UID)
		}
	}
	slices.Sort(live)
	return live
}

// recount is the slow and obvious way.
func (c *cluster) recount(namespace string, rule *appsv1alpha1.PodTransitionRule) counted {
	count := counted{Live: c.live(namespace, rule.Status.Permits)}
	selector, err := podindex.Selector(rule)
	if err != nil {
		return count
	}
	byOwner, strays := map[types.UID]int{}, 0
	for uid, pod := range c.pods {
		if pod.Namespace != namespace || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		count.Targets = append(count.Targets, pod.Name)
		terminating, failed := pod.DeletionTimestamp != nil, pod.Status.Phase == corev1.PodFailed
		if !terminating {
			count.Waiting = append(count.Waiting, waitingKeys(pod)...)
		}
		if terminating || failed {
			continue
		}
		count.Counts.Selected++
		if isOffTraffic(pod) {
			count.OffTraffic++
		}
		if podstate.Available(pod) {
			count.Counts.Available++
			if slices.Contains(count.Live, uid) {
				count.Counts.Reserved++
			}
		}
		owner := types.UID("")
		if len(pod.OwnerReferences) > 0 {
			owner = pod.OwnerReferences[0].UID
		}
		byOwner[owner]++
		if owner == "" && !podstate.Available(pod) && !lifecycle.NewPodFacts(pod).Permitted() && len(waitingKeys(pod)) == 0 {
			strays++
		}
	}
	slices.Sort(count.Targets)
	slices.Sort(count.Waiting)
	count.Counts.Desired = c.recountDesired(namespace, byOwner, func(template map[string]string) bool { return selector.Matches(labels.Set(template)) })
	if namespace == "default" && c.coversSome(func(template map[string]string) bool { return selector.Matches(labels.Set(template)) }) {
		count.Counts.Desired -= strays
	}
	return count
}

// coversSome reports whether a rule selects the pods of the template of a workload.
func (c *cluster) coversSome(selects func(map[string]string) bool) bool {
	for _, owner := range c.owners {
		if !owner.Terminating && owner.TemplateLabels[appsv1alpha1.ControlLabelKey] == "true" && selects(owner.TemplateLabels) {
			return true
		}
	}
	return false
}

func (c *cluster) recountDesired(namespace string, byOwner map[types.UID]int, selects func(map[string]string) bool) int {
	owners := c.owners
	if namespace != "default" {
		owners = nil
	}
	desired := 0
	covers := func(owner podindex.Owner) bool {
		_, below := owners[owner.Controller]
		return !below && !owner.Terminating && owner.TemplateLabels[appsv1alpha1.ControlLabelKey] == "true" && selects(owner.TemplateLabels)
	}
	for _, owner := range owners {
		if covers(owner) {
			desired += owner.Desired
		}
	}
	for uid, pods := range byOwner {
		owner, known := owners[uid]
		if above, ok := owners[owner.Controller]; known && ok {
			owner = above
		}
		if !known || !covers(owner) {
			desired += pods
		}
	}
	return desired
}

// checkNamespaces checks that nothing is kept of a namespace in which nothing is left.
func (c *cluster) checkNamespaces(t *rapid.T) {
	used := map[string]bool{}
	for _, pod := range c.pods {
		used[pod.Namespace] = true
	}
	for key := range c.rules {
		used[key.Namespace] = true
	}
	if len(c.owners)+len(c.budgets) > 0 {
		used["default"] = true
	}
	for name, record := range c.records {
		if _, present := c.budgets[name]; !present && record != nil {
			used["default"] = true // it is kept for the next PodDisruptionBudget of the name
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(used)), c.x.Namespaces()); diff != "" {
		t.Fatalf("namespaces differ (-want +got):\n%s", diff)
	}
}

// isOffTraffic reports whether the gate is False, or an operation on the pod has ended and the pod is not
// available again. No other pod of drawPod is.
func isOffTraffic(pod *corev1.Pod) bool {
	_, finished := pod.Labels[appsv1alpha1.OperatedLabelPrefix+"/b"]
	return finished || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == appsv1alpha1.ServiceReadyGate && c.Status == corev1.ConditionFalse
	})
}

func waitingKeys(pod *corev1.Pod) []string {
	var waiting []string
	if _, ok := pod.Labels[appsv1alpha1.PreCheckLabelPrefix+"/a"]; ok {
		waiting = append(waiting, string(pod.UID)+"/PreCheck/a")
	}
	if _, ok := pod.Labels[appsv1alpha1.PostCheckLabelPrefix+"/b"]; ok {
		waiting = append(waiting, string(pod.UID)+"/PostCheck/b")
	}
	return waiting
}
