package operator

import (
	"flag"
	"strings"
	"testing"
)

func parsed(t *testing.T, args ...string) Options {
	t.Helper()
	var options Options
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	options.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatalf("parsing %v: %v", args, err)
	}
	return options
}

func TestDefaultsAreValid(t *testing.T) {
	options := parsed(t)
	if err := options.Validate(); err != nil {
		t.Errorf("Validate: %v", err)
	}
	if _, port, _ := options.webhookAddress(); port != 9443 {
		t.Errorf("webhook port %d, want 9443", port)
	}
}

func TestWrongFlagIsNamed(t *testing.T) {
	tests := map[string][]string{
		"--namespace":                    {"--namespace", ""},
		"--workers":                      {"--workers", "0"},
		"--settle-time":                  {"--settle-time", "-1s"},
		"--event-rate":                   {"--event-rate", "-1"},
		"--gate-sync-timeout":            {"--gate-sync-timeout", "0s"},
		"--gate-sync-policy":             {"--gate-sync-policy", "hold"},
		"--evaluation-timeout":           {"--evaluation-timeout", "0s"},
		"--rule-webhook-allow-cidr":      {"--rule-webhook-allow-cidr", "127.0.0.1/8,localhost"},
		"--policy-timeout":               {"--policy-timeout", "0s"},
		"--rule-webhook-rejection-retry": {"--rule-webhook-rejection-retry", "11m"},
		"--round-budget":                 {"--round-budget", "999ms"},
		"--permit-interval":              {"--permit-interval", "61s"},
		"--decision-log-sample":          {"--decision-log-sample", "NaN"},
		"--webhook-url":                  {"--webhook-url", "https://127.0.0.1"},

		"--shutdown-delay":       {"--shutdown-delay", "-1s"},
		"--webhook-client-names": {"--webhook-client-names", "kube-apiserver"},
		"--otlp-traces-endpoint": {"--otlp-traces-endpoint", "collector:4318"},
		"--otlp-traces-sample":   {"--otlp-traces-sample", "1.1"},
		"--metrics-secure":       {"--metrics-secure=false"},
		"--pprof-bind-address":   {"--pprof-bind-address", ":6060"},

		"--webhook-bind-address": {"--webhook-bind-address", "127.0.0.1"},
	}
	for name, args := range tests {
		t.Run(name, func(t *testing.T) {
			options := parsed(t, args...)
			if err := options.Validate(); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("Validate: %v, want an error that names %s", err, name)
			}
		})
	}
}

func TestPlainMetricsAreForThisMachineOnly(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:8080": true, "[::1]:8080": true, "localhost:8080": true, "0": true,
		":8080": false, "0.0.0.0:8080": false, "10.0.0.1:8080": false, "[::]:8080": false,
	} {
		options := parsed(t, "--metrics-secure=false", "--metrics-bind-address", address)
		if err := options.Validate(); (err == nil) != want {
			t.Errorf("%s: %v, want valid %t", address, err, want)
		}
	}
}

func TestWebhookServerListensAtItsURL(t *testing.T) {
	options := parsed(t, "--webhook-url", "https://127.0.0.1:19443")
	host, port, err := options.webhookAddress()
	if host != "127.0.0.1" || port != 19443 || err != nil {
		t.Errorf("webhookAddress = %q, %d, %v", host, port, err)
	}
}

func TestWebhookServerListensAtItsBindAddress(t *testing.T) {
	options := parsed(t, "--webhook-url", "https://127.0.0.1:19443", "--webhook-bind-address", "[::1]:9000")
	host, port, err := options.webhookAddress()
	if host != "::1" || port != 9000 || err != nil {
		t.Errorf("webhookAddress = %q, %d, %v", host, port, err)
	}
}
