package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// check finds one kind of misconfiguration.
type check struct {
	id ID

	// reads are the sources without which the check does not run.
	reads []Source

	find func(*inspection) []Finding
}

// Inspect returns the misconfigurations in a Snapshot at a time.
func Inspect(snapshot Snapshot, options Options, now time.Time) Report {
	in := newInspection(snapshot, options, now)
	report := Report{Findings: []Finding{}}
	for _, c := range checks() {
		if reason := snapshot.unread(c.reads); reason != "" {
			report.NotChecked = append(report.NotChecked, NotChecked{Check: c.id, Reason: reason})
			continue
		}
		report.Checks++
		for _, finding := range c.find(in) {
			finding.Check, finding.Docs = c.id, docs(c.id)
			report.Findings = append(report.Findings, finding)
		}
	}
	sorted(report.Findings)
	return report
}

// IDs returns the IDs of all checks, in the order in which they run.
func IDs() []ID {
	var ids []ID
	for _, c := range checks() {
		ids = append(ids, c.id)
	}
	return ids
}

// checks returns the checks, ordered by reach: manager, installation, rules, budgets, traffic, nodes, pods.
func checks() []check {
	return slices.Concat(managerChecks(), installationChecks(), guardChecks(), ruleChecks(), budgetChecks(), trafficChecks(), nodeChecks(), podChecks())
}

// unread returns why some of the sources could not be read; empty if all were.
func (s Snapshot) unread(sources []Source) string {
	var reasons []string
	for _, source := range sources {
		if reason, ok := s.Unread[source]; ok {
			reasons = append(reasons, fmt.Sprintf("%s: %s", source, reason))
		}
	}
	return strings.Join(reasons, "; ")
}
