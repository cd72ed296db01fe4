package adaptertest

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
)

// recorder is a testing.TB that records failures instead of failing the test.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// record runs one case and returns its failures.
func record(t *testing.T, cfg Config, name string) []string {
	t.Helper()
	cases, err := Cases(cfg)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(cases, func(c Case) bool { return c.Name == name })
	if at < 0 {
		t.Fatalf("there is no case %q", name)
	}
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		cases[at].Run(r)
	}()
	<-done
	return r.failures
}
