package lifecycle_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the outputs in testdata/*.txt")

// TestScripts runs testdata/*.txt. A script is a list of blocks: commands, a line
// "----", their output. See session_test.go for the commands. Comments (#) and blank
// lines separate blocks and are kept. The word pod or create starts a new pod with a
// new clock.
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("listing scripts: %v, %d found", err, len(paths))
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("reading the script: %v", err)
			}
			got := runScript(t, string(script))
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatalf("rewriting the script: %v", err)
				}
				return
			}
			if diff := cmp.Diff(string(script), got); diff != "" {
				t.Errorf("%s differs (-want +got); review and run with -update:\n%s", path, diff)
			}
		})
	}
}

// runScript returns the script with the outputs that its commands have now.
func runScript(t *testing.T, script string) string {
	var (
		out      strings.Builder
		commands []string
		inOutput bool
	)
	s := &session{}
	for _, line := range strings.Split(strings.TrimRight(script, "\n"), "\n") {
		switch {
		case inOutput && line != "":
		case line == "----":
			out.WriteString("----\n" + s.run(t, commands))
			commands, inOutput = nil, true
		case line == "" || strings.HasPrefix(line, "#"):
			inOutput = false
			out.WriteString(line + "\n")
		default:
			commands = append(commands, line)
			out.WriteString(line + "\n")
		}
	}
	if len(commands) > 0 {
		t.Fatalf("commands without a line ----: %q", commands)
	}
	return out.String()
}
