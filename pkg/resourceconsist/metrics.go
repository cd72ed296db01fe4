package resourceconsist

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/runtime/metricseries"
)

// maxShown is how many employees of one employer have a metric; the other
// employees are counted in one series.
const maxShown = 100

// Bounds of the employers that have series; others have none.
const (
	maxEmployersPerNamespace = 16
	maxEmployers             = 200
)

// manyEmployees is the label value of the series for employees without their own metric.
const manyEmployees = "others"

// measures are the metrics of one controller.
type measures struct {
	controller string
	errors     *prometheus.GaugeVec
	employers  *metricseries.Names
}

// NewEmployeeErrors returns the metric that all adapters of a program share: registered now, or by another adapter.
func NewEmployeeErrors(registry prometheus.Registerer) (*prometheus.GaugeVec, error) {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "podops_resourceconsist_employee_errors",
		Help: "How many times in a row the provider has failed to do something for an employee. There is no series for an employee without error, " +
			"nor for employers beyond 16 of a namespace and 200 of a controller. Of the program that runs the adapter.",
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
	employers := metricseries.NewNames(metricseries.Limits{PerNamespace: maxEmployersPerNamespace, InAll: maxEmployers})
	return &measures{controller: controller, errors: gauge, employers: employers}, nil
}

// show replaces the series of an employer. It returns the employees that have a series.
func (m *measures) show(employer types.NamespacedName, before []string, failed []EmployeeError) []string {
	counts := map[string]int{}
	if !m.hasPlace(employer, len(failed) > 0) {
		failed = nil
	}
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

// hasPlace reports whether an employer has series, if employees of it have failed. Its place is free again when none
// fails.
func (m *measures) hasPlace(employer types.NamespacedName, failed bool) bool {
	if !failed {
		m.employers.Release(employer.Namespace, employer.Name)
		return false
	}
	// The value of an employer named like Other would not show whether it has a place.
	return employer.Name != metricseries.Other && m.employers.Value(employer.Namespace, employer.Name) == employer.Name
}
