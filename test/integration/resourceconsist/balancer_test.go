package resourceconsist_test

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// errQuota is the error of the balancer for a pod that it rejects.
var errQuota = errors.New("quota exceeded")

// backend is a pod behind the balancer.
type backend struct {
	id, name string
	on       bool
}

func (b backend) GetEmployeeId() string   { return b.id } //nolint:staticcheck // the name is the interface's
func (b backend) GetEmployeeName() string { return b.name }
func (b backend) GetEmployeeStatuses() interface{} {
	return resourceconsist.PodEmployeeStatuses{LifecycleReady: b.on}
}
func (b backend) EmployeeEqual(current resourceconsist.IEmployee) (bool, error) {
	return current == resourceconsist.IEmployee(b), nil
}

// memoryBalancer is an adapter with a provider in memory.
type memoryBalancer struct {
	client client.Client

	mu       sync.Mutex
	backends map[string]map[string]backend // by namespace and id
	refused  map[string]bool               // names of pods, "<namespace>/<name>"
	stuck    bool                          // traffic does not go off
}

func newBalancer() *memoryBalancer {
	return &memoryBalancer{backends: map[string]map[string]backend{}, refused: map[string]bool{}}
}

func (b *memoryBalancer) GetControllerName() string { return "balancer" }

func (b *memoryBalancer) pods(ctx context.Context, employer client.Object) ([]corev1.Pod, error) {
	service, ok := employer.(*corev1.Service)
	if !ok || len(service.Spec.Selector) == 0 {
		return nil, nil
	}
	var pods corev1.PodList
	err := b.client.List(ctx, &pods, client.InNamespace(service.Namespace), client.MatchingLabels(service.Spec.Selector))
	return pods.Items, err
}

func (b *memoryBalancer) GetSelectedEmployeeNames(ctx context.Context, employer client.Object) ([]string, error) {
	pods, err := b.pods(ctx, employer)
	var names []string
	for i := range pods {
		names = append(names, pods[i].Name)
	}
	return names, err
}

func (b *memoryBalancer) GetExpectedEmployer(context.Context, client.Object) ([]resourceconsist.IEmployer, error) {
	return nil, nil
}

func (b *memoryBalancer) GetCurrentEmployer(context.Context, client.Object) ([]resourceconsist.IEmployer, error) {
	return nil, nil
}

func (b *memoryBalancer) CreateEmployer(_ context.Context, _ client.Object, all []resourceconsist.IEmployer) ([]resourceconsist.IEmployer, []resourceconsist.IEmployer, error) {
	return all, nil, nil
}

func (b *memoryBalancer) UpdateEmployer(_ context.Context, _ client.Object, all []resourceconsist.IEmployer) ([]resourceconsist.IEmployer, []resourceconsist.IEmployer, error) {
	return all, nil, nil
}

func (b *memoryBalancer) DeleteEmployer(_ context.Context, _ client.Object, all []resourceconsist.IEmployer) ([]resourceconsist.IEmployer, []resourceconsist.IEmployer, error) {
	return all, nil, nil
}

func (b *memoryBalancer) GetExpectedEmployee(ctx context.Context, employer client.Object) ([]resourceconsist.IEmployee, error) {
	pods, err := b.pods(ctx, employer)
	var all []resourceconsist.IEmployee
	for i := range pods {
		statuses, err := resourceconsist.GetCommonPodEmployeeStatus(&pods[i])
		if err != nil {
			return nil, err
		}
		all = append(all, backend{id: string(pods[i].UID), name: pods[i].Name, on: statuses.LifecycleReady})
	}
	return all, err
}

func (b *memoryBalancer) GetCurrentEmployee(_ context.Context, employer client.Object) ([]resourceconsist.IEmployee, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []resourceconsist.IEmployee
	for _, one := range b.backends[employer.GetNamespace()] {
		all = append(all, one)
	}
	return all, nil
}

func (b *memoryBalancer) CreateEmployees(_ context.Context, employer client.Object, all []resourceconsist.IEmployee) ([]resourceconsist.IEmployee, []resourceconsist.IEmployee, error) {
	return b.change(employer, all, func(backends map[string]backend, one backend) { backends[one.id] = one })
}

func (b *memoryBalancer) UpdateEmployees(_ context.Context, employer client.Object, all []resourceconsist.IEmployee) ([]resourceconsist.IEmployee, []resourceconsist.IEmployee, error) {
	return b.change(employer, all, func(backends map[string]backend, one backend) {
		if one.on || !b.stuck {
			backends[one.id] = one
		}
	})
}

func (b *memoryBalancer) DeleteEmployees(_ context.Context, employer client.Object, all []resourceconsist.IEmployee) ([]resourceconsist.IEmployee, []resourceconsist.IEmployee, error) {
	return b.change(employer, all, func(backends map[string]backend, one backend) {
		if !b.stuck {
			delete(backends, one.id)
		}
	})
}

func (b *memoryBalancer) change(employer client.Object, all []resourceconsist.IEmployee, do func(map[string]backend, backend)) (succeeded, failed []resourceconsist.IEmployee, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	namespace := employer.GetNamespace()
	if b.backends[namespace] == nil {
		b.backends[namespace] = map[string]backend{}
	}
	for _, item := range all {
		one, ok := item.(backend)
		if !ok || b.refused[namespace+"/"+one.name] {
			failed, err = append(failed, item), errQuota
			continue
		}
		do(b.backends[namespace], one)
		succeeded = append(succeeded, item)
	}
	return succeeded, failed, err
}

func (b *memoryBalancer) refuse(pod string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused[pod] = true
}

func (b *memoryBalancer) stick(stuck bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stuck = stuck
}

// size returns how many backends a namespace has.
func (b *memoryBalancer) size(namespace string) func() int {
	return func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.backends[namespace])
	}
}
