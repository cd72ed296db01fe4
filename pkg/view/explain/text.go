package explain

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/podops-dev/podops/pkg/runtime/text"
)

// Write prints explanations as human-readable text, in lines of at most width characters. Commands and names are never broken.
func Write(out io.Writer, explanations []Explanation, now time.Time, width int) error {
	var lines strings.Builder
	for i, e := range explanations {
		if i > 0 {
			lines.WriteString("\n")
		}
		p := &printer{text: &lines, now: now, width: width}
		p.explanation(e)
	}
	_, err := io.WriteString(out, lines.String())
	return err
}

// printer prints one explanation.
type printer struct {
	text  *strings.Builder
	now   time.Time
	width int
}

func (p *printer) explanation(e Explanation) {
	p.wrapped("", fmt.Sprintf("%s %s/%s: %s", e.Kind, e.Namespace, e.Name, e.Summary))
	if len(e.Operations) == 0 && e.Phase != "" {
		p.wrapped("   ", e.Phase+p.forHowLong(e.Since))
	}
	for _, operation := range e.Operations {
		p.operation(operation)
	}
	if len(e.Reasons) > 0 {
		p.text.WriteString("\nWhy:\n")
	}
	for i, reason := range e.Reasons {
		p.reason(fmt.Sprintf("%d. ", i+1), reason)
	}
	if len(e.Notes) > 0 {
		p.text.WriteString("\nAlso:\n")
	}
	for _, note := range e.Notes {
		p.reason("-  ", note)
	}
	if len(e.Findings) > 0 {
		p.text.WriteString("\nFound by doctor:\n")
	}
	for _, finding := range e.Findings {
		p.hanging("-  ", "   ", finding.Object+" "+finding.Text)
		p.commands("   ", []Command{{"mend it", finding.Remedy}})
		p.hanging("   more       ", strings.Repeat(" ", 14), finding.Docs)
	}
	if len(e.LetGo) > 0 {
		p.text.WriteString("\nTo let it go anyway, the mildest first (docs/letting-go.md):\n")
		p.commands("  ", e.LetGo)
	}
	if len(e.Unreadable) > 0 {
		p.text.WriteString("\nNot read, so that reasons may be missing:\n")
		for _, line := range e.Unreadable {
			p.wrapped("   ", line)
		}
	}
}

func (p *printer) operation(operation Operation) {
	line := fmt.Sprintf("   operation %s (%s): %s%s", operation.ID, operation.Type, operation.Phase, p.forHowLong(operation.Since))
	if operation.By != "" {
		line += "; requested by " + operation.By
	}
	p.wrapped("   ", strings.TrimSpace(line))
}

// reason prints a reason under its number.
func (p *printer) reason(number string, reason Reason) {
	p.hanging(number, "   ", reason.Message)
	field := func(name, value string) {
		if value != "" {
			p.hanging(fmt.Sprintf("   %-10s ", name), strings.Repeat(" ", 14), value)
		}
	}
	if reason.Rule != "" {
		field("rule", strings.Join(slices.DeleteFunc([]string{reason.Rule, reason.Kind, reason.Stage}, func(s string) bool { return s == "" }), ", "))
	}
	if n := reason.Numbers; n != nil {
		field("slots", fmt.Sprintf("%d free of %d, %d needed", n.Have, n.Limit, n.Needed))
	}
	field("in the way", p.inTheWay(reason))
	for _, finalizer := range reason.Finalizers {
		field("finalizer", finalizerText(finalizer))
	}
	if reason.Count > 0 {
		field("pods", podsText(reason))
	}
	if reason.Since != nil {
		field("since", p.age(reason.Since))
	}
	if reason.NextCheck != nil {
		field("next check", p.until(reason.NextCheck))
	}
	p.commands("   ", reason.Commands)
	field("more", reason.Docs)
}

func (p *printer) inTheWay(reason Reason) string {
	var parts []string
	for _, pod := range reason.InTheWay {
		parts = append(parts, fmt.Sprintf("%s (%s%s)", pod.Name, pod.Phase, p.forHowLong(pod.Since)))
	}
	if reason.InTheWayMore > 0 {
		parts = append(parts, fmt.Sprintf("%d more", reason.InTheWayMore))
	}
	return strings.Join(parts, ", ")
}

func finalizerText(finalizer Finalizer) string {
	line := finalizer.Name + " is " + finalizer.State
	if len(finalizer.Employers) > 0 {
		line += ", of " + strings.Join(finalizer.Employers, " and ")
	}
	if finalizer.Controller != "" {
		line += ", by adapter " + finalizer.Controller
	}
	return line
}

// maxShownPods bounds the pods of a reason in text.
const maxShownPods = 5

func podsText(reason Reason) string {
	shown := reason.Pods[:min(len(reason.Pods), maxShownPods)]
	line := fmt.Sprintf("%d: %s", reason.Count, strings.Join(shown, ", "))
	if more := reason.Count - len(shown); more > 0 {
		line += fmt.Sprintf(", %d more", more)
	}
	return line
}

// commands prints commands, each under its purpose.
func (p *printer) commands(indent string, commands []Command) {
	for _, command := range commands {
		p.hanging(indent+"> ", indent+"  ", command.Purpose+":")
		p.text.WriteString(indent + "    " + command.Run + "\n")
	}
}

// forHowLong returns " for 12s"; nothing without a time.
func (p *printer) forHowLong(since *metav1.Time) string {
	if since == nil {
		return ""
	}
	return " for " + p.age(since)
}

func (p *printer) age(since *metav1.Time) string {
	return duration.HumanDuration(max(0, p.now.Sub(since.Time)))
}

// until returns when a time comes.
func (p *printer) until(at *metav1.Time) string {
	if left := at.Sub(p.now); left > 0 {
		return "in " + duration.HumanDuration(left)
	}
	return "now"
}

// wrapped prints a text whose further lines are indented like the first.
func (p *printer) wrapped(indent, text string) { p.hanging(indent, indent+"  ", text) }

// hanging prints a text after first, and its further lines after rest.
func (p *printer) hanging(first, rest, words string) {
	p.text.WriteString(text.Wrap(first, rest, words, p.width))
}
