package resourceconsist

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/resourceconsist/plan"
)

// session holds the inputs, the plan and the results when one employer is reconciled.
type session struct {
	employer client.Object
	key      types.NamespacedName
	target   target

	// conditionKey and finalizer identify the employer on its employees.
	conditionKey, finalizer string

	// deleting is true when the employer is being deleted or no longer belongs to the
	// adapter. Nothing is expected of it then, and it selects no employees.
	deleting bool

	history *history
	actor   *actor

	// selected holds the names of the employees. While they are not known (selectedKnown is
	// false), every pod that expects the finalizer counts as selected.
	selected      map[string]bool
	selectedKnown bool

	pods map[string]*corev1.Pod

	// kept are the names of pods that have lost the control label and serve: their items stay at the provider.
	kept map[string]bool

	// The expected and current items are nil until they are known.
	expectedEmployees, currentEmployees *[]plan.Item[IEmployee]
	expectedEmployers, currentEmployers *[]plan.Item[IEmployer]

	employerResults CUDEmployerResults
	employeeResults CUDEmployeeResults

	traffic  plan.Traffic
	pending  bool     // a finalizer waits for the provider, or a write for a newer object
	waiting  []string // the pods whose finalizer waits
	done     bool     // nothing is left of an employer that is being deleted
	problems []problem

	// unplanned holds the items for which nothing can be decided.
	unplanned []EmployeeError
}

// fail records a problem, once. A conflict is no problem: the next reconcile reads
// the new object.
func (s *session) fail(reason string, err error) {
	switch {
	case err == nil:
	case apierrors.IsConflict(err):
		s.pending = true
	case slices.ContainsFunc(s.problems, func(p problem) bool { return p.reason == reason && p.err.Error() == err.Error() }):
	default:
		s.problems = append(s.problems, problem{reason, err})
	}
}

// gather calls the adapter for all inputs. An input whose call fails stays unknown, and
// only the steps that depend on it are skipped.
func (r *Reconciler) gather(ctx context.Context, s *session) {
	b := r.binding
	if !s.deleting {
		s.expectedEmployers = readItems(ctx, r, s, readingEmployers("GetExpectedEmployer", EventGetExpectedEmployerFailed, b.adapter.GetExpectedEmployer))
		s.expectedEmployees = readItems(ctx, r, s, readingEmployees("GetExpectedEmployee", EventGetExpectedEmployeesFailed, b.adapter.GetExpectedEmployee))
	} else {
		s.expectedEmployers, s.expectedEmployees = &[]plan.Item[IEmployer]{}, &[]plan.Item[IEmployee]{}
	}
	s.currentEmployees = readItems(ctx, r, s, readingEmployees("GetCurrentEmployee", EventGetCurrentEmployeesFailed, b.adapter.GetCurrentEmployee))
	s.currentEmployers = readItems(ctx, r, s, readingEmployers("GetCurrentEmployer", EventGetCurrentEmployerFailed, b.adapter.GetCurrentEmployer))
}

// reading is an adapter's verb that reads items, and the event's reason when it fails.
type reading[T any] struct {
	verb, reason string
	item         func(T) plan.Item[T]
	get          func(context.Context, client.Object) ([]T, error)
}

func readingEmployers(verb, reason string, get func(context.Context, client.Object) ([]IEmployer, error)) reading[IEmployer] {
	return reading[IEmployer]{verb, reason, employerItem, get}
}

func readingEmployees(verb, reason string, get func(context.Context, client.Object) ([]IEmployee, error)) reading[IEmployee] {
	return reading[IEmployee]{verb, reason, employeeItem, get}
}

// readItems makes one read; nil when it failed.
func readItems[T any](ctx context.Context, r *Reconciler, s *session, one reading[T]) *[]plan.Item[T] {
	employer := copyObject(s.employer)
	items, err := retryRead(ctx, r.provider, func() ([]plan.Item[T], error) {
		return call(ctx, r.provider, s.target, one.verb, func(ctx context.Context) ([]plan.Item[T], error) {
			values, err := one.get(ctx, employer)
			if err != nil {
				return nil, err
			}
			items := make([]plan.Item[T], len(values))
			for i, value := range values {
				items[i] = one.item(value)
			}
			return items, nil
		})
	})
	if err != nil {
		s.fail(one.reason, err)
		return nil
	}
	return &items
}

// copyObject returns a copy of an object for an adapter: a call that outlived its deadline
// still reads it.
func copyObject(object client.Object) client.Object {
	duplicate, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return object
	}
	return duplicate
}

func employerItem(value IEmployer) plan.Item[IEmployer] {
	return plan.Item[IEmployer]{ID: value.GetEmployerId(), Name: value.GetEmployerId(), Value: value}
}

func employeeItem(value IEmployee) plan.Item[IEmployee] {
	return plan.Item[IEmployee]{ID: value.GetEmployeeId(), Name: value.GetEmployeeName(), Intent: newIntent(value), Value: value}
}

func newIntent(value IEmployee) plan.Intent {
	var ready bool
	switch statuses := value.GetEmployeeStatuses().(type) {
	case PodEmployeeStatuses:
		ready = statuses.LifecycleReady
	case *PodEmployeeStatuses:
		if statuses == nil {
			return plan.IntentUnknown
		}
		ready = statuses.LifecycleReady
	default:
		return plan.IntentUnknown
	}
	if ready {
		return plan.IntentOn
	}
	return plan.IntentOff
}

// gatherSelected reads which employees the employer selects.
func (r *Reconciler) gatherSelected(ctx context.Context, s *session) {
	s.selected, s.selectedKnown = map[string]bool{}, s.deleting
	if s.deleting || !r.binding.follow && r.binding.employerIsService() {
		return
	}
	employer := copyObject(s.employer)
	names, err := retryRead(ctx, r.provider, func() ([]string, error) {
		return call(ctx, r.provider, s.target, "GetSelectedEmployeeNames", func(ctx context.Context) ([]string, error) {
			return r.binding.adapter.GetSelectedEmployeeNames(ctx, employer)
		})
	})
	if err != nil {
		s.fail(EventEnsureExpectedFailed, err)
		return
	}
	s.selectedKnown = true
	for _, name := range names {
		s.selected[name] = true
	}
	r.selections.set(s.key, s.selected)
}

// gatherPods reads the pods that the employer selects, or that carry a mark of it.
func (r *Reconciler) gatherPods(ctx context.Context, s *session) error {
	if !r.binding.follow {
		return nil
	}
	for _, mark := range []string{s.conditionKey, s.finalizer} {
		var marked corev1.PodList
		if err := r.client.List(ctx, &marked, client.InNamespace(s.key.Namespace), client.MatchingFields{r.field: mark}); err != nil {
			return fmt.Errorf("listing the pods of an employer: %w", err)
		}
		for i := range marked.Items {
			s.pods[marked.Items[i].Name] = &marked.Items[i]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.selected)) {
		if err := r.readPod(ctx, s, r.client, name); err != nil {
			return err
		}
	}
	return nil
}

// maxLookups bounds the pods read from the API server in one reconcile.
const maxLookups = 50

// gatherMissing reads from the API server the pods that the provider or a record still names
// and the cache does not hold, or may not show as they are: they may have lost the control label.
func (r *Reconciler) gatherMissing(ctx context.Context, s *session) error {
	if !r.binding.follow {
		return nil
	}
	if err := r.gatherUnexpected(ctx, s); err != nil {
		return err
	}
	names := recorded(s.employer, EmployeesRecordedAnnotationKey)
	if s.currentEmployees != nil {
		for _, item := range *s.currentEmployees {
			names = append(names, item.Name)
		}
	}
	slices.Sort(names)
	lookups := 0
	for _, name := range slices.Compact(names) {
		if name == "" || s.pods[name] != nil || lookups >= maxLookups {
			continue
		}
		if err := r.readPod(ctx, s, r.client, name); err != nil {
			return err
		}
		if s.pods[name] == nil {
			lookups++
			if err := r.readPod(ctx, s, r.apiReader, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// readPod adds a pod to the session, if it exists.
func (r *Reconciler) readPod(ctx context.Context, s *session, reader client.Reader, name string) error {
	if s.pods[name] != nil {
		return nil
	}
	pod := &corev1.Pod{}
	err := reader.Get(ctx, types.NamespacedName{Namespace: s.key.Namespace, Name: name}, pod)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading pod %s: %w", name, err)
	}
	s.pods[name] = pod
	return nil
}

// equalEmployers and equalEmployees turn a panic of the adapter into the error of one item.
func equalEmployers(expected, current IEmployer) (same bool, err error) {
	defer recovered(&err)
	return expected.EmployerEqual(current)
}

func equalEmployees(expected, current IEmployee) (same bool, err error) {
	defer recovered(&err)
	return expected.EmployeeEqual(current)
}

var errPanic = errors.New("the adapter panics")

func recovered(err *error) {
	if cause := recover(); cause != nil {
		*err = fmt.Errorf("%w: %v", errPanic, cause)
	}
}
