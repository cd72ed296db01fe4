package haproxy

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// ServerStatus is the ExtraStatus of an employee.
type ServerStatus struct {
	// On means that the server takes requests, Off that it takes no requests and has no
	// open requests. While it drains, or waits for its check, both are false.
	On, Off bool

	// Address and Weight are compared only while traffic is on.
	Address netip.AddrPort
	Weight  int
}

// server is a pod as a server of a backend, expected or current.
type server struct {
	name     string // in the backend
	pod      string
	statuses resourceconsist.PodEmployeeStatuses
	extra    ServerStatus

	// problem is the error of an expected server. It prevents traffic from going on, never
	// from going off.
	problem error
}

var _ resourceconsist.IEmployee = &server{}

// GetEmployeeId returns the name of the server: a pod that is created again under the name of an
// old pod has another server.
func (s *server) GetEmployeeId() string { return s.name } //nolint:staticcheck // the name is the interface's

// GetEmployeeName returns the name of the pod.
func (s *server) GetEmployeeName() string { return s.pod }

// GetEmployeeStatuses returns a resourceconsist.PodEmployeeStatuses with a ServerStatus.
func (s *server) GetEmployeeStatuses() interface{} {
	statuses := s.statuses
	statuses.ExtraStatus = s.extra
	return statuses
}

// EmployeeEqual reports whether traffic is on, or off, in both.
func (s *server) EmployeeEqual(employee resourceconsist.IEmployee) (bool, error) {
	other, ok := employee.(*server)
	if !ok {
		return false, fmt.Errorf("comparing server %s: got a %T", s.name, employee)
	}
	for _, one := range []*server{s, other} {
		if one.problem != nil && one.extra.On {
			return false, one.problem
		}
	}
	if s.name != other.name || s.extra.On != other.extra.On || s.extra.Off != other.extra.Off {
		return false, nil
	}
	return !s.extra.On || s.extra == other.extra, nil
}

// expectedServer returns the expected server of a pod. Its problem holds any error. It
// returns nil for a pod without an address.
func expectedServer(service *corev1.Service, pod *corev1.Pod, set settings, problem error) (*server, error) {
	statuses, err := resourceconsist.GetCommonPodEmployeeStatus(pod)
	if err != nil {
		return nil, err
	}
	if statuses.Ip == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil, nil // nothing is expected of such a pod, and nothing is wrong
	}
	out := &server{
		name: serverName(service, pod), pod: pod.Name, statuses: statuses,
		extra: ServerStatus{On: statuses.LifecycleReady, Off: !statuses.LifecycleReady},
	}
	var addressErr, weightErr error
	out.extra.Address, addressErr = podAddress(pod, set.port)
	out.extra.Weight, weightErr = readWeight(pod.Annotations, set.weight)
	if err := errors.Join(problem, addressErr, weightErr); err != nil {
		out.problem = fmt.Errorf("pod %s cannot get traffic: %w", pod.Name, err)
	}
	if addressErr != nil && out.extra.Off {
		return nil, nil // it cannot be added, and an existing server of it can go
	}
	return out, nil
}

func podAddress(pod *corev1.Pod, port intstr.IntOrString) (netip.AddrPort, error) {
	address, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("its address: %w", err)
	}
	if port.Type == intstr.Int {
		// A port that is not a number was reported with the Service.
		return netip.AddrPortFrom(address.Unmap(), uint16(port.IntVal)), nil
	}
	for _, candidate := range servicePorts(&pod.Spec) {
		if candidate.Name == port.StrVal {
			return netip.AddrPortFrom(address.Unmap(), uint16(candidate.ContainerPort)), nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("none of its containers has a port named %q", port.StrVal)
}

// servicePorts returns the ports of a pod in the order in which Services look for a name: those of its containers, then
// those of its sidecars, which are init containers that run as long as the pod.
func servicePorts(spec *corev1.PodSpec) []corev1.ContainerPort {
	var ports []corev1.ContainerPort
	for i := range spec.Containers {
		ports = append(ports, spec.Containers[i].Ports...)
	}
	for i := range spec.InitContainers {
		if policy := spec.InitContainers[i].RestartPolicy; policy != nil && *policy == corev1.ContainerRestartPolicyAlways {
			ports = append(ports, spec.InitContainers[i].Ports...)
		}
	}
	return ports
}

// serverName returns <namespace>_<service>_<pod>_<hash>. Kubernetes names have no
// underscore, so no other Service produces the same name; with 63, 63, 253 and 8 characters
// it is short enough for HAProxy.
func serverName(service *corev1.Service, pod *corev1.Pod) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(pod.UID))
	return fmt.Sprintf("%s%s_%08x", serverPrefix(service), pod.Name, sum.Sum32())
}

func serverPrefix(service *corev1.Service) string {
	return service.Namespace + "_" + service.Name + "_"
}

// parseServerName returns the pod behind a Service's server; false: the server belongs to another
// Service.
func parseServerName(service *corev1.Service, name string) (pod string, ours bool) {
	rest, ours := strings.CutPrefix(name, serverPrefix(service))
	if !ours {
		return "", false
	}
	pod, hash, _ := strings.Cut(rest, "_")
	if _, err := strconv.ParseUint(hash, 16, 32); err != nil || len(hash) != 8 || pod == "" {
		return "", false
	}
	return pod, true
}
