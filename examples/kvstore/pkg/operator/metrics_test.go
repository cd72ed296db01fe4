package operator_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/podops-dev/podops/examples/kvstore/pkg/operator"
)

func TestAClusterThatIsBeingDeletedHasASeries(t *testing.T) {
	w := ready(t, 1)
	registry := prometheus.NewRegistry()
	w.must(operator.RegisterMetrics(registry, w.api))
	series := func() string {
		t.Helper()
		families, err := registry.Gather()
		w.must(err)
		return fmt.Sprint(families)
	}
	if got := series(); got != "[]" {
		t.Errorf("before the deletion: %s", got)
	}
	w.must(w.api.Delete(t.Context(), w.cluster()))
	if got := series(); !strings.Contains(got, `value:"default"`) || !strings.Contains(got, `value:"db"`) {
		t.Errorf("in the deletion: %s", got)
	}
	w.restart()
	w.run()
	if got := series(); got != "[]" {
		t.Errorf("after the deletion: %s", got)
	}
}
