package lifecycle_test

import (
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/test/sim"
)

const (
	lbFinalizer    = appsv1alpha1.ProtectionFinalizerPrefix + "/lb"
	dnsFinalizer   = appsv1alpha1.ProtectionFinalizerPrefix + "/dns"
	otherFinalizer = "example.com/other"
)

// cast contains all clients and controllers that act on one pod. Its exported methods are
// actions that may happen at any time, in any order.
type cast struct {
	sim *environment

	// model is nil where labels change without admission.
	model *model

	// passed are the permits that the rules gave so far, oldest first.
	passed map[string][]verdict

	// copies are pods in the caches of clients.
	copies []*corev1.Pod
}

func newCast(pod *corev1.Pod, opts lifecycle.Options) *cast {
	w := newSim(pod)
	w.opts = opts
	return &cast{sim: w, model: newModel(), passed: map[string][]verdict{}}
}

// drawCast returns a cast with a new pod.
func drawCast(t *rapid.T) *cast {
	pod := &corev1.Pod{}
	pod.Labels = map[string]string{
		appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue, "example.com/app": "web", appsv1alpha1.CreatingLabelKey: "1",
	}
	if rapid.Bool().Draw(t, "has gate") {
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: appsv1alpha1.ServiceReadyGate}}
	}
	expect(pod, drawFinalizers(t))
	settle := rapid.SampledFrom([]time.Duration{0, 5 * time.Second}).Draw(t, "settle")
	c := newCast(pod, lifecycle.Options{Settle: settle})
	c.sim.createRules = rapid.Bool().Draw(t, "create rules")
	if rapid.Bool().Draw(t, "has a drain endpoint") {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, appsv1alpha1.DrainEndpointAnnotationKey, ":8081/drain")
	}
	return c
}

func drawID(t *rapid.T) string { return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id") }

func drawType(t *rapid.T) string {
	return rapid.SampledFrom([]string{"upgrade", "restart"}).Draw(t, "type")
}

func drawFinalizers(t *rapid.T) []string {
	return rapid.SampledFrom([][]string{{}, {lbFinalizer}, {lbFinalizer, dnsFinalizer}}).Draw(t, "expected")
}

func drawOwnedKey(t *rapid.T) string {
	prefix := rapid.SampledFrom(append([]string{appsv1alpha1.OperationPermissionLabelPrefix, ""}, ownedPrefixes...)).Draw(t, "prefix")
	switch prefix {
	case "":
		return appsv1alpha1.ServiceAvailableLabelKey
	case appsv1alpha1.OperationPermissionLabelPrefix:
		return idLabel(prefix, drawType(t))
	}
	return idLabel(prefix, drawID(t))
}

func drawClientKey(t *rapid.T) string {
	prefix := rapid.SampledFrom([]string{
		appsv1alpha1.OperatingLabelPrefix, appsv1alpha1.OperationTypeLabelPrefix, appsv1alpha1.UndoOperationTypeLabelPrefix,
	}).Draw(t, "prefix")
	return idLabel(prefix, drawID(t))
}

func (c *cast) stamp() string { return strconv.FormatInt(c.sim.clock.Now().UnixNano(), 10) }

// request sends one update by a client. It goes through admission when the API server
// would send it there: when the old or the new pod is controlled.
func (c *cast) request(t failer, edit func(*corev1.Pod)) {
	t.Helper()
	if c.sim.gone() {
		return
	}
	c.sim.clock.Step(1) // no two writes in one nanosecond
	before := c.sim.pod
	requested := before.DeepCopy()
	edit(requested)
	if !lifecycle.NewPodFacts(before).Controlled() && !lifecycle.NewPodFacts(requested).Controlled() {
		c.sim.bypass(edit)
		return
	}
	got := c.sim.update(t, false, edit, nil)
	c.checkDenied(t, before, requested, got)
	if len(got.denials) > 0 || c.sim.gone() || before.DeletionTimestamp != nil {
		return
	}
	checkForeign(t, requested.Labels, c.sim.pod.Labels)
	checkAvailable(t, before, c.sim.pod)
	if c.model != nil {
		c.model.sees(t, before, c.sim.pod, requested.Labels)
	}
}

// checkDenied checks that a request that adds or changes a label of PodOps on a controlled pod is denied.
func (c *cast) checkDenied(t failer, before, requested *corev1.Pod, got response) {
	t.Helper()
	if !lifecycle.NewPodFacts(before).Controlled() || !lifecycle.NewPodFacts(requested).Controlled() || before.DeletionTimestamp != nil {
		return
	}
	for key, value := range requested.Labels {
		if was, had := before.Labels[key]; lifecycle.IsOwned(key) && (!had || was != value) && len(got.denials) == 0 {
			t.Fatalf("a client set %s", key)
		}
	}
}

// advance runs one round of the controller.
func (c *cast) advance(t failer, permits lifecycle.Permits) {
	t.Helper()
	if c.sim.gone() {
		return
	}
	before := c.sim.pod
	change := c.sim.reconcile(t, permits)
	if before.DeletionTimestamp != nil {
		if !change.IsEmpty() {
			t.Fatalf("a terminating pod is changed: %v", change)
		}
		return
	}
	checkForeign(t, before.Labels, c.sim.pod.Labels)
	checkAvailable(t, before, c.sim.pod)
	checkGate(t, c.sim.pod)
	c.model.sees(t, before, c.sim.pod, nil)
}

// evaluate lets the rules pass all waiting ids.
func (c *cast) evaluate() {
	if c.sim.gone() {
		return
	}
	for _, w := range lifecycle.WaitingIDs(lifecycle.NewPodFacts(c.sim.pod)) {
		c.pass(string(w.Stage), w.ID, w.Type, w.Attempt)
	}
}

func (c *cast) pass(stage, id, operationType, attempt string) {
	v := verdict{stage, id, operationType, attempt}
	if attempt == "" || c.model.issued[v] {
		return
	}
	c.model.issued[v] = true
	c.passed[stage+id] = append(c.passed[stage+id], v)
}

// newest returns the permits for the present state of the pod.
func (c *cast) newest() lifecycle.Permits {
	permits := lifecycle.Permits{PreCheck: map[string]string{}, PostCheck: map[string]string{}}
	for _, verdicts := range c.passed {
		v := verdicts[len(verdicts)-1]
		permitsOf(permits, v.stage)[v.id] = v.attempt
	}
	return permits
}

func permitsOf(permits lifecycle.Permits, stage string) map[string]string {
	if stage == "PreCheck" {
		return permits.PreCheck
	}
	return permits.PostCheck
}

// Begin requests an operation; on an id that runs already this changes its type.
func (c *cast) Begin(t *rapid.T) {
	id, operationType := drawID(t), drawType(t)
	c.request(t, func(pod *corev1.Pod) { c.begin(pod, id, operationType) })
}

func (c *cast) begin(pod *corev1.Pod, id, operationType string) {
	pod.Labels[idLabel(appsv1alpha1.OperatingLabelPrefix, id)] = c.stamp()
	pod.Labels[idLabel(appsv1alpha1.OperationTypeLabelPrefix, id)] = operationType
}

// Finish ends an operation, or cancels it if it has not begun.
func (c *cast) Finish(t *rapid.T) {
	id, both := drawID(t), rapid.Bool().Draw(t, "both")
	c.request(t, func(pod *corev1.Pod) {
		delete(pod.Labels, idLabel(appsv1alpha1.OperatingLabelPrefix, id))
		if both {
			delete(pod.Labels, idLabel(appsv1alpha1.OperationTypeLabelPrefix, id))
		}
	})
}

// Operate is a correct operation controller: it finishes the operations that it was allowed to do.
func (c *cast) Operate(t *rapid.T) { c.finishOperated(t) }

func (c *cast) finishOperated(t failer) {
	c.request(t, func(pod *corev1.Pod) {
		for _, id := range idsIn(pod.Labels) {
			if has(pod.Labels, appsv1alpha1.OperateLabelPrefix, id) {
				delete(pod.Labels, idLabel(appsv1alpha1.OperatingLabelPrefix, id))
			}
		}
	})
}

// Undo cancels an id, possibly together with the begin of another id.
func (c *cast) Undo(t *rapid.T) {
	id, other, also := drawID(t), drawID(t), rapid.Bool().Draw(t, "also begins")
	c.request(t, func(pod *corev1.Pod) {
		pod.Labels[idLabel(appsv1alpha1.UndoOperationTypeLabelPrefix, id)] = "upgrade"
		if also {
			c.begin(pod, other, "restart")
		}
	})
}

// Copy and Overwrite are a client that writes whole objects from its cache: labels, and a
// status that the API server drops.
func (c *cast) Copy(*rapid.T) {
	if !c.sim.gone() {
		c.copies = append(c.copies, c.sim.pod.DeepCopy())
	}
}

func (c *cast) Overwrite(t *rapid.T) {
	if len(c.copies) == 0 {
		t.Skip("no copy yet")
	}
	stale := c.copies[rapid.IntRange(0, len(c.copies)-1).Draw(t, "copy")]
	withoutOwned := rapid.Bool().Draw(t, "without the labels of PodOps")
	c.request(t, func(pod *corev1.Pod) {
		pod.Labels = maps.Clone(stale.Labels)
		pod.Status = *stale.Status.DeepCopy()
		if withoutOwned {
			maps.DeleteFunc(pod.Labels, func(key, _ string) bool { return lifecycle.IsOwned(key) })
		}
	})
}

// Forge adds labels of PodOps, Drop removes some.
func (c *cast) Forge(t *rapid.T) {
	key, value := drawOwnedKey(t), rapid.SampledFrom([]string{"upgrade", c.stamp()}).Draw(t, "value")
	c.request(t, func(pod *corev1.Pod) { pod.Labels[key] = value })
}

func (c *cast) Drop(t *rapid.T) {
	keys := rapid.SliceOfN(rapid.Custom(drawOwnedKey), 1, 8).Draw(t, "keys")
	c.request(t, func(pod *corev1.Pod) {
		maps.DeleteFunc(pod.Labels, func(key, _ string) bool { return slices.Contains(keys, key) })
	})
}

// User sets other labels: of the pod's operation controller, stay-offline, control.
func (c *cast) User(t *rapid.T) {
	key := rapid.SampledFrom([]string{
		"example.com/app", appsv1alpha1.RecreatingLabelKey, appsv1alpha1.StayOfflineLabelKey, appsv1alpha1.ControlLabelKey, appsv1alpha1.ControlLabelKey,
	}).Draw(t, "key")
	value := rapid.SampledFrom([]string{"true", "true", "false", ""}).Draw(t, "value")
	c.request(t, func(pod *corev1.Pod) {
		pod.Labels[key] = value
		if value == "" {
			delete(pod.Labels, key)
		}
	})
}

// Protect is a service controller that adds a finalizer to the pod or removes one.
func (c *cast) Protect(t *rapid.T) {
	name := rapid.SampledFrom([]string{lbFinalizer, dnsFinalizer, otherFinalizer}).Draw(t, "finalizer")
	on := rapid.Bool().Draw(t, "on")
	c.request(t, func(pod *corev1.Pod) { setFinalizer(pod, name, on) })
}

// Serve are correct service controllers: traffic, and their finalizers with it, follows
// Ready and the labels. (Ready alone is not enough: PodOps cannot make a pod without the
// gate unready.)
func (c *cast) Serve(t *rapid.T) { c.serve(t) }

func (c *cast) serve(t failer) {
	c.request(t, func(pod *corev1.Pod) {
		facts := lifecycle.NewPodFacts(pod)
		on := facts.Ready && !facts.Terminating && !slices.ContainsFunc(idsIn(pod.Labels), func(id string) bool {
			finished := has(pod.Labels, appsv1alpha1.OperatedLabelPrefix, id)
			return has(pod.Labels, appsv1alpha1.PreCheckedLabelPrefix, id) || finished && !has(pod.Labels, appsv1alpha1.CompleteLabelPrefix, id)
		})
		for _, name := range []string{lbFinalizer, dnsFinalizer} {
			setFinalizer(pod, name, on && slices.Contains(facts.ExpectedFinalizers(), name))
		}
	})
}

func setFinalizer(pod *corev1.Pod, name string, on bool) {
	if on == slices.Contains(pod.Finalizers, name) {
		return
	}
	if on {
		pod.Finalizers = append(pod.Finalizers, name)
		return
	}
	pod.Finalizers = slices.DeleteFunc(pod.Finalizers, func(f string) bool { return f == name })
}

// Expect changes which finalizers are expected, or breaks the annotation.
func (c *cast) Expect(t *rapid.T) {
	finalizers, broken := drawFinalizers(t), rapid.IntRange(0, 3).Draw(t, "broken if 0") == 0
	c.request(t, func(pod *corev1.Pod) {
		expect(pod, finalizers)
		if broken {
			pod.Annotations[appsv1alpha1.AvailableConditionsAnnotationKey] = "{"
		}
	})
}

// Rules evaluate the waiting ids now; their verdicts reach the controller at any time.
func (c *cast) Rules(*rapid.T) { c.evaluate() }

// Controller uses any permits that were ever given, old ones too.
func (c *cast) Controller(t *rapid.T) {
	permits := lifecycle.Permits{PreCheck: map[string]string{}, PostCheck: map[string]string{}}
	for _, key := range slices.Sorted(maps.Keys(c.passed)) {
		verdicts := c.passed[key]
		if i := rapid.IntRange(-1, len(verdicts)-1).Draw(t, "permit "+key); i >= 0 {
			permitsOf(permits, verdicts[i].stage)[verdicts[i].id] = verdicts[i].attempt
		}
	}
	c.advance(t, permits)
}

// FreshController uses permits for the ids that wait now.
func (c *cast) FreshController(t *rapid.T) {
	c.evaluate()
	c.advance(t, c.newest())
}

// Renew voids all earlier permits.
func (c *cast) Renew(t *rapid.T) {
	if c.sim.gone() {
		return
	}
	c.sim.clock.Step(1) // no two writes in one nanosecond
	before := c.sim.pod
	change := lifecycle.Renew(lifecycle.NewPodFacts(before), c.sim.clock.Now())
	c.sim.bypass(func(pod *corev1.Pod) { pod.Labels = change.Apply(pod.Labels) })
	if lifecycle.NewPodFacts(before).Controlled() && before.DeletionTimestamp == nil {
		c.model.sees(t, before, c.sim.pod, nil)
	}
	for _, w := range lifecycle.WaitingIDs(lifecycle.NewPodFacts(c.sim.pod)) {
		if w.Stage == appsv1alpha1.StagePreCheck && c.model.issued[verdict{"PreCheck", w.ID, w.Type, w.Attempt}] {
			t.Fatalf("the permit of %s is not void", w.ID)
		}
	}
}

// Kubelet reports the conditions. When it is not called for long, it lags.
func (c *cast) Kubelet(*rapid.T) {
	if !c.sim.gone() {
		c.sim.report()
	}
}

// Containers crash and recover; the kubelet has not observed it yet.
func (c *cast) Containers(t *rapid.T) { c.sim.kubelet.Healthy = rapid.Bool().Draw(t, "healthy") }

// Gate is written by another client.
func (c *cast) Gate(t *rapid.T) {
	on := rapid.Bool().Draw(t, "on")
	if !c.sim.gone() && len(c.sim.pod.Spec.ReadinessGates) > 0 {
		pod := c.sim.pod.DeepCopy()
		sim.SetCondition(pod, appsv1alpha1.ServiceReadyGate, on, "", c.sim.clock.Now())
		c.sim.store(pod)
	}
}

// Time advances the clock.
func (c *cast) Time(t *rapid.T) {
	c.sim.pass(rapid.SampledFrom([]time.Duration{1, time.Second, 2 * time.Minute}).Draw(t, "passes"))
}

// Clock sets the clock of the machine forward or back.
func (c *cast) Clock(t *rapid.T) {
	c.sim.clock.Step(rapid.SampledFrom([]time.Duration{-time.Hour, -time.Second, time.Minute, time.Hour}).Draw(t, "is set by"))
}

// Employers appear and disappear.
func (c *cast) Employers(t *rapid.T) {
	c.sim.services = rapid.SampledFrom([]lifecycle.Services{lifecycle.ServicesUnknown, lifecycle.ServicesNone, lifecycle.ServicesSome}).Draw(t, "services")
	c.sim.goneEmployers = nil
	for _, finalizer := range drawFinalizers(t) {
		c.sim.goneEmployers = append(c.sim.goneEmployers, employerOf(finalizer))
	}
	slices.Sort(c.sim.goneEmployers)
}

// Connections end or begin.
func (c *cast) Connections(t *rapid.T) { c.sim.drained = rapid.Bool().Draw(t, "drained") }

// Delete requests the deletion of the pod, rarely.
func (c *cast) Delete(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "deletes if 0") == 0 && !c.sim.gone() {
		c.sim.delete()
	}
}
