package resourceconsist

import (
	"errors"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/podops-dev/podops/pkg/core/lifecycle"
)

// PodEmployeeStatuses are the statuses of an employee that is a pod.
type PodEmployeeStatuses struct {
	// Ip is the pod's first address, Ipv6 its first IPv6 address; empty while it has no such
	// address.
	Ip   string `json:"ip,omitempty"` //nolint:staticcheck // the manual's name
	Ipv6 string `json:"ipv6,omitempty"`

	// LifecycleReady is true when the pod should take traffic.
	LifecycleReady bool `json:"lifecycleReady,omitempty"`

	// ExtraStatus is the provider's own part: traffic on or off, a weight.
	ExtraStatus interface{} `json:"extraStatus,omitempty"`
}

// GetCommonPodEmployeeStatus returns the statuses of a pod without ExtraStatus. It fails
// when pod is nil.
func GetCommonPodEmployeeStatus(pod *corev1.Pod) (PodEmployeeStatuses, error) {
	if pod == nil {
		return PodEmployeeStatuses{}, errors.New("reading the statuses of an employee: the pod is nil")
	}
	return PodEmployeeStatuses{
		Ip:             pod.Status.PodIP,
		Ipv6:           ipv6Of(pod),
		LifecycleReady: lifecycle.NewPodFacts(pod).ExpectsTraffic(),
	}, nil
}

// SetCommonPodEmployeeStatus sets the addresses and LifecycleReady of statuses from a pod
// and does not change ExtraStatus. It fails when either is nil.
func SetCommonPodEmployeeStatus(statuses *PodEmployeeStatuses, pod *corev1.Pod) error {
	if statuses == nil {
		return errors.New("setting the statuses of an employee: there is nothing to set")
	}
	read, err := GetCommonPodEmployeeStatus(pod)
	if err != nil {
		return err
	}
	read.ExtraStatus = statuses.ExtraStatus
	*statuses = read
	return nil
}

func ipv6Of(pod *corev1.Pod) string {
	for _, ip := range pod.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil && address.Is6() {
			return ip.IP
		}
	}
	return ""
}
