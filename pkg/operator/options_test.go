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
		"--namespace":               {"--namespace", ""},
		"--workers":                 {"--workers", "0"},
		"--settle-time":             {"--settle-time", "-1s"},
		"--gate-sync-timeout":       {"--gate-sync-timeout", "0s"},
		"--evaluation-timeout":      {"--evaluation-timeout", "0s"},
		"--rule-webhook-allow-cidr": {"--rule-webhook-allow-cidr", "127.0.0.1/8,localhost"},
		"--policy-timeout":          {"--policy-timeout", "0s"},
		"--decision-log-sample":     {"--decision-log-sample", "1.5"},
		"--webhook-url":             {"--webhook-url", "https://127.0.0.1"},

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

func TestWebhookServerListensWhereItsURLSays(t *testing.T) {
	options := parsed(t, "--webhook-url", "https://127.0.0.1:19443")
	host, port, err := options.webhookAddress()
	if host != "127.0.0.1" || port != 19443 || err != nil {
		t.Errorf("webhookAddress = %q, %d, %v", host, port, err)
	}
}

func TestWebhookServerListensWhereItIsTold(t *testing.T) {
	options := parsed(t, "--webhook-url", "https://127.0.0.1:19443", "--webhook-bind-address", "[::1]:9000")
	host, port, err := options.webhookAddress()
	if host != "::1" || port != 9000 || err != nil {
		t.Errorf("webhookAddress = %q, %d, %v", host, port, err)
	}
}
