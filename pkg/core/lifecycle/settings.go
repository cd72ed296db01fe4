package lifecycle

import (
	"fmt"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// MaxSettleTime bounds the settle time that a pod may request.
const MaxSettleTime = 10 * time.Minute

// Services is whether a Service selects a pod.
type Services int

const (
	// ServicesUnknown means that the Services were not read. The pod settles, as if a Service selected it.
	ServicesUnknown Services = iota

	// ServicesNone means that no Service selects the pod, so that no node routes to it.
	ServicesNone

	// ServicesSome means that a Service selects the pod.
	ServicesSome
)

// CheckSettings returns the error of reading the annotations with which a pod sets its own
// waits.
func CheckSettings(annotations map[string]string) error {
	_, _, err := settings(annotations)
	return err
}

// settings reads the annotations with which a pod sets its own waits. A malformed annotation
// counts as absent.
func settings(annotations map[string]string) (settle *time.Duration, policy string, err error) {
	if value, ok := annotations[appsv1alpha1.SettleTimeAnnotationKey]; ok {
		d, parseErr := time.ParseDuration(value)
		if parseErr != nil || d < 0 || d > MaxSettleTime {
			err = fmt.Errorf("annotation %s is %q, want a duration from 0s to %s such as 10s",
				appsv1alpha1.SettleTimeAnnotationKey, text.Cut(value, maxShown), MaxSettleTime)
		} else {
			settle = &d
		}
	}
	switch value, ok := annotations[appsv1alpha1.GateSyncPolicyAnnotationKey]; {
	case !ok:
	case value == appsv1alpha1.GateSyncContinue, value == appsv1alpha1.GateSyncHold:
		policy = value
	default:
		err = fmt.Errorf("annotation %s is %q, want %s or %s",
			appsv1alpha1.GateSyncPolicyAnnotationKey, text.Cut(value, maxShown), appsv1alpha1.GateSyncContinue, appsv1alpha1.GateSyncHold)
	}
	return settle, policy, err
}

// maxShown bounds how much of a malformed value is shown.
const maxShown = 32

// settleTime returns how long the pod must be unready before operate.
func (m *machine) settleTime() time.Duration {
	switch {
	case m.facts.SettleTime != nil:
		return *m.facts.SettleTime
	case m.facts.Services == ServicesNone:
		return 0
	default:
		return m.opts.Settle
	}
}

// Continues reports whether operations on a pod continue when its kubelet is late.
func (o Options) Continues(p PodFacts) bool {
	if p.GateSyncPolicy != "" {
		return p.GateSyncPolicy == appsv1alpha1.GateSyncContinue
	}
	return o.GateSyncPolicy != appsv1alpha1.GateSyncHold
}
