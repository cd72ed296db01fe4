package podoperation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// KindDeployment is the kind of owner whose pods belong to its ReplicaSets.
const KindDeployment = "Deployment"

// Selector decides which pods a PodOperation has to do with.
type Selector struct {
	operation *appsv1alpha1.PodOperation
	labels    labels.Selector
	names     sets.Set[string]
	sets      sets.Set[types.UID]
}

// NewSelector returns the Selector of an operation. replicaSets are the ReplicaSets of the owner, if
// that is a Deployment. It fails when the selector of the target cannot be parsed.
func NewSelector(operation *appsv1alpha1.PodOperation, replicaSets sets.Set[types.UID]) (Selector, error) {
	s := Selector{operation: operation, labels: labels.Nothing(), names: sets.New(operation.Spec.Target.Names...), sets: replicaSets}
	if selector := operation.Spec.Target.Selector; selector != nil {
		parsed, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return s, fmt.Errorf("parsing spec.target.selector: %w", err)
		}
		s.labels = parsed
	}
	return s, nil
}

// Includes reports whether a pod is a target, or is no longer a target but still has the lifecycle
// of the operation:
//
//   - its lifecycle has begun and has not finished, or
//   - it has not ended, and
//   - it is no newer than the operation, and
//   - the target names it.
func (s Selector) Includes(pod *corev1.Pod) bool {
	return has(pod, appsv1alpha1.OperatingLabelPrefix, ID(s.operation.UID)) ||
		!isEnded(pod) && !s.operation.CreationTimestamp.Before(&pod.CreationTimestamp) && (s.names.Has(pod.Name) || s.selects(pod))
}

func (s Selector) selects(pod *corev1.Pod) bool {
	if owner := s.operation.Spec.Target.Owner; owner != nil {
		controller := metav1.GetControllerOfNoCopy(pod)
		switch {
		case controller == nil:
			return false
		case owner.Kind == KindDeployment:
			// The Deployment itself controls a pod that surges.
			return s.sets.Has(controller.UID) || controller.Kind == KindDeployment && controller.Name == owner.Name
		default:
			return controller.Kind == owner.Kind && controller.Name == owner.Name
		}
	}
	return s.labels.Matches(labels.Set(pod.Labels))
}

// isEnded reports whether no container of the pod runs or will run.
func isEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// inOrder returns the pods in the order of the operation.
func inOrder(spec appsv1alpha1.PodOperationSpec, pods []*corev1.Pod) []*corev1.Pod {
	sorted := slices.Clone(pods)
	compare := compareNames
	switch spec.Order {
	case appsv1alpha1.OrderReverseName:
		compare = func(a, b *corev1.Pod) int { return compareNames(b, a) }
	case appsv1alpha1.OrderOldestFirst:
		compare = func(a, b *corev1.Pod) int { return cmp.Or(compareAges(a, b), compareNames(a, b)) }
	case appsv1alpha1.OrderNewestFirst:
		compare = func(a, b *corev1.Pod) int { return cmp.Or(compareAges(b, a), compareNames(a, b)) }
	case appsv1alpha1.OrderName:
	default:
		if len(spec.Target.Names) > 0 {
			position := map[string]int{}
			for i, name := range spec.Target.Names {
				position[name] = i
			}
			compare = func(a, b *corev1.Pod) int { return cmp.Compare(position[a.Name], position[b.Name]) }
		}
	}
	slices.SortStableFunc(sorted, compare)
	return sorted
}

func compareAges(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) }

// compareNames compares names by their parts: numbers by value, other parts as text.
func compareNames(a, b *corev1.Pod) int {
	one, two := a.Name, b.Name
	for one != "" && two != "" {
		partOne, partTwo := part(one), part(two)
		if order := compareParts(partOne, partTwo); order != 0 {
			return order
		}
		one, two = one[len(partOne):], two[len(partTwo):]
	}
	return cmp.Or(cmp.Compare(one, two), cmp.Compare(a.Name, b.Name))
}

// part returns the longest prefix of a name that consists of digits only, or of other characters
// only.
func part(name string) string {
	first := isDigit(name[0])
	for i := range len(name) {
		if isDigit(name[i]) != first {
			return name[:i]
		}
	}
	return name
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

func compareParts(a, b string) int {
	if !isDigit(a[0]) || !isDigit(b[0]) {
		return cmp.Compare(a, b)
	}
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}
