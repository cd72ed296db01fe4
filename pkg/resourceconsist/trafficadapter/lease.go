package trafficadapter

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
)

// IsHeld reports whether a Lease has a holder and has not expired: the program that renews it
// runs. The clocks of both programs must agree to within the duration of the Lease.
func IsHeld(lease *coordinationv1.Lease, now time.Time) bool {
	spec := lease.Spec
	if ptr.Deref(spec.HolderIdentity, "") == "" || spec.RenewTime == nil {
		return false
	}
	return now.Before(spec.RenewTime.Add(time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0)) * time.Second))
}
