package certificates

import (
	"crypto/x509"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Certificates: the values of the label certificate. They never change.
const (
	labelServing = "serving"
	labelCA      = "ca"
	labelNextCA  = "next_ca"
)

// Metrics shows when certificates end.
type Metrics struct {
	expiry *prometheus.GaugeVec
}

// NewMetrics registers the metrics. It fails when they are registered already.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "podops_webhook_certificate_expiry_timestamp_seconds",
		Help: "When a certificate of the webhook port ends, in seconds since 1970: the certificate that this replica serves (serving), the CA that signs it (ca), " +
			"and the CA that signs next (next_ca), which exists during a rotation. On every replica.",
	}, []string{"certificate"})}
	if err := registry.Register(m.expiry); err != nil {
		return nil, fmt.Errorf("registering the metric of certificates: %w", err)
	}
	return m, nil
}

// show sets the times of a State. A nil Metrics shows nothing.
func (m *Metrics) show(state State) {
	if m == nil {
		return
	}
	for label, certificate := range map[string]*x509.Certificate{
		labelServing: state.Serving.Cert, labelCA: state.Current.Cert, labelNextCA: state.Next.Cert,
	} {
		if certificate == nil {
			m.expiry.DeleteLabelValues(label)
			continue
		}
		m.expiry.WithLabelValues(label).Set(float64(certificate.NotAfter.Unix()))
	}
}
