package trafficadapter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// Admission returns the finalizers that a new pod must have before it is available, of the
// adapters that TrafficAdapters register. It is safe for concurrent use.
type Admission struct {
	reader client.Reader

	mu     sync.Mutex
	parsed map[types.UID]parsed // of the TrafficAdapters in use
}

// parsed is the Registration of a TrafficAdapter in one generation.
type parsed struct {
	generation   int64
	registration Registration
}

// NewAdmission returns an Admission that reads from a cache with the index ServiceField.
func NewAdmission(reader client.Reader) *Admission { return &Admission{reader: reader} }

// ExpectedFinalizers maps each Service that will employ a pod to its finalizer, as
// resourceconsist.Admission does. Without TrafficAdapters it reads no Service.
func (a *Admission) ExpectedFinalizers(ctx context.Context, pod *corev1.Pod) (map[string]string, error) {
	registrations, err := a.registrations(ctx)
	if err != nil || len(registrations) == 0 {
		return nil, err
	}
	expected := map[string]string{}
	for key, value := range pod.Labels {
		var list corev1.ServiceList
		err := a.reader.List(ctx, &list, client.InNamespace(pod.Namespace), client.UnsafeDisableDeepCopy,
			client.MatchingFields{ServiceField: labelValue(key, value)})
		if err != nil {
			return expected, fmt.Errorf("listing the Services of a pod: %w", err)
		}
		for i := range list.Items {
			service := &list.Items[i]
			if service.DeletionTimestamp == nil && selects(service, pod) && matchesAny(registrations, service) {
				expected[resourceconsist.KeyOfService(service)] = resourceconsist.GenerateLifecycleFinalizer(service.Name)
			}
		}
	}
	return expected, nil
}

func matchesAny(registrations []Registration, service *corev1.Service) bool {
	for _, registration := range registrations {
		if registration.Matches(service) {
			return true
		}
	}
	return false
}

func selects(service *corev1.Service, pod *corev1.Pod) bool {
	return len(service.Spec.Selector) > 0 && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels))
}

// registrations returns the Registrations of the TrafficAdapters in use, each parsed once for a
// generation. An invalid entry matches nothing: the status of the TrafficAdapter reports it.
func (a *Admission) registrations(ctx context.Context) ([]Registration, error) {
	var list appsv1alpha1.TrafficAdapterList
	if err := a.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing TrafficAdapters: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	current := map[types.UID]parsed{}
	var registrations []Registration
	for _, adapter := range InUse(list.Items) {
		known, ok := a.parsed[adapter.UID]
		if !ok || known.generation != adapter.Generation {
			registration, _ := Parse(&adapter)
			known = parsed{generation: adapter.Generation, registration: registration}
		}
		current[adapter.UID] = known
		registrations = append(registrations, known.registration)
	}
	a.parsed = current
	return registrations, nil
}

// Expected returns the expected finalizers of a new pod by employer, as ExpectedFinalizers does.
type Expected = func(ctx context.Context, pod *corev1.Pod) (map[string]string, error)

// Join returns the expected finalizers of several sources. Of two employers with one finalizer the
// employer of the first source has it: a finalizer on a pod belongs to one employer.
func Join(sources ...Expected) Expected {
	return func(ctx context.Context, pod *corev1.Pod) (map[string]string, error) {
		joined, finalizers := map[string]string{}, map[string]bool{}
		var errs []error
		for _, source := range sources {
			expected, err := source(ctx, pod)
			errs = append(errs, err)
			maps.DeleteFunc(expected, func(_, finalizer string) bool { return finalizers[finalizer] })
			maps.Copy(joined, expected)
			for _, finalizer := range expected {
				finalizers[finalizer] = true
			}
		}
		return joined, errors.Join(errs...)
	}
}
