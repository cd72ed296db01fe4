package certificates

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/podops-dev/podops/test/measured"
)

// TestTheEndOfCertificatesIsShown follows a rotation of the CA.
func TestTheEndOfCertificatesIsShown(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	const caDue = 245 * day
	ends := func(from, life time.Duration) float64 { return float64(epoch.Add(from + life).Unix()) }
	check := func(what string, state State, want map[string]float64) {
		t.Helper()
		m.show(state)
		if diff := cmp.Diff(want, measured.Values(t, registry, "podops_webhook_certificate_expiry_timestamp_seconds")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	fresh := issued(t, State{}, time.Time{}, epoch)
	check("fresh", fresh, map[string]float64{"certificate=ca": ends(0, 365*day), "certificate=serving": ends(0, 90*day)})
	renewed := issued(t, fresh, time.Time{}, epoch.Add(200*day))
	rotating := issued(t, renewed, time.Time{}, epoch.Add(caDue))
	check("rotating", rotating, map[string]float64{
		"certificate=ca": ends(0, 365*day), "certificate=next_ca": ends(caDue, 365*day), "certificate=serving": ends(200*day, 90*day),
	})
	rotated := issued(t, rotating, epoch.Add(caDue), epoch.Add(caDue+time.Minute))
	check("rotated", rotated, map[string]float64{"certificate=ca": ends(caDue, 365*day), "certificate=serving": ends(caDue+time.Minute, 90*day)})
}
