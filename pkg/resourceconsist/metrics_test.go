package resourceconsist

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/test/measured"
)

// Users of a namespace create as many Services as they like, each of which may fail.
func TestTheSeriesOfEmployeesAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := newMeasures("slb", registry)
	if err != nil {
		t.Fatal(err)
	}
	series := func() int { return len(measured.Values(t, registry, "podops_resourceconsist_employee_errors")) }
	failed := []EmployeeError{{Name: "web-0", Times: 1}, {Name: "web-1", Times: 2}}
	employer := func(namespace string, i int) types.NamespacedName {
		return types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("service-%d", i)}
	}
	shown := map[types.NamespacedName][]string{}
	for i := range 10 * maxEmployersPerNamespace {
		shown[employer("loud", i)] = m.show(employer("loud", i), nil, failed)
	}
	if got := series(); got != 2*maxEmployersPerNamespace {
		t.Errorf("%d series, want two of each of %d employers", got, maxEmployersPerNamespace)
	}
	shown[employer("quiet", 0)] = m.show(employer("quiet", 0), nil, failed)
	if got := len(shown[employer("quiet", 0)]); got != 2 {
		t.Errorf("another namespace has %d series, want 2", got)
	}
	for key, before := range shown {
		m.show(key, before, nil)
	}
	if got := series(); got != 0 {
		t.Errorf("%d series are left", got)
	}
	if got := len(m.show(employer("loud", 10*maxEmployersPerNamespace), nil, failed)); got != 2 {
		t.Errorf("a later employer has %d series, want 2: no place is free", got)
	}
}
