package doctor

import (
	"fmt"
	"strings"

	"github.com/podops-dev/podops/pkg/runtime/text"
)

// Text returns a Report for terminals, in lines of at most width characters. Commands and names are not broken.
func Text(report Report, width int) string {
	var out strings.Builder
	for _, finding := range report.Findings {
		more := ""
		if finding.More > 0 {
			more = fmt.Sprintf(" and %d more of its owner", finding.More)
		}
		fmt.Fprintf(&out, "%s  %s%s  [%s]\n", strings.ToUpper(string(finding.Level)), finding.Object, more, finding.Check)
		out.WriteString(text.Wrap("  ", "  ", finding.Text, width))
		fmt.Fprintf(&out, "  -> %s\n     %s\n\n", finding.Remedy, finding.Docs)
	}
	for _, skipped := range report.NotChecked {
		out.WriteString(text.Wrap("", "", fmt.Sprintf("not checked: %s (%s)", skipped.Check, skipped.Reason), width))
	}
	if len(report.NotChecked) > 0 {
		out.WriteByte('\n')
	}
	fmt.Fprintf(&out, "%s, %s, %d not checked\n", text.Count(report.Checks, "check"), report.Summary(), len(report.NotChecked))
	return out.String()
}
