package main

// group is a section of the page.
type group struct {
	title string
	flags []string
}

// groups returns the sections with their flags, in the order of the page.
func groups() []group {
	return []group{
		{"Operations on pods", []string{
			"settle-time", "gate-sync-timeout", "gate-sync-policy", "permit-interval", "max-hold", "on-max-hold", "delete-wait", "hold-preemption",
		}},
		{"Evaluation of rules", []string{"workers", "round-budget", "evaluation-timeout", "policy-timeout"}},
		{"Webhook rules", []string{"rule-webhook-allow-cidr", "rule-webhook-allow-host", "rule-webhook-rejection-retry"}},
		{"Load balancers", []string{"enable-adapters", "haproxy-allow"}},
		{"Webhooks of the manager", []string{
			"webhook-url", "webhook-port", "webhook-bind-address", "webhook-client-ca", "webhook-client-names", "shutdown-delay",
		}},
		{"Metrics, probes and profiles", []string{"metrics-bind-address", "metrics-secure", "health-probe-bind-address", "pprof-bind-address"}},
		{"Events, decision log, traces and log", []string{
			"event-rate", "decision-log", "decision-log-sample", "decision-log-mask", "otlp-traces-endpoint", "otlp-traces-sample",
			"zap-devel", "zap-encoder", "zap-log-level", "zap-stacktrace-level", "zap-time-encoding",
		}},
		{"Replicas", []string{
			"leader-elect", "leader-elect-lease-duration", "leader-elect-renew-deadline", "leader-elect-retry-period",
		}},
		{"Cluster", []string{"namespace", "kubeconfig"}},
	}
}
