package doctor

import (
	"fmt"
	"strings"
)

// width is the width of a line for terminals. Commands and names are not broken.
const width = 80

// Text returns a Report for terminals.
func Text(report Report) string {
	var out strings.Builder
	for _, finding := range report.Findings {
		more := ""
		if finding.More > 0 {
			more = fmt.Sprintf(" and %d more of its owner", finding.More)
		}
		fmt.Fprintf(&out, "%s  %s%s  [%s]\n", strings.ToUpper(string(finding.Level)), finding.Object, more, finding.Check)
		wrap(&out, "  ", finding.Text)
		fmt.Fprintf(&out, "  -> %s\n     %s\n\n", finding.Remedy, finding.Docs)
	}
	for _, skipped := range report.NotChecked {
		wrap(&out, "", fmt.Sprintf("not checked: %s (%s)", skipped.Check, skipped.Reason))
	}
	if len(report.NotChecked) > 0 {
		out.WriteByte('\n')
	}
	fmt.Fprintf(&out, "%d checks, %d errors, %d warnings, %d not checked\n",
		report.Checks, report.Count(LevelError), report.Count(LevelWarning), len(report.NotChecked))
	return out.String()
}

// wrap writes text in lines of at most width characters, each after an indent.
func wrap(out *strings.Builder, indent, text string) {
	line := indent
	for _, word := range strings.Fields(text) {
		if len(line) > len(indent) && len(line)+1+len(word) > width {
			fmt.Fprintln(out, line)
			line = indent
		}
		if len(line) > len(indent) {
			line += " "
		}
		line += word
	}
	if len(line) > len(indent) {
		fmt.Fprintln(out, line)
	}
}
