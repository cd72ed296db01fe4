package haproxy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/podops-dev/podops/pkg/adapters/haproxy/runtimeapi"
)

// Annotations of Services; the weight is an annotation of pods, too. The package comment describes
// them.
const (
	RuntimeAnnotationKey       = "podops.dev/haproxy-runtime"
	BackendAnnotationKey       = "podops.dev/haproxy-backend"
	PortAnnotationKey          = "podops.dev/haproxy-port"
	WeightAnnotationKey        = "podops.dev/haproxy-weight"
	CheckIntervalAnnotationKey = "podops.dev/haproxy-check-interval"
	DrainTimeoutAnnotationKey  = "podops.dev/haproxy-drain-timeout"

	// InUseAnnotationKey is written by the adapter: the location of the servers, as the
	// Runtime API, a space and the backend.
	InUseAnnotationKey = "podops.dev/haproxy-in-use"
)

const (
	defaultWeight       = 100
	defaultDrainTimeout = 30 * time.Second
	maxDrainTimeout     = time.Hour
	minCheckInterval    = 10 * time.Millisecond
	maxCheckInterval    = time.Hour
)

// location is a backend of one HAProxy. The zero value is no location.
type location struct {
	endpoint runtimeapi.Endpoint
	backend  string
}

func (p location) String() string { return p.endpoint.String() + " " + p.backend }

// wantedLocation returns the location that the annotations name.
func wantedLocation(service *corev1.Service) (location, error) {
	return parseLocation(RuntimeAnnotationKey, service.Annotations[RuntimeAnnotationKey], BackendAnnotationKey, service.Annotations[BackendAnnotationKey])
}

// usedLocation returns the recorded location; false: no location is recorded yet.
func usedLocation(service *corev1.Service) (location, bool, error) {
	text, has := service.Annotations[InUseAnnotationKey]
	if !has {
		return location{}, false, nil
	}
	endpoint, backend, _ := strings.Cut(text, " ")
	used, err := parseLocation(InUseAnnotationKey, endpoint, InUseAnnotationKey, backend)
	return used, err == nil, err
}

func parseLocation(endpointKey, endpointText, backendKey, backend string) (location, error) {
	for _, required := range []struct{ key, value string }{{endpointKey, endpointText}, {backendKey, backend}} {
		if required.value == "" {
			return location{}, fmt.Errorf("annotation %s is missing or empty", required.key)
		}
	}
	endpoint, err := runtimeapi.ParseEndpoint(endpointText)
	if err != nil {
		return location{}, fmt.Errorf("annotation %s: %w", endpointKey, err)
	}
	if err := runtimeapi.CheckBackend(backend); err != nil {
		return location{}, fmt.Errorf("annotation %s: %w", backendKey, err)
	}
	return location{endpoint: endpoint, backend: backend}, nil
}

// settings holds the values of the other annotations.
type settings struct {
	port         intstr.IntOrString
	weight       int
	checkEvery   time.Duration // 0: never
	drainTimeout time.Duration
}

// readSettings returns defaults for invalid values, and an error that names them: an invalid
// annotation must not keep traffic on.
func readSettings(service *corev1.Service) (settings, error) {
	out := settings{weight: defaultWeight, drainTimeout: defaultDrainTimeout}
	var errs [4]error
	out.port, errs[0] = servicePort(service)
	out.weight, errs[1] = readWeight(service.Annotations, defaultWeight)
	out.checkEvery, errs[2] = readDuration(service, CheckIntervalAnnotationKey, 0, minCheckInterval, maxCheckInterval)
	out.drainTimeout, errs[3] = readDuration(service, DrainTimeoutAnnotationKey, defaultDrainTimeout, 0, maxDrainTimeout)
	return out, errors.Join(errs[:]...)
}

func servicePort(service *corev1.Service) (intstr.IntOrString, error) {
	if text, has := service.Annotations[PortAnnotationKey]; has {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return intstr.IntOrString{}, fmt.Errorf("annotation %s is %q, want a port from 1 to 65535", PortAnnotationKey, text)
		}
		return intstr.FromInt32(int32(port)), nil
	}
	if len(service.Spec.Ports) != 1 {
		return intstr.IntOrString{}, fmt.Errorf("the Service has %d ports: annotation %s must name the port of the pods",
			len(service.Spec.Ports), PortAnnotationKey)
	}
	only := service.Spec.Ports[0]
	if only.TargetPort == (intstr.IntOrString{}) {
		return intstr.FromInt32(only.Port), nil
	}
	return only.TargetPort, nil
}

func readWeight(annotations map[string]string, otherwise int) (int, error) {
	text, has := annotations[WeightAnnotationKey]
	if !has {
		return otherwise, nil
	}
	weight, err := strconv.Atoi(text)
	if err != nil || weight < 0 || weight > runtimeapi.MaxWeight {
		return otherwise, fmt.Errorf("annotation %s is %q, want a number from 0 to %d", WeightAnnotationKey, text, runtimeapi.MaxWeight)
	}
	return weight, nil
}

func readDuration(service *corev1.Service, key string, otherwise, least, most time.Duration) (time.Duration, error) {
	text, has := service.Annotations[key]
	if !has {
		return otherwise, nil
	}
	value, err := time.ParseDuration(text)
	if err != nil || value < least || value > most {
		return otherwise, fmt.Errorf("annotation %s is %q, want a duration from %s to %s, such as 30s", key, text, least, most)
	}
	return value, nil
}
