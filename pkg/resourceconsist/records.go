package resourceconsist

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/resourceconsist/plan"
)

// Annotations on employers.
const (
	// EmployeesRecordedAnnotationKey lists the employees that carry the lifecycle finalizer or are
	// about to, EmployeesExpectedAnnotationKey the employees that expect it: names, sorted and
	// joined by commas.
	EmployeesRecordedAnnotationKey = "resource-consist.kusionstack.io/employees-lifecycle-finalizer-recorded"
	EmployeesExpectedAnnotationKey = "resource-consist.kusionstack.io/employees-expected-finalizer-added"

	// ControllerAnnotationKey names the controller that an employer belongs to. It is
	// written and removed with the clean finalizer.
	ControllerAnnotationKey = "podops.dev/resource-consist-controller"
)

// maxRecordBytes bounds one record. All annotations of an object together may have 256
// KiB.
const maxRecordBytes = 96 << 10

// record writes the names of the employees that may be touched before the provider is
// called, so that a later reconcile can clean up after a crash. A name is removed when
// nothing of the employee remains.
func (r *Reconciler) record(ctx context.Context, s *session) error {
	base := copyObject(s.employer)
	annotations := maps.Clone(s.employer.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	if r.binding.recordEmployees && s.expectedEmployees != nil && s.currentEmployees != nil {
		s.write(annotations, EmployeesRecordedAnnotationKey, s.touched())
	}
	if r.binding.recordExpected && s.selectedKnown {
		s.write(annotations, EmployeesExpectedAnnotationKey, s.expecting())
	}
	if maps.Equal(annotations, s.employer.GetAnnotations()) || len(annotations) == 0 && len(s.employer.GetAnnotations()) == 0 {
		return nil
	}
	s.employer.SetAnnotations(annotations)
	if err := r.patch(ctx, s.employer, base); err != nil {
		return fmt.Errorf("recording employees: %w", err)
	}
	return nil
}

// write sets a record. A record that would be too long is not changed, and reported: the
// index over finalizers still finds the pods that are in the cache.
func (s *session) write(annotations map[string]string, key string, names []string) {
	text := strings.Join(names, ",")
	switch {
	case len(text) > maxRecordBytes:
		s.fail(EventRecordStatusesFailed, fmt.Errorf(
			"annotation %s: the names of %d employees do not fit into %d bytes; spread them over several employers", key, len(names), maxRecordBytes))
	case text == "":
		delete(annotations, key)
	default:
		annotations[key] = text
	}
}

// touched returns the employees that the provider has or gets, and the pods that carry the
// finalizer.
func (s *session) touched() []string {
	var names []string
	for _, item := range *s.expectedEmployees {
		if item.Intent != plan.IntentOff {
			names = append(names, item.Name)
		}
	}
	for _, item := range *s.currentEmployees {
		names = append(names, item.Name)
	}
	for name, pod := range s.pods {
		if slices.Contains(pod.Finalizers, s.finalizer) {
			names = append(names, name)
		}
	}
	return tidy(names)
}

// expecting returns the pods that expect the finalizer or are about to.
func (s *session) expecting() []string {
	var names []string
	for name, pod := range s.pods {
		if s.selected[name] || slices.Contains(readMarks(pod), s.conditionKey) {
			names = append(names, name)
		}
	}
	return tidy(names)
}

func tidy(names []string) []string {
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" || strings.Contains(name, ",") })
}

// recorded returns the names of a record. A record above maxRecordBytes is ignored.
func recorded(employer client.Object, key string) []string {
	text := employer.GetAnnotations()[key]
	if text == "" || len(text) > 2*maxRecordBytes {
		return nil
	}
	return strings.Split(text, ",")
}
