// Package live has the test of alerts and dashboard in a Prometheus that scrapes the demo: make test-prometheus.
package live
