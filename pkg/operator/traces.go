package operator

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/podops-dev/podops/pkg/runtime/buildinfo"
	"github.com/podops-dev/podops/pkg/telemetry/export"
)

// TraceOptions are the flags of traces.
type TraceOptions struct {
	// Endpoint is the URL of an OTLP receiver; empty: no traces.
	Endpoint string

	// Sample is the share of the lifecycles that are exported, from 0 to 1.
	Sample float64
}

func (o *TraceOptions) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Endpoint, "otlp-traces-endpoint", "", "URL of the OTLP receiver to which traces of lifecycles are sent over HTTP, e.g. https://collector.observability:4318; without a path /v1/traces; headers come from $OTEL_EXPORTER_OTLP_HEADERS; empty: no traces")
	flags.Float64Var(&o.Sample, "otlp-traces-sample", 1, "share of the lifecycles whose traces are sent, from 0 to 1; it must be the same in every replica")
}

// tracesPath is the path of an OTLP receiver for traces.
const tracesPath = "/v1/traces"

// url returns the URL to which traces are sent; empty if none are.
func (o *TraceOptions) url() (string, error) {
	if o.Endpoint == "" {
		return "", nil
	}
	endpoint, err := url.Parse(o.Endpoint)
	switch {
	case err != nil:
		return "", errors.New("--otlp-traces-endpoint is not a URL") // the URL may have a password
	case endpoint.Scheme != "http" && endpoint.Scheme != "https", endpoint.Host == "":
		return "", errors.New("--otlp-traces-endpoint must be http://<host>:<port> or https://<host>:<port>")
	case endpoint.User != nil, endpoint.RawQuery != "", endpoint.Fragment != "":
		return "", errors.New("--otlp-traces-endpoint must have no user, query or fragment: credentials are headers, in $OTEL_EXPORTER_OTLP_HEADERS")
	}
	if strings.Trim(endpoint.Path, "/") == "" {
		endpoint.Path = tracesPath
	}
	return endpoint.String(), nil
}

func (o *TraceOptions) validate() error {
	endpoint, err := o.url()
	if endpoint != "" {
		err = errors.Join(err, validateHeaders(os.Getenv))
	}
	return errors.Join(err, check(o.Sample >= 0 && o.Sample <= 1, "--otlp-traces-sample is %v, want from 0 to 1", o.Sample))
}

// validateHeaders returns an error for headers in the environment that the OTLP client cannot read. It would log their
// text, which may have credentials; the error does not.
func validateHeaders(getenv func(string) string) error {
	var errs []error
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		text := strings.TrimSpace(getenv(name))
		if text == "" {
			continue
		}
		for header := range strings.SplitSeq(text, ",") {
			key, value, found := strings.Cut(header, "=")
			_, err := url.PathUnescape(value)
			if !found || err != nil || !isHeaderName(strings.TrimSpace(key)) {
				errs = append(errs, fmt.Errorf("$%s must be <name>=<value>,... such as authorization=Bearer%%20token, "+
					"with spaces, commas and percent signs in values escaped", name))
				break
			}
		}
	}
	return errors.Join(errs...)
}

// isHeaderName reports whether a text is a token of HTTP.
func isHeaderName(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(char rune) bool {
		letter := 'a' <= char && char <= 'z' || 'A' <= char && char <= 'Z' || '0' <= char && char <= '9'
		return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", char)
	})
}

// newTracer returns the Tracer of a manager, whose spans the manager sends; nil if no traces are exported.
func newTracer(mgr manager.Manager, measured *export.Metrics, options Options) (*export.Tracer, error) {
	endpoint, err := options.Traces.url()
	if err != nil || endpoint == "" {
		return nil, err
	}
	exporter := export.New(export.NewClient(endpoint), resource(options.Namespace), measured, clock.RealClock{})
	if err := mgr.Add(exporter); err != nil {
		return nil, fmt.Errorf("adding the exporter of traces: %w", err)
	}
	return export.NewTracer(exporter, options.Traces.Sample, mgr.Elected(), clock.RealClock{}), nil
}

// resource returns the attributes that name this manager in traces.
func resource(namespace string) []attribute.KeyValue {
	attributes := []attribute.KeyValue{
		attribute.String("service.name", "podops"), attribute.String("service.namespace", namespace),
		attribute.String("service.version", buildinfo.Read().Version),
	}
	if name, err := os.Hostname(); err == nil {
		attributes = append(attributes, attribute.String("service.instance.id", name))
	}
	return attributes
}
