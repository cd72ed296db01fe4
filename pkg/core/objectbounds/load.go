package objectbounds

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// ErrTooLarge is wrapped by the error of TooLarge.
var ErrTooLarge = errors.New("the resource exceeds its size bounds and is not loaded")

// markerKey is the annotation of a stub, with the bound that the object exceeds. It is never
// written to the API server.
const markerKey = "podtransitionrule.kusionstack.io/too-large"

// sizeKey is the annotation of a loaded PodTransitionRule with its RuleSize, so that the budget of a
// namespace is summed up without encoding its objects again. It is never written to the API server.
const sizeKey = "podtransitionrule.kusionstack.io/loaded-bytes"

// maxMarkerBytes bounds the value of the marker.
const maxMarkerBytes = 512

// Bounds of an object's annotations that stay in the cache: annotations in the domain of
// PodOps.
const (
	ownDomain               = "kusionstack.io"
	maxAnnotations          = 16
	maxAnnotationValueBytes = 256
)

// Load transforms PodTransitionRules and PodTransitionPolicies for a cache. It drops fields
// that no controller reads (managed fields, labels, annotations of other programs), and replaces an
// object that exceeds its bounds by a stub: the metadata, the selector if that is within its bounds,
// and for each stage one rule without a check, which withholds. A second call changes nothing. It
// modifies the object, never fails, and returns all other types unchanged.
func Load(object any) (any, error) {
	switch o := object.(type) {
	case *appsv1alpha1.PodTransitionRule:
		slim(&o.ObjectMeta, isStub(o.Spec.Rules))
		if errs := Rule(&o.Spec); len(errs) > 0 {
			stubRule(o, errs)
		}
		annotate(&o.ObjectMeta, sizeKey, strconv.Itoa(RuleSize(&o.Spec)))
	case *appsv1alpha1.PodTransitionPolicy:
		slim(&o.ObjectMeta, o.Spec.Module == "" && o.Spec.Data == nil)
		if errs := Policy(&o.Spec); len(errs) > 0 {
			o.Spec = appsv1alpha1.PodTransitionPolicySpec{}
			mark(&o.ObjectMeta, errs)
		}
	}
	return object, nil
}

// TooLarge returns why an object is a stub, wrapping ErrTooLarge; nil for any other object.
func TooLarge(object metav1.Object) error {
	text, marked := object.GetAnnotations()[markerKey]
	if !marked {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrTooLarge, text)
}

// LoadedSize returns the RuleSize of a PodTransitionRule that Load returned, as it is loaded; of any
// other object, RuleOverheadBytes.
func LoadedSize(object metav1.Object) int {
	size, err := strconv.Atoi(object.GetAnnotations()[sizeKey])
	if err != nil {
		return appsv1alpha1.RuleOverheadBytes
	}
	return size
}

func annotate(meta *metav1.ObjectMeta, key, value string) {
	if meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	meta.Annotations[key] = value
}

// stubRule replaces the spec. The rules of the stub represent the enabled rules of the object, by
// stage and enforcement, so that rules that were not enforced withhold no pod.
func stubRule(object *appsv1alpha1.PodTransitionRule, errs field.ErrorList) {
	spec := appsv1alpha1.PodTransitionRuleSpec{}
	if len(Selector(object.Spec.Selector, nil)) == 0 {
		spec.Selector = object.Spec.Selector
	}
	seen := map[string]bool{}
	for _, rule := range object.Spec.Rules {
		stub := appsv1alpha1.TransitionRule{Stage: effectiveStage(rule.Stage), Enforcement: effectiveEnforcement(rule.Enforcement)}
		stub.Name = strings.ToLower(fmt.Sprintf("too-large-%s-%s", stub.Stage, stub.Enforcement))
		if !rule.Disabled && !seen[stub.Name] {
			seen[stub.Name] = true
			spec.Rules = append(spec.Rules, stub)
		}
	}
	object.Spec = spec
	object.Status.RuleStates = nil
	object.Status.Rules = nil
	object.Status.Blocked = nil
	object.Status.Targets = nil
	mark(&object.ObjectMeta, errs)
}

// isStub reports whether rules belong to a stub. The schema denies a PodTransitionRule without
// rules and a rule without a check, so no stored object looks like a stub.
func isStub(rules []appsv1alpha1.TransitionRule) bool {
	return !slices.ContainsFunc(rules, func(rule appsv1alpha1.TransitionRule) bool {
		return rule.AvailablePolicy != nil || rule.LabelCheck != nil || rule.Webhook != nil || rule.Rego != nil
	})
}

func effectiveStage(stage appsv1alpha1.TransitionStage) appsv1alpha1.TransitionStage {
	if stage == appsv1alpha1.StagePostCheck {
		return stage
	}
	return appsv1alpha1.StagePreCheck
}

func effectiveEnforcement(enforcement appsv1alpha1.Enforcement) appsv1alpha1.Enforcement {
	switch enforcement {
	case appsv1alpha1.EnforcementWarn, appsv1alpha1.EnforcementDryRun:
		return enforcement
	default:
		return appsv1alpha1.EnforcementEnforce
	}
}

// mark records on a stub which bounds the object exceeds.
func mark(meta *metav1.ObjectMeta, errs field.ErrorList) {
	annotate(meta, markerKey, text.Prefix(errs.ToAggregate().Error(), maxMarkerBytes))
}

// slim drops the metadata that no controller reads. The marker stays on a stub only: on any other
// object a user has written it.
func slim(meta *metav1.ObjectMeta, stub bool) {
	meta.ManagedFields, meta.Labels = nil, nil
	kept := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(meta.Annotations)) {
		isMarker, value := key == markerKey, meta.Annotations[key]
		switch {
		case isMarker && stub, !isMarker && isOwn(key) && len(kept) < maxAnnotations && len(value) <= maxAnnotationValueBytes:
			kept[key] = value
		}
	}
	meta.Annotations = nil
	if len(kept) > 0 {
		meta.Annotations = kept
	}
}

func isOwn(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && (domain == ownDomain || strings.HasSuffix(domain, "."+ownDomain))
}
