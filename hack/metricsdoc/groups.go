package main

// group is a section of the page: a question, and the metrics that have its answer.
type group struct {
	question string
	metrics  []string
}

// groups returns the sections with their metrics, in the order of the page.
func groups() []group {
	return []group{
		{"In which phases are pods, and why do they wait?", []string{
			"podops_pods", "podops_pods_oldest_seconds", "podops_pod_phase_duration_seconds",
			"podops_pods_waiting_for_finalizer", "podops_finalizer_oldest_wait_seconds", "podops_pod_problems_total",
		}},
		{"Which deletes, evictions and scale-downs are held, and how do they end?", []string{
			"podops_deletes_pending", "podops_deletes_held_total", "podops_deletes_ended_total", "podops_deletes_cancelled_total",
			"podops_holds_expired_total", "podops_delete_reviews_total", "podops_scale_downs_kept",
		}},
		{"Which pods went past a rule, and why?", []string{"podops_deletes_unguarded_total", "podops_updates_unguarded_total", "podops_rules_waived_total"}},
		{"What do rules permit, and how many slots are used?", []string{
			"podops_permits_total", "podops_podtransitionrule_pods", "podops_rule_unavailable_pods", "podops_rule_unavailable_pods_limit",
			"podops_poddisruptionbudget_pods",
			"podops_rule_requests_total", "podops_rule_quarantined", "podops_rule_timeouts_total",
		}},
		{"Do the services of webhook rules answer?", []string{
			"podops_webhook_tasks", "podops_webhook_oldest_task_start_seconds", "podops_webhook_calls_total", "podops_webhook_call_duration_seconds",
			"podops_webhook_calls_queued", "podops_webhook_calls_running", "podops_webhook_oldest_running_call_seconds", "podops_webhook_breaker_open",
		}},
		{"Do the webhooks of PodOps answer?", []string{
			"podops_webhook_certificate_expiry_timestamp_seconds", "podops_admission_reviews_refused_total", "podops_admission_reviews_evicted_total",
			"podops_admission_connections_closed_total",
		}},
		{"Does PodOps keep up?", []string{
			"podops_rounds_gave_way_total", "podops_slow_namespaces_waiting", "podops_events_queued", "podops_events_dropped_total",
			"podops_decision_log_dropped_total", "podops_trace_spans_exported_total", "podops_trace_spans_dropped_total",
			"podops_owner_scale_reads_total", "podops_owner_kinds_watched", "podops_clock_jumps_total",
		}},
		{"Which build runs?", []string{"podops_build_info"}},
		{"Do load balancers follow?", []string{"podops_resourceconsist_employee_errors"}},
	}
}
