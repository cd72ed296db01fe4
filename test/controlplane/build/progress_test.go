package build

import (
	"bytes"
	"fmt"
	"testing"
	"time"
)

func TestStatusLine(t *testing.T) {
	tests := map[string]struct {
		compiled int
		current  string
		want     string
	}{
		"before the first package": {0, "", "  1m5s: checking the build cache"},
		"during the build":         {12, "k8s.io/api/core/v1", "  1m5s: compiled 12 of at most 2814 packages, now k8s.io/api/core/v1"},
		"a long import path is cut from the left": {12, "k8s.io/kubernetes/pkg/controller/deployment/util/very/long",
			"  1m5s: compiled 12 of at most 2814 packages, now ...rnetes/pkg/controller/deployment/util/very/long"},
		"at the end of the oldest version": {500, modulePath + "/oldest", "  1m5s: compiled 500 packages, linking"},
		"at the end":                       {900, modulePath + "/cmd/kube", "  1m5s: compiled 900 packages, linking"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := statusLine(tc.compiled, 2814, tc.current, 65*time.Second); got != tc.want {
				t.Errorf("\nwant %q\ngot  %q", tc.want, got)
			}
		})
	}
}

// TestProgressSeparatesPackagesFromErrors writes the output of a build in pieces that end
// anywhere.
func TestProgressSeparatesPackagesFromErrors(t *testing.T) {
	output := "internal/goarch\nk8s.io/api/core/v1\n# example.com/broken\nmain.go:3:1: syntax error: oops\nexample.com/last\n"
	for size := 1; size <= len(output); size++ {
		t.Run(fmt.Sprintf("pieces of %d", size), func(t *testing.T) {
			var out bytes.Buffer
			p := newProgress(&out, 10)
			for rest := []byte(output); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				if _, err := p.Write(rest[:min(size, len(rest))]); err != nil {
					t.Fatal(err)
				}
			}
			p.close()
			if p.compiled != 3 || p.current != "example.com/last" {
				t.Errorf("compiled %d, now %s", p.compiled, p.current)
			}
			if got, want := p.complaints(), "# example.com/broken\nmain.go:3:1: syntax error: oops"; got != want {
				t.Errorf("complaints: want %q, got %q", want, got)
			}
		})
	}
}
