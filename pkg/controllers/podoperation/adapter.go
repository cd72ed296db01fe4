package podoperation

import (
	"errors"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podoperation"
	"github.com/podops-dev/podops/pkg/podopslifecycle"
)

// errOperated means that the cache is behind: the operation has written its action to the pod.
var errOperated = errors.New("the pod has been operated on already")

// adapter is the podopslifecycle.LifecycleAdapter of one operation on one pod.
type adapter struct {
	operation *appsv1alpha1.PodOperation

	// isActive reports whether an operation of the namespace exists and has not ended. With an error it does.
	isActive func(types.UID) bool

	// record is written when the lifecycle finishes.
	record podoperation.Record
}

// GetID returns the id of the operation's lifecycles.
func (a adapter) GetID() string { return podoperation.ID(a.operation.UID) }

// GetType returns the type of the action.
func (a adapter) GetType() podopslifecycle.OperationType {
	return podopslifecycle.OperationType(podoperation.OperationType(a.operation.Spec.Action))
}

// AllowMultiType is true: other operations of the type may be in progress on the pod.
func (a adapter) AllowMultiType() bool { return true }

// WhenBegin removes the records of ended operations. It fails for a pod with the record of the
// present operation.
func (a adapter) WhenBegin(pod client.Object) (bool, error) {
	if err := a.mustNotBeOperated(pod); err != nil {
		return false, err
	}
	annotations := maps.Clone(pod.GetAnnotations())
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		uid, isRecord := strings.CutPrefix(key, appsv1alpha1.PodOperationAnnotationPrefix+"/")
		return isRecord && !a.isActive(types.UID(uid))
	})
	if len(annotations) == len(pod.GetAnnotations()) {
		return false, nil
	}
	pod.SetAnnotations(annotations)
	return true, nil
}

// WhenFinish writes the record.
func (a adapter) WhenFinish(pod client.Object) (bool, error) {
	annotations := maps.Clone(pod.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[podoperation.RecordKey(a.operation.UID)] = a.record.String()
	pod.SetAnnotations(annotations)
	return true, nil
}

// whenUndo is for podopslifecycle.Undo. It fails for a pod that has been operated on.
func (a adapter) whenUndo(pod client.Object) (bool, error) { return false, a.mustNotBeOperated(pod) }

func (a adapter) mustNotBeOperated(pod client.Object) error {
	if podoperation.IsOperated(a.operation.UID, pod) {
		return errOperated
	}
	return nil
}
