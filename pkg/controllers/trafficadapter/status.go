package trafficadapter

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist/trafficadapter"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// maxMessage bounds the message of a condition, in bytes.
const maxMessage = 512

// facts are the inputs of a status.
type facts struct {
	// invalid is the error of the selectors; nil for a valid registration.
	invalid error

	// inUse is true for the first MaxTrafficAdapters by name.
	inUse bool

	services int

	// lease is nil when it does not exist, or with leaseErr when it cannot be read.
	lease    *coordinationv1.Lease
	leaseErr error
}

// buildStatus returns the new status; adapter is not modified.
func buildStatus(adapter *appsv1alpha1.TrafficAdapter, found facts, now time.Time) appsv1alpha1.TrafficAdapterStatus {
	status := *adapter.Status.DeepCopy()
	status.ObservedGeneration, status.ServiceCount = adapter.Generation, int32(found.services)
	for _, condition := range []metav1.Condition{ready(found), running(adapter.Spec.Lease, found, now)} {
		condition.Message = text.Cut(condition.Message, maxMessage)
		condition.ObservedGeneration = adapter.Generation
		condition.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

func ready(found facts) metav1.Condition {
	condition := metav1.Condition{Type: appsv1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	switch {
	case !found.inUse:
		condition.Reason = appsv1alpha1.ReasonTooMany
		condition.Message = fmt.Sprintf("not used: there are more than %d TrafficAdapters, and only the first by name are used", appsv1alpha1.MaxTrafficAdapters)
	case found.invalid != nil:
		condition.Reason, condition.Message = appsv1alpha1.ReasonInvalidSelector, found.invalid.Error()
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, appsv1alpha1.ReasonRegistered
		condition.Message = "new pods of the Services expect their finalizers"
	}
	return condition
}

// running reports whether the program renews its Lease.
func running(reference *appsv1alpha1.LeaseReference, found facts, now time.Time) metav1.Condition {
	condition := metav1.Condition{Type: appsv1alpha1.ConditionRunning, Status: metav1.ConditionUnknown}
	if reference == nil {
		condition.Reason, condition.Message = appsv1alpha1.ReasonNoLease, "spec.lease is not set"
		return condition
	}
	name := reference.Namespace + "/" + reference.Name
	switch {
	case found.leaseErr != nil:
		condition.Reason = appsv1alpha1.ReasonLeaseUnreadable
		condition.Message = fmt.Sprintf("reading lease %s: %v", name, found.leaseErr)
	case found.lease == nil:
		condition.Status, condition.Reason = metav1.ConditionFalse, appsv1alpha1.ReasonLeaseNotFound
		condition.Message = fmt.Sprintf("lease %s does not exist: the program has never run", name)
	case trafficadapter.IsHeld(found.lease, now):
		condition.Status, condition.Reason = metav1.ConditionTrue, appsv1alpha1.ReasonLeaseRenewed
		condition.Message = fmt.Sprintf("%s renews lease %s", ptr.Deref(found.lease.Spec.HolderIdentity, ""), name)
	default:
		condition.Status, condition.Reason = metav1.ConditionFalse, appsv1alpha1.ReasonLeaseExpired
		condition.Message = fmt.Sprintf("lease %s is not renewed: new pods wait until the program runs", name)
	}
	return condition
}
