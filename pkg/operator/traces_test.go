package operator

import (
	"strings"
	"testing"
)

// The library that reads the headers logs what it cannot read, and headers have credentials.
func TestMalformedHeadersOfTracesAreNotShown(t *testing.T) {
	const secret = "s3cr3t"
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		for text, valid := range map[string]bool{
			"authorization=Bearer%20" + secret:            true,
			"a=1, authorization=Bearer%20" + secret + "=": true,
			"":                                 true,
			"authorization: Bearer " + secret:  false,
			"authorization=Bearer%zz" + secret: false,
			"authorization=one," + secret:      false,
			"author ization=" + secret:         false,
			secret + "é=x":                     false,
		} {
			t.Run(name+"="+text, func(t *testing.T) {
				t.Setenv(name, text)
				options := parsed(t, "--otlp-traces-endpoint", "https://collector:4318")
				err := options.Validate()
				if valid != (err == nil) {
					t.Fatalf("Validate: %v", err)
				}
				if err != nil && (!strings.Contains(err.Error(), name) || strings.Contains(err.Error(), secret)) {
					t.Errorf("the error %q must name the variable, and have nothing of its value", err)
				}
				without := parsed(t)
				if err := without.Validate(); err != nil {
					t.Errorf("without traces: %v", err)
				}
			})
		}
	}
}
