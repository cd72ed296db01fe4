package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Denial is the reason why a request on a pod is denied.
type Denial struct {
	// Key is the label, or other metadata key, that is wrong.
	Key string

	// Message describes the error and the way to correct it.
	Message string
}

// Admission is the response to a request on a pod.
type Admission struct {
	// Change must be applied to the labels of the requested object. Its Gate is always nil.
	Change Change

	// Denials deny the request; Change is meaningless then.
	Denials []Denial

	// Stripped are the lifecycle labels that were removed from a pod that is created, or
	// that comes under PodOps with this request, and the label that deletes a new pod; sorted.
	Stripped []string
}

// AdmitCreate returns the response to the creation of a pod. A new pod has no lifecycle:
// lifecycle labels can only come from a copied manifest and are stripped. So is the label that
// requests the deletion of a pod: in a template, its pods would be created and deleted without end.
func AdmitCreate(requested PodFacts) Admission {
	var admission Admission
	for key := range requested.Labels {
		if isPerLifecycle(key) || key == appsv1alpha1.ToDeleteLabelKey {
			admission.Stripped = append(admission.Stripped, key)
		}
	}
	slices.Sort(admission.Stripped)
	admission.Change.Remove = admission.Stripped
	return admission
}

// AdmitUpdate returns the response to an update of a pod. A label that only PodOps may set is
// denied when the request adds or changes it, and restored when the request drops it: deployed
// clients write whole objects from their caches. PodOps itself (trusted) may set them. The
// requested steps are taken in the same request, as far as possible without writing the gate.
// AdmitUpdate must see the object as the client sent it: call it once per request
// (reinvocationPolicy Never), because it takes its own labels for forged labels.
func AdmitUpdate(old, requested PodFacts, trusted bool, opts Options, now time.Time) Admission {
	if old.Terminating {
		return Admission{}
	}
	opts.LabelsOnly = true
	before, labels := old.Labels, maps.Clone(requested.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	var admission Admission
	switch {
	case !requested.Controlled():
		// The whole lifecycle is removed: there is nothing to deny.
	case !old.Controlled():
		// Until now no webhook protected the labels.
		before = nil
		admission.Stripped = strip(labels)
	case !trusted:
		admission.Denials = forged(before, labels)
		restore(before, labels)
	}
	if requested.Controlled() && !trusted {
		admission.Denials = append(admission.Denials, idless(before, labels)...)
		admission.Denials = append(admission.Denials, unpaired(before, labels)...)
		admission.Denials = append(admission.Denials, tooManyIDs(before, labels)...)
	}
	if len(admission.Denials) > 0 {
		return admission
	}
	effective := withMetadataFrom(old, requested)
	effective.Labels = labels
	admission.Change = advanceRequest(before, requested.Labels, effective, opts, now)
	return admission
}

// advanceRequest returns the change from the requested labels to the labels that follow from those of a pod. It modifies the
// labels of the pod.
func advanceRequest(before, requested map[string]string, pod PodFacts, opts Options, now time.Time) Change {
	var moves []Transition
	if pod.Controlled() {
		for _, id := range operationIDs(pod.Labels) {
			moves = append(moves, reenter(before, pod.Labels, id, opts, now)...)
		}
	}
	change := Advance(pod, Permits{}, opts, now)
	change.Transitions = append(moves, change.Transitions...)
	final := change.Apply(pod.Labels)
	change.Set, change.Remove = nil, nil
	change.diff(requested, final)
	return change
}

// withMetadataFrom returns the pod as it is stored, with the requested metadata. A request on
// pods may contain any status that the client chose: the API server drops it after
// admission, so no decision may use it.
func withMetadataFrom(old, requested PodFacts) PodFacts {
	stored := old
	stored.Labels = requested.Labels
	stored.Finalizers = requested.Finalizers
	stored.Expected, stored.Gone = requested.Expected, requested.Gone
	stored.ExpectedFinalizersErr = requested.ExpectedFinalizersErr
	return stored
}

// strip removes the labels that only PodOps may set and returns their keys, sorted.
func strip(labels map[string]string) []string {
	var stripped []string
	for key := range labels {
		if IsOwned(key) {
			stripped = append(stripped, key)
			delete(labels, key)
		}
	}
	slices.Sort(stripped)
	return stripped
}

// forged returns a denial for each label that only PodOps may set and that the request adds or changes.
func forged(old, requested map[string]string) []Denial {
	var denials []Denial
	for key, value := range requested {
		if was, had := old[key]; (!had || was != value) && IsOwned(key) {
			denials = append(denials, forgedLabel(key))
		}
	}
	return byKey(denials)
}

func forgedLabel(key string) Denial {
	return Denial{Key: key, Message: fmt.Sprintf("only PodOps sets this label; to request an operation add %s/<id> and %s/<id>",
		appsv1alpha1.OperatingLabelPrefix, appsv1alpha1.OperationTypeLabelPrefix)}
}

// restore adds the labels of PodOps that the request dropped.
func restore(old, labels map[string]string) {
	for key, value := range old {
		if IsOwned(key) && !hasKey(labels, key) {
			labels[key] = value
		}
	}
}

// idless returns a denial for each lifecycle label without an id that the request adds: it would have no effect.
func idless(old, requested map[string]string) []Denial {
	var denials []Denial
	for key := range requested {
		if hasKey(old, key) || !isWithoutID(key) {
			continue
		}
		what := "id"
		if key == appsv1alpha1.OperationPermissionLabelPrefix {
			what = "type"
		}
		denials = append(denials, Denial{Key: key, Message: fmt.Sprintf("has no %s and does nothing: write %s/<%s>", what, key, what)})
	}
	return byKey(denials)
}

// byKey sorts denials of different keys.
func byKey(denials []Denial) []Denial {
	slices.SortFunc(denials, func(a, b Denial) int { return strings.Compare(a.Key, b.Key) })
	return denials
}

// tooManyIDs denies a request that begins an id beyond MaxIDs.
func tooManyIDs(old, requested map[string]string) []Denial {
	ids := operationIDs(requested)
	if len(ids) <= MaxIDs || len(ids) <= len(operationIDs(old)) {
		return nil
	}
	for _, id := range ids {
		if key := label(appsv1alpha1.OperatingLabelPrefix, id); hasKey(requested, key) && !hasKey(old, key) {
			return []Denial{{Key: key, Message: fmt.Sprintf("a pod takes at most %d ids at once, and this request makes it %d", MaxIDs, len(ids))}}
		}
	}
	return nil
}

// unpaired returns a denial for each id for which the request breaks the pair of operating and
// operation-type. A pair that an earlier request broke is not denied.
func unpaired(old, requested map[string]string) []Denial {
	var denials []Denial
	for _, id := range operationIDs(requested) {
		operating, operationType := label(appsv1alpha1.OperatingLabelPrefix, id), label(appsv1alpha1.OperationTypeLabelPrefix, id)
		isOperating, hasType := hasKey(requested, operating), requested[operationType] != ""
		wasOperating, hadType := hasKey(old, operating), old[operationType] != ""
		switch {
		case hasLabel(requested, appsv1alpha1.UndoOperationTypeLabelPrefix, id):
		case isOperating && !hasType && (!wasOperating || hadType):
			denials = append(denials, Denial{Key: operating, Message: fmt.Sprintf("needs %s with the type of the operation: both are added together", operationType)})
		case hasType && !isOperating && requested[operationType] != old[operationType]:
			denials = append(denials, Denial{Key: operationType, Message: fmt.Sprintf("needs %s: both are added together", operating)})
		}
	}
	return denials
}

// reenter applies the changes that follow from the comparison with the old object: an id that
// begins (again) or whose type changes starts a clean lifecycle, and an id that ends keeps its
// type until finish has read it.
func reenter(old, labels map[string]string, id string, opts Options, now time.Time) []Transition {
	operating, operationType := label(appsv1alpha1.OperatingLabelPrefix, id), label(appsv1alpha1.OperationTypeLabelPrefix, id)
	isOperating, wasOperating := hasKey(labels, operating), hasKey(old, operating)
	begun := isOperating && !wasOperating
	retyped := isOperating && wasOperating && labels[operationType] != old[operationType]
	switch {
	case hasLabel(labels, appsv1alpha1.UndoOperationTypeLabelPrefix, id):
	case begun || retyped:
		unchecked, owes := (&machine{labels: old}).owesPostCheck(id)
		for _, prefix := range ownedPrefixes() {
			if hasLabel(labels, prefix, id) {
				delete(labels, label(prefix, id))
			}
		}
		if owes {
			labels[label(appsv1alpha1.UncheckedLabelPrefix, id)] = unchecked
		}
		if labels[operationType] == "" {
			return nil
		}
		attempt := nextAttempt(old, id, now)
		labels[label(appsv1alpha1.PreCheckLabelPrefix, id)] = attempt
		if opts.RecordBegin {
			labels[label(appsv1alpha1.BeganLabelPrefix, id)] = attempt
		}
		return []Transition{{Step: StepBegin, ID: id, Type: labels[operationType]}}
	case wasOperating && !isOperating && old[operationType] != "":
		labels[operationType] = old[operationType]
	}
	return nil
}

// DenialText joins denials into one message, each with its key.
func DenialText(denials []Denial) string {
	texts := make([]string, len(denials))
	for i, d := range denials {
		texts[i] = fmt.Sprintf("metadata.labels[%s]: %s", d.Key, d.Message)
	}
	return strings.Join(texts, "; ")
}
