package cluster

import (
	"fmt"
	"os"
	"strings"
)

// tailLines is how much of a log an error shows: a stack trace would be cut, the
// message that ends most components is not.
const tailLines = 15

// logTail gives the end of the log of a component, indented, with its path.
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
