package cluster

import (
	"fmt"
	"os"
	"strings"
)

// tailLines is the number of lines of a log that an error shows: enough for the last
// message of most components, not for a stack trace.
const tailLines = 15

// logTail returns the end of the log of a component, indented, with its path.
func (c config) logTail(component string) string {
	path := c.log(component)
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("  (its log cannot be read: %v)", err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(lines) > tailLines {
		lines = lines[len(lines)-tailLines:]
	}
	return fmt.Sprintf("  the end of %s:\n    %s", path, strings.Join(lines, "\n    "))
}
