package rolloutview

import (
	"fmt"
	"strings"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// messageLines is how many lines of a rule's message are shown.
const messageLines = 2

// side returns the rules, budgets and load balancers, and the notes. Rules that withhold pods come first.
func (r renderer) side() []Line {
	s := r.columns()
	var lines []Line
	for _, withholding := range []bool{true, false} {
		for i := range r.view.Rules {
			entry := &r.view.Rules[i]
			if entry.Withholds > 0 == withholding {
				lines = append(lines, s.rule(entry)...)
			}
		}
	}
	for _, budget := range r.view.Budgets {
		if text, left := s.budgets[budget.Name]; left {
			lines = append(lines, Line{s.name(budget.Name), {Text: text}})
		}
	}
	for _, traffic := range r.view.Traffic {
		how := "confirmed by finalizers"
		if traffic.By == byEndpoints {
			how = "by EndpointSlices"
		}
		lines = append(lines, Line{s.name(traffic.Name), {Text: fmt.Sprintf("traffic on %d of %s, %s", traffic.On, text.Count(traffic.Pods, "pod"), how)}})
	}
	for _, note := range r.view.Notes {
		lines = append(lines, Line{{note, StyleFaint}})
	}
	return lines
}

// sideColumns are the columns in the lines of rules, budgets and load balancers.
type sideColumns struct {
	width   int               // of the frame
	names   int               // columns of names
	used    int               // columns of budgets in use; 0 without a budget
	budgets map[string]string // that are not shown yet
}

func (r renderer) columns() sideColumns {
	s := sideColumns{width: r.width, budgets: map[string]string{}}
	for _, budget := range r.view.Budgets {
		text := fmt.Sprintf("%d of %d used", budget.Used, budget.Limit)
		s.budgets[budget.Name] = text
		s.used, s.names = max(s.used, len(text)), max(s.names, Width(shortName(budget.Name)))
	}
	for i := range r.view.Rules {
		s.names = max(s.names, Width(shortName(r.view.Rules[i].Name)))
	}
	for _, traffic := range r.view.Traffic {
		s.names = max(s.names, Width(traffic.Name))
	}
	s.names = min(s.names, longestName, max(10, r.width*2/5))
	return s
}

// shortName returns the name of a rule; the name of a PodDisruptionBudget begins with the short name of its
// kind.
func shortName(name string) string {
	if rest, ok := strings.CutPrefix(name, string(rule.KindDisruptionBudget)+"/"); ok {
		return "pdb/" + rest
	}
	return name
}

func (s sideColumns) name(name string) Segment {
	return Segment{Text: pad(cutText(shortName(name), s.names), s.names) + "  "}
}

// rule returns the lines of a rule: its budget, its effect on the pods, and the reason, which follows in
// lines of its own if it is too long.
func (s sideColumns) rule(entry *Rule) []Line {
	line := Line{s.name(entry.Name)}
	if s.used > 0 {
		line = append(line, Segment{Text: pad(s.budgets[entry.Name], s.used) + "  "})
		delete(s.budgets, entry.Name)
	}
	enforcement := ""
	if entry.Enforcement != appsv1alpha1.EnforcementEnforce {
		enforcement = " (" + string(entry.Enforcement) + ")"
	}
	if entry.Withholds == 0 {
		return []Line{append(line, Segment{"withholds none" + enforcement, StyleFaint})}
	}
	line = append(line, Segment{fmt.Sprintf("withholds %d", entry.Withholds), StyleWaiting}, Segment{Text: enforcement + ":"})
	if Width(line.Text())+1+Width(entry.Message) <= s.width {
		return []Line{append(line, Segment{Text: " " + entry.Message})}
	}
	lines := []Line{line}
	for _, part := range wrap(entry.Message, s.width-2, messageLines) {
		lines = append(lines, Line{{Text: "  " + part}})
	}
	return lines
}
