package podopslifecycle

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// OperationType is the kind of an operation, which rules refer to in their conditions. It is the value of
// the label operation-type and the name in the label operation-permission: a label name of at most 63
// characters.
type OperationType string

// Types of operations that several controllers share. Any other label name is a type, too.
const (
	// OperationTypeUpdate changes the pod in place, or replaces it by one of another revision.
	OperationTypeUpdate OperationType = "update"

	// OperationTypeRestart starts containers again and keeps the pod.
	OperationTypeRestart OperationType = "restart"

	// OperationTypeScaleIn removes the pod because fewer are desired.
	OperationTypeScaleIn OperationType = "scale-in"

	// OperationTypeDelete removes the pod. PodOps begins it for deletes and evictions that it defers.
	OperationTypeDelete OperationType = appsv1alpha1.DeleteOperationType
)

// LifecycleAdapter describes an operation controller. Its methods are called with every function of this
// package and return quickly.
type LifecycleAdapter interface {
	// GetID returns the id of the lifecycle: the name in the labels with which this controller
	// requests operations, at most 63 characters. Two controllers never share an id.
	GetID() string

	// GetType returns the type of the operation.
	GetType() OperationType

	// AllowMultiType reports whether the operation may begin while another id requests an operation
	// of the same type on the pod. If not, Begin returns a TypeInUseError then.
	AllowMultiType() bool

	// WhenBegin changes the pod in the request that begins the lifecycle, and reports whether it
	// did. See UpdateFunc.
	WhenBegin(pod client.Object) (needUpdate bool, err error)

	// WhenFinish changes the pod in the request that finishes the lifecycle, and reports whether it
	// did. See UpdateFunc.
	WhenFinish(pod client.Object) (needUpdate bool, err error)
}

// UpdateFunc changes an object and reports whether it did. An error ends the call without a request. The
// object is a copy that lives for one attempt: after a conflict the function is called again with a newer
// pod, so it decides from its argument alone and keeps no reference to it. In an update of a pod the API
// server accepts changes of metadata and of few fields of the spec, and ignores the status.
type UpdateFunc func(pod client.Object) (needUpdate bool, err error)

// Client is the part of a client that this package uses. Every client.Client has it.
type Client interface {
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error
}

// PrepareDelete is an UpdateFunc for Begin: it announces that the operation removes the pod. Service
// controllers may then release resources that they keep for a pod that returns. WithdrawDelete reverts
// it.
func PrepareDelete(pod client.Object) (bool, error) {
	if _, ok := pod.GetLabels()[appsv1alpha1.PreparingToDeleteLabelKey]; ok {
		return false, nil
	}
	setLabel(pod, appsv1alpha1.PreparingToDeleteLabelKey, stamp(time.Now()))
	return true, nil
}

// WithdrawDelete is an UpdateFunc for Undo: it reverts PrepareDelete.
func WithdrawDelete(pod client.Object) (bool, error) {
	return removeLabels(pod, appsv1alpha1.PreparingToDeleteLabelKey), nil
}

// lifecycle is a LifecycleAdapter with the keys of its labels.
type lifecycle struct {
	LifecycleAdapter
	id            string
	operationType OperationType

	// replaces is whether a request replaces the operation of another type that has the id.
	replaces bool
}

func of(adapter LifecycleAdapter) lifecycle {
	return lifecycle{LifecycleAdapter: adapter, id: adapter.GetID(), operationType: adapter.GetType()}
}

func (l lifecycle) operating() string { return appsv1alpha1.OperatingLabelPrefix + "/" + l.id }

func (l lifecycle) typed() string { return appsv1alpha1.OperationTypeLabelPrefix + "/" + l.id }

func (l lifecycle) operate() string { return appsv1alpha1.OperateLabelPrefix + "/" + l.id }

func (l lifecycle) undo() string { return appsv1alpha1.UndoOperationTypeLabelPrefix + "/" + l.id }

// running returns the type of the operation that the id requests on the pod; false if it requests no
// operation.
func (l lifecycle) running(pod client.Object) (OperationType, bool) {
	labels := pod.GetLabels()
	_, operating := labels[l.operating()]
	operationType, typed := labels[l.typed()]
	return OperationType(operationType), operating && typed
}

// known reports whether a pod label has the id.
func (l lifecycle) known(pod client.Object) bool {
	for key := range pod.GetLabels() {
		prefix, name, _ := strings.Cut(key, "/")
		if name == l.id && strings.HasSuffix(prefix, "."+appsv1alpha1.LifecycleDomain) &&
			prefix != appsv1alpha1.OperationPermissionLabelPrefix {
			return true
		}
	}
	return false
}

// others returns the other ids that request an operation of the same type, sorted.
func (l lifecycle) others(pod client.Object) []string {
	var ids []string
	labels := pod.GetLabels()
	for key, value := range labels {
		prefix, id, found := strings.Cut(key, "/")
		if !found || prefix != appsv1alpha1.OperationTypeLabelPrefix || id == l.id || value != string(l.operationType) {
			continue
		}
		if _, operating := labels[appsv1alpha1.OperatingLabelPrefix+"/"+id]; operating {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// check returns an InvalidAdapterError if the id or the type is no label name.
func (l lifecycle) check() error {
	if problems := validation.IsQualifiedName(l.operating()); len(problems) > 0 {
		return &InvalidAdapterError{Field: "id", Value: l.id, Problem: strings.Join(problems, "; ")}
	}
	permission := appsv1alpha1.OperationPermissionLabelPrefix + "/" + string(l.operationType)
	if problems := validation.IsQualifiedName(permission); len(problems) > 0 {
		return &InvalidAdapterError{Field: "type", Value: string(l.operationType), Problem: strings.Join(problems, "; ")}
	}
	return nil
}

func setLabel(pod client.Object, key, value string) {
	labels := pod.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	pod.SetLabels(labels)
}

func removeLabels(pod client.Object, keys ...string) bool {
	labels, removed := pod.GetLabels(), false
	for _, key := range keys {
		if _, ok := labels[key]; ok {
			delete(labels, key)
			removed = true
		}
	}
	pod.SetLabels(labels)
	return removed
}

func stamp(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }
