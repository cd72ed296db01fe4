// Package prometheus checks the alerts and the dashboard: the names that they use, offline, and in
// the folder live their results in a Prometheus that scrapes a manager.
package prometheus
