package lifecycle

import (
	"fmt"
	"strconv"
	"strings"
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

// DrainEndpoint is the endpoint of a pod that confirms that no connection is left.
type DrainEndpoint struct {
	// Port and Path of the endpoint. Port 0: the pod has none.
	Port uint16
	Path string

	// Timeout is the time after which the pod is operated on without an answer.
	Timeout time.Duration
}

const (
	// DefaultDrainTimeout is DrainEndpoint.Timeout of pods that do not set it.
	DefaultDrainTimeout = 30 * time.Second

	// MaxDrainTimeout bounds the time-out that a pod may request.
	MaxDrainTimeout = time.Hour

	// maxDrainPathBytes bounds the path of a DrainEndpoint.
	maxDrainPathBytes = 256
)

// String returns the value of the annotation for the endpoint.
func (e DrainEndpoint) String() string { return fmt.Sprintf(":%d%s", e.Port, e.Path) }

// settings are the annotations with which a pod sets its own waits. A malformed annotation counts as absent.
type settings struct {
	settle *time.Duration
	policy string
	drain  DrainEndpoint
}

// CheckSettings returns the error of reading the annotations with which a pod sets its own
// waits.
func CheckSettings(annotations map[string]string) error {
	_, err := readSettings(annotations)
	return err
}

// readSettings returns the settings, and the error of the first malformed annotation.
func readSettings(annotations map[string]string) (s settings, err error) {
	invalid := func(key, want string) {
		if err == nil {
			err = fmt.Errorf("annotation %s is %q, want %s", key, text.Cut(annotations[key], maxShown), want)
		}
	}
	if value, ok := annotations[appsv1alpha1.SettleTimeAnnotationKey]; ok {
		if d, parseErr := time.ParseDuration(value); parseErr != nil || d < 0 || d > MaxSettleTime {
			invalid(appsv1alpha1.SettleTimeAnnotationKey, fmt.Sprintf("a duration from 0s to %s such as 10s", MaxSettleTime))
		} else {
			s.settle = &d
		}
	}
	switch value, ok := annotations[appsv1alpha1.GateSyncPolicyAnnotationKey]; {
	case !ok:
	case value == appsv1alpha1.GateSyncContinue, value == appsv1alpha1.GateSyncHold:
		s.policy = value
	default:
		invalid(appsv1alpha1.GateSyncPolicyAnnotationKey, appsv1alpha1.GateSyncContinue+" or "+appsv1alpha1.GateSyncHold)
	}
	timeout := DefaultDrainTimeout
	if value, ok := annotations[appsv1alpha1.DrainTimeoutAnnotationKey]; ok {
		if d, parseErr := time.ParseDuration(value); parseErr != nil || d <= 0 || d > MaxDrainTimeout {
			invalid(appsv1alpha1.DrainTimeoutAnnotationKey, fmt.Sprintf("a duration above 0s and at most %s such as 2m", MaxDrainTimeout))
		} else {
			timeout = d
		}
	}
	if value, ok := annotations[appsv1alpha1.DrainEndpointAnnotationKey]; ok {
		if s.drain, ok = parseDrainEndpoint(value); ok {
			s.drain.Timeout = timeout
		} else {
			invalid(appsv1alpha1.DrainEndpointAnnotationKey, "a port and a path such as :8081/drain")
		}
	}
	return s, err
}

// parseDrainEndpoint parses the value of the annotation. The path has no query: it is sent as it is.
func parseDrainEndpoint(value string) (DrainEndpoint, bool) {
	rest, ok := strings.CutPrefix(value, ":")
	digits, path, slash := strings.Cut(rest, "/")
	port, err := strconv.ParseUint(digits, 10, 16)
	plain := !strings.ContainsFunc(path, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`?#%\`, r)
	})
	if !ok || !slash || err != nil || port == 0 || !plain || len(path) >= maxDrainPathBytes {
		return DrainEndpoint{}, false
	}
	return DrainEndpoint{Port: uint16(port), Path: "/" + path}, true
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
