package prometheus

import (
	"regexp"
	"slices"
	"strings"
)

var (
	// quoted finds strings, in which names are not names of metrics.
	quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'`)

	// metric finds a name of a metric and the matchers of its labels. Every metric has a prefix of its
	// component, which distinguishes it from functions, keywords and labels.
	metric = regexp.MustCompile(`\b((?:podops|controller_runtime|leader_election|workqueue|rest_client|apiserver|process|go)_\w+)\b(?:\{([^}]*)\})?`)

	// matcher finds the label of a matcher.
	matcher = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)

	// grouping finds the labels of a grouping or of a match between vectors.
	grouping = regexp.MustCompile(`\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
)

// Uses are the names in an expression.
type Uses struct {
	// Metrics has the labels that are matched, by the name of the metric.
	Metrics map[string][]string

	// Labels are the labels that groupings name.
	Labels []string
}

// UsesOf returns the metrics and labels that an expression names. It does not check the syntax.
func UsesOf(expression string) Uses {
	uses := Uses{Metrics: map[string][]string{}}
	expression = quoted.ReplaceAllString(expression, `""`)
	for _, found := range metric.FindAllStringSubmatch(expression, -1) {
		labels := uses.Metrics[found[1]]
		for _, label := range matcher.FindAllStringSubmatch(found[2], -1) {
			labels = append(labels, label[1])
		}
		uses.Metrics[found[1]] = labels
	}
	for _, found := range grouping.FindAllStringSubmatch(expression, -1) {
		for label := range strings.SplitSeq(found[1], ",") {
			if label = strings.TrimSpace(label); label != "" && !slices.Contains(uses.Labels, label) {
				uses.Labels = append(uses.Labels, label)
			}
		}
	}
	return uses
}
