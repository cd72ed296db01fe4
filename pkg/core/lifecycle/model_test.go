package lifecycle_test

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
)

// verdict is one verdict of the rules: this id, with this type, passed this stage in this
// attempt.
type verdict struct {
	stage, id, operationType, attempt string
}

// model derives the labels that may be on the pod from the actions of the cast alone. It sees
// every write.
type model struct {
	// issued are the verdicts that the rules ever gave.
	issued map[verdict]bool

	// attempt of the running lifecycle of each id; absent while the id has no lifecycle.
	attempt map[string]string

	// spent are the attempts that an id ever had.
	spent map[string]bool

	// unchecked are the ids that were operated on and have not passed PostCheck.
	unchecked map[string]bool
}

func newModel() *model {
	return &model{issued: map[verdict]bool{}, attempt: map[string]string{}, spent: map[string]bool{}, unchecked: map[string]bool{}}
}

func idLabel(prefix, id string) string { return prefix + "/" + id }

func has(labels map[string]string, prefix, id string) bool {
	_, ok := labels[idLabel(prefix, id)]
	return ok
}

// idsIn returns the ids that any label names, sorted.
func idsIn(labels map[string]string) []string {
	ids := map[string]bool{}
	for key := range labels {
		prefix, id, found := strings.Cut(key, "/")
		isPermission := prefix == appsv1alpha1.OperationPermissionLabelPrefix
		if found && !isPermission && strings.HasSuffix(prefix, "."+appsv1alpha1.LifecycleDomain) {
			ids[id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// sees checks one write, and records it. requested are the labels of a client's request; nil
// for a write of the controller.
func (m *model) sees(t failer, before, after *corev1.Pod, requested map[string]string) {
	t.Helper()
	was, is := before.Labels, after.Labels
	if !lifecycle.NewPodFacts(before).Controlled() {
		was, m.attempt, m.unchecked = nil, map[string]string{}, map[string]bool{}
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(append(idsIn(was), idsIn(is)...)))) {
		_, undone := requested[idLabel(appsv1alpha1.UndoOperationTypeLabelPrefix, id)]
		m.seesBegin(t, was, is, id)
		m.seesPermit(t, was, is, id)
		checkPostCheck(t, was, is, id)
		if has(is, appsv1alpha1.OperateLabelPrefix, id) && !has(was, appsv1alpha1.OperateLabelPrefix, id) {
			checkTrafficIsOff(t, before, after)
		}
		m.seesEnd(t, was, is, id, undone)
	}
	checkPermissions(t, is)
}

// seesBegin checks that an id that begins, or whose type changes, has a new attempt and no
// label of an older lifecycle, except the one for a pending PostCheck.
func (m *model) seesBegin(t failer, was, is map[string]string, id string) {
	t.Helper()
	operationType := idLabel(appsv1alpha1.OperationTypeLabelPrefix, id)
	operating := has(is, appsv1alpha1.OperatingLabelPrefix, id)
	begun := operating && (!has(was, appsv1alpha1.OperatingLabelPrefix, id) || was[operationType] != is[operationType])
	if begun {
		delete(m.attempt, id)
		m.unchecked[id] = m.unchecked[id] || has(was, appsv1alpha1.OperateLabelPrefix, id)
		for _, prefix := range ownedPrefixes {
			if prefix != appsv1alpha1.PreCheckLabelPrefix && prefix != appsv1alpha1.UncheckedLabelPrefix && has(is, prefix, id) {
				t.Fatalf("%s of an older lifecycle of %s is still there", prefix, id)
			}
		}
		if marked := has(is, appsv1alpha1.UncheckedLabelPrefix, id); marked != m.unchecked[id] {
			t.Fatalf("%s has a pending PostCheck: %t, on the pod: %t", id, m.unchecked[id], marked)
		}
	}
	attempt := is[idLabel(appsv1alpha1.PreCheckLabelPrefix, id)]
	if attempt != was[idLabel(appsv1alpha1.PreCheckLabelPrefix, id)] && attempt != "" {
		if m.spent[id+attempt] {
			t.Fatalf("%s has attempt %s twice", id, attempt)
		}
		m.spent[id+attempt] = true
		m.attempt[id] = attempt
	}
	if begun && m.attempt[id] == "" {
		t.Fatalf("%s was begun and does not wait", id)
	}
	if !operating {
		delete(m.attempt, id)
	}
}

// seesPermit checks that pre-checked, prepare and post-checked follow verdicts for this id, type
// and attempt.
func (m *model) seesPermit(t failer, was, is map[string]string, id string) {
	t.Helper()
	for _, prefix := range []string{appsv1alpha1.PreCheckedLabelPrefix, appsv1alpha1.PrepareLabelPrefix, appsv1alpha1.OperateLabelPrefix} {
		passed := m.issued[verdict{"PreCheck", id, is[idLabel(appsv1alpha1.OperationTypeLabelPrefix, id)], m.attempt[id]}]
		if has(is, prefix, id) && !passed {
			t.Fatalf("%s/%s without a permit for this type and attempt", prefix, id)
		}
	}
	if has(is, appsv1alpha1.PostCheckedLabelPrefix, id) && !has(was, appsv1alpha1.PostCheckedLabelPrefix, id) {
		done := is[idLabel(appsv1alpha1.DoneOperationTypeLabelPrefix, id)]
		if !m.issued[verdict{"PostCheck", id, done, was[idLabel(appsv1alpha1.PostCheckLabelPrefix, id)]}] {
			t.Fatalf("%s passed PostCheck without a permit", id)
		}
		delete(m.unchecked, id)
	}
}

// seesEnd checks that an operated id is not removed, and the pod does not become available,
// before the id has passed PostCheck; unless its controller undid it.
func (m *model) seesEnd(t failer, was, is map[string]string, id string, undone bool) {
	t.Helper()
	finished := has(was, appsv1alpha1.OperateLabelPrefix, id) && !has(is, appsv1alpha1.OperatingLabelPrefix, id)
	if finished {
		m.unchecked[id] = true
		operationType := was[idLabel(appsv1alpha1.OperationTypeLabelPrefix, id)]
		if done := is[idLabel(appsv1alpha1.DoneOperationTypeLabelPrefix, id)]; !undone && isControlled(is) && done != operationType {
			t.Fatalf("%s finished %s, and its label contains %q", id, operationType, done)
		}
	}
	// A write of post permit and available at once shows no post-checked label.
	postCheck := was[idLabel(appsv1alpha1.PostCheckLabelPrefix, id)]
	passed := m.issued[verdict{"PostCheck", id, was[idLabel(appsv1alpha1.DoneOperationTypeLabelPrefix, id)], postCheck}]
	if undone || !isControlled(is) || len(idLabels(is, id)) == 0 && passed {
		delete(m.unchecked, id)
	}
	_, available := is[appsv1alpha1.ServiceAvailableLabelKey]
	marked := has(is, appsv1alpha1.OperatedLabelPrefix, id) || has(is, appsv1alpha1.UncheckedLabelPrefix, id)
	if m.unchecked[id] && (available || !marked) {
		t.Fatalf("%s was operated on and PostCheck is skipped", id)
	}
}

func isControlled(labels map[string]string) bool {
	return labels[appsv1alpha1.ControlLabelKey] == appsv1alpha1.ControlLabelValue
}

// checkPostCheck checks that PostCheck is requested only once no other id operates on the pod.
func checkPostCheck(t failer, was, is map[string]string, id string) {
	t.Helper()
	if !has(is, appsv1alpha1.PostCheckLabelPrefix, id) || has(was, appsv1alpha1.PostCheckLabelPrefix, id) {
		return
	}
	for _, other := range idsIn(is) {
		if has(is, appsv1alpha1.PreCheckedLabelPrefix, other) {
			t.Fatalf("PostCheck of %s is requested while %s is permitted", id, other)
		}
	}
}

func idLabels(labels map[string]string, id string) []string {
	var keys []string
	for _, prefix := range append([]string{appsv1alpha1.OperatingLabelPrefix, appsv1alpha1.OperationTypeLabelPrefix}, ownedPrefixes...) {
		if has(labels, prefix, id) {
			keys = append(keys, idLabel(prefix, id))
		}
	}
	return keys
}

// ownedPrefixes carry ids and belong to PodOps.
var ownedPrefixes = []string{
	appsv1alpha1.PreCheckLabelPrefix, appsv1alpha1.PreCheckedLabelPrefix,
	appsv1alpha1.PrepareLabelPrefix, appsv1alpha1.PreparingLabelPrefix,
	appsv1alpha1.OperateLabelPrefix, appsv1alpha1.OperatedLabelPrefix, appsv1alpha1.DoneOperationTypeLabelPrefix,
	appsv1alpha1.UncheckedLabelPrefix, appsv1alpha1.PostCheckLabelPrefix, appsv1alpha1.PostCheckedLabelPrefix,
	appsv1alpha1.CompleteLabelPrefix, appsv1alpha1.CompletingLabelPrefix,
}

// checkTrafficIsOff checks that whenever operate is granted, there is no protection finalizer,
// and the gate was False already. A pod without a gate is protected by finalizers alone.
func checkTrafficIsOff(t failer, before, after *corev1.Pod) {
	t.Helper()
	facts := lifecycle.NewPodFacts(before)
	if slices.ContainsFunc(after.Finalizers, lifecycle.IsProtectionFinalizer) {
		t.Fatalf("operate is granted with a protection finalizer: %v", after.Finalizers)
	}
	if facts.Gate != lifecycle.GateFalse && facts.Gate != lifecycle.GateMissing {
		t.Fatalf("operate is granted and the gate was not False")
	}
}

// checkPermissions checks that after every write operation-permission is there exactly for
// the types of the permitted ids.
func checkPermissions(t failer, labels map[string]string) {
	t.Helper()
	wanted := map[string]bool{}
	for _, id := range idsIn(labels) {
		if has(labels, appsv1alpha1.PreCheckedLabelPrefix, id) {
			wanted[labels[idLabel(appsv1alpha1.OperationTypeLabelPrefix, id)]] = true
		}
	}
	for key := range labels {
		operationType, isPermission := strings.CutPrefix(key, appsv1alpha1.OperationPermissionLabelPrefix+"/")
		if isPermission && !wanted[operationType] {
			t.Fatalf("permission for %s without a permitted id", operationType)
		}
		delete(wanted, operationType)
	}
	if len(wanted) > 0 {
		t.Fatalf("no permission for %v", slices.Collect(maps.Keys(wanted)))
	}
}

// keepsOffline reports whether an id, or the user, keeps the pod off traffic.
func keepsOffline(labels map[string]string) bool {
	_, stayOffline := labels[appsv1alpha1.StayOfflineLabelKey]
	return stayOffline || slices.ContainsFunc(idsIn(labels), func(id string) bool {
		complete := has(labels, appsv1alpha1.PostCheckedLabelPrefix, id) && !has(labels, appsv1alpha1.PostCheckLabelPrefix, id)
		return has(labels, appsv1alpha1.PreCheckedLabelPrefix, id) || has(labels, appsv1alpha1.UncheckedLabelPrefix, id) ||
			has(labels, appsv1alpha1.OperatedLabelPrefix, id) && !complete
	})
}

// checkAvailable checks that an available pod meets all conditions for it, and that service
// controllers are requested to put traffic on only when stay-offline is not set. A finalizer
// that was expected later may be missing on a pod that was available before.
func checkAvailable(t failer, before, pod *corev1.Pod) {
	t.Helper()
	facts := lifecycle.NewPodFacts(pod)
	offline := keepsOffline(pod.Labels)
	for _, id := range idsIn(pod.Labels) {
		if offline && (has(pod.Labels, appsv1alpha1.CompleteLabelPrefix, id) || has(pod.Labels, appsv1alpha1.CompletingLabelPrefix, id)) {
			t.Fatalf("%s is complete on a pod that has to be offline", id)
		}
	}
	if _, available := pod.Labels[appsv1alpha1.ServiceAvailableLabelKey]; !available {
		return
	}
	_, was := before.Labels[appsv1alpha1.ServiceAvailableLabelKey]
	missing := slices.DeleteFunc(facts.ExpectedFinalizers(), func(name string) bool {
		return slices.Contains(pod.Finalizers, name) || was && lifecycle.NewPodFacts(before).Controlled()
	})
	gateOpen := facts.Gate == lifecycle.GateTrue || facts.Gate == lifecycle.GateMissing
	if !gateOpen || !facts.Ready && !facts.GatesOnly {
		t.Fatalf("available: gate %d, ready %t, by gates alone %t", facts.Gate, facts.Ready, facts.GatesOnly)
	}
	if offline || facts.ExpectedFinalizersErr != nil || len(missing) > 0 || !facts.Controlled() {
		t.Fatalf("available: offline %t, conditions %v, missing %v, controlled %t", offline, facts.ExpectedFinalizersErr, missing, facts.Controlled())
	}
}

// checkGate checks the gate after every write of the controller.
func checkGate(t failer, pod *corev1.Pod) {
	t.Helper()
	facts := lifecycle.NewPodFacts(pod)
	offline := facts.Controlled() && keepsOffline(pod.Labels)
	wrong := offline && facts.Gate != lifecycle.GateFalse || !offline && facts.Gate == lifecycle.GateFalse
	if facts.Gate != lifecycle.GateMissing && wrong {
		t.Fatalf("offline %t, gate %d", offline, facts.Gate)
	}
}

// checkForeign checks that labels of other owners, and the unfinished requests of clients, are
// stored as they were requested.
func checkForeign(t failer, requested, stored map[string]string) {
	t.Helper()
	for key, value := range requested {
		if mayRemove(requested, key) {
			continue
		}
		if got, ok := stored[key]; !ok || got != value {
			t.Fatalf("label %s=%s of another owner is now %q", key, value, got)
		}
	}
	for key := range stored {
		if _, ok := requested[key]; !ok && !lifecycle.IsOwned(key) {
			t.Fatalf("label %s was added", key)
		}
	}
}

// mayRemove reports whether PodOps may remove a label, given the others.
func mayRemove(labels map[string]string, key string) bool {
	prefix, id, _ := strings.Cut(key, "/")
	switch {
	case lifecycle.IsOwned(key):
		return true
	case key == appsv1alpha1.CreatingLabelKey, key == appsv1alpha1.RecreatingLabelKey:
		return true
	case !isControlled(labels):
		return strings.HasSuffix(prefix, "."+appsv1alpha1.LifecycleDomain)
	case prefix == appsv1alpha1.UndoOperationTypeLabelPrefix:
		return true
	case prefix == appsv1alpha1.OperatingLabelPrefix, prefix == appsv1alpha1.OperationTypeLabelPrefix:
		return has(labels, appsv1alpha1.UndoOperationTypeLabelPrefix, id) || !has(labels, appsv1alpha1.OperatingLabelPrefix, id)
	}
	return false
}
