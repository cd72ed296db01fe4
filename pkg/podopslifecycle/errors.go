package podopslifecycle

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrNotControlled is returned by Begin for a pod without the label kusionstack.io/control=true:
	// PodOps does not answer there. The caller decides whether to operate without a lifecycle.
	ErrNotControlled = errors.New("the pod is not under PodOps: it lacks the label kusionstack.io/control=true")

	// ErrTerminating is returned by Begin for a pod that is being deleted: no lifecycle advances there.
	ErrTerminating = errors.New("the pod is being deleted")

	// ErrStale is returned by a call that met a conflict and then found another pod of the same
	// name, or, in Finish and Undo, another lifecycle of the id, than in the object of the caller. Read
	// the pod again and decide again.
	ErrStale = errors.New("the object is of another pod or of an earlier lifecycle")
)

// TypeInUseError is returned by Begin when another id requests an operation of the same type and the
// adapter does not allow that. Try again when the pod changes.
type TypeInUseError struct {
	Type OperationType

	// IDs request operations of the type; sorted, not empty.
	IDs []string
}

func (e *TypeInUseError) Error() string {
	return fmt.Sprintf("an operation of type %q is requested by: %s", e.Type, strings.Join(e.IDs, ", "))
}

// OtherTypeError is returned by Begin and Finish when the id requests an operation on the pod whose
// type is not that of the adapter. BeginWithCleaningOld replaces that operation.
type OtherTypeError struct {
	ID string

	// Running is the type on the pod, Wanted the type of the adapter.
	Running, Wanted OperationType
}

func (e *OtherTypeError) Error() string {
	return fmt.Sprintf("id %q requests an operation of type %q, not %q", e.ID, e.Running, e.Wanted)
}

// InvalidAdapterError is returned when an adapter has an id or type that no label can carry. A retry
// does not help.
type InvalidAdapterError struct {
	// Field is "id" or "type".
	Field string

	Value, Problem string
}

func (e *InvalidAdapterError) Error() string {
	return fmt.Sprintf("%s %q of the lifecycle adapter: %s", e.Field, e.Value, e.Problem)
}
