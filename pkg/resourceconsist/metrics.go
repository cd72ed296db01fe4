package resourceconsist

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// maxShown is the number of employees of one employer that have a metric; the other
// employees are counted in one series.
const maxShown = 100

// manyEmployees is the label value of the series for employees without their own metric.
const manyEmployees = "others"

// measures are the metrics of one controller.
type measures struct {
	controller string
	errors     *prometheus.GaugeVec
}

// NewEmployeeErrors returns the metric of all adapters of a program: registered now, or by another adapter.
func NewEmployeeErrors(registry prometheus.Registerer) (*prometheus.GaugeVec, error) {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "podops_resourceconsist_employee_errors",
		Help: "How many times in a row the provider has failed to do something for an employee. There is no series for an employee without error. " +
			"Of the program that runs the adapter.",
	}, []string{"controller", "namespace", "employer", "employee"})
	if err := registry.Register(gauge); err != nil {
		var before prometheus.AlreadyRegisteredError
		if !errors.As(err, &before) {
			return nil, fmt.Errorf("registering the metrics of employees: %w", err)
		}
		registered, ok := before.ExistingCollector.(*prometheus.GaugeVec)
		if !ok {
			return nil, fmt.Errorf("registering the metrics of employees: a %T has the same name", before.ExistingCollector)
		}
		gauge = registered
	}
	return gauge, nil
}

// newMeasures returns the metrics of a controller.
func newMeasures(controller string, registry prometheus.Registerer) (*measures, error) {
	gauge, err := NewEmployeeErrors(registry)
	if err != nil {
		return nil, err
	}
	return &measures{controller: controller, errors: gauge}, nil
}

// show replaces the series of an employer. It returns the employees that have a series.
func (m *measures) show(employer types.NamespacedName, before []string, failed []EmployeeError) []string {
	counts := map[string]int{}
	for i, one := range failed {
		name := one.Name
		if i >= maxShown {
			name = manyEmployees
		}
		counts[name] += one.Times
	}
	for _, name := range before {
		if counts[name] == 0 {
			m.errors.DeleteLabelValues(m.controller, employer.Namespace, employer.Name, name)
		}
	}
	shown := make([]string, 0, len(counts))
	for name, count := range counts {
		m.errors.WithLabelValues(m.controller, employer.Namespace, employer.Name, name).Set(float64(count))
		shown = append(shown, name)
	}
	return shown
}
