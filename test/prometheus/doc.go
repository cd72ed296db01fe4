// Package prometheus checks the alerts: that each has its text, its page and its tests.
package prometheus
