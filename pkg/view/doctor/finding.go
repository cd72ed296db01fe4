package doctor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/podops-dev/podops/pkg/runtime/text"
)

// Level is the severity of a Finding.
type Level string

const (
	// LevelError means that PodOps does not protect pods, or that pods wait until the cause is removed.
	LevelError Level = "error"

	// LevelWarning means that PodOps does less than intended, or will.
	LevelWarning Level = "warning"

	// LevelInfo is a fact to know of, which is no misconfiguration.
	LevelInfo Level = "info"
)

// rank orders levels: the most severe first.
func (l Level) rank() int { return slices.Index([]Level{LevelError, LevelWarning, LevelInfo}, l) }

// ID identifies a check. IDs never change; each is a section of docs/doctor.md.
type ID string

// Finding is one misconfiguration.
type Finding struct {
	// Check is the ID of the check.
	Check ID `json:"check"`

	// Level is the severity.
	Level Level `json:"level"`

	// Object is the object to look at, such as "pod shop/web-1": a kind as kubectl names it, and a name with
	// its namespace.
	Object string `json:"object"`

	// More is how many other pods of the same owner have the same finding.
	More int `json:"more,omitempty"`

	// Text describes the finding.
	Text string `json:"text"`

	// Remedy is a command, or a change, that helps.
	Remedy string `json:"remedy"`

	// Docs is the section of the documentation.
	Docs string `json:"docs"`
}

// NotChecked is a check that could not read its objects.
type NotChecked struct {
	Check  ID     `json:"check"`
	Reason string `json:"reason"`
}

// Report is the result of Inspect.
type Report struct {
	// Checks is the number of checks that ran.
	Checks int `json:"checks"`

	// Findings are sorted by level, by reach, and by the number of pods.
	Findings []Finding `json:"findings"`

	// NotChecked are the checks that did not run, or not on all objects.
	NotChecked []NotChecked `json:"notChecked,omitempty"`
}

// Count returns the number of a level's findings.
func (r Report) Count(level Level) int {
	count := 0
	for _, finding := range r.Findings {
		if finding.Level == level {
			count++
		}
	}
	return count
}

// Summary returns how many errors and warnings there are, in words.
func (r Report) Summary() string {
	return text.Count(r.Count(LevelError), "error") + ", " + text.Count(r.Count(LevelWarning), "warning")
}

// docs returns the section of a check.
func docs(id ID) string { return "docs/doctor.md#" + string(id) }

// object returns the name of an object as findings have it.
func object(kind, namespace, name string) string {
	if namespace == "" {
		return kind + " " + name
	}
	return fmt.Sprintf("%s %s/%s", kind, namespace, name)
}

// sorted sorts findings by level, by reach, and by the object. Checks are ordered by reach: a finding about the
// manager concerns every pod.
func sorted(findings []Finding) []Finding {
	reach := IDs()
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Level.rank(), b.Level.rank()), cmp.Compare(slices.Index(reach, a.Check), slices.Index(reach, b.Check)),
			cmp.Compare(b.More, a.More), cmp.Compare(a.Object, b.Object))
	})
	return findings
}
