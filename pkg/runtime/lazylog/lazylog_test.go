package lazylog_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/podops-dev/podops/pkg/runtime/lazylog"
)

// speak writes lines with names and values.
func speak(log logr.Logger) {
	named := log.WithName("controller").WithValues("pod", "web-0")
	named.WithValues("id", 1).Info("First", "step", "begin")
	named.WithValues("id", 2).WithName("writer").Error(errors.New("conflict"), "Second")
	named.V(1).Info("Third")
	named.Info("Fourth")
	log.Info("Fifth")
}

// TestLinesAreThoseOfTheLogger includes the place in the source: values are late, and the call is
// that of the caller.
func TestLinesAreThoseOfTheLogger(t *testing.T) {
	lines := func(wrap func(logr.Logger) logr.Logger) []string {
		var written []string
		speak(wrap(funcr.New(func(prefix, args string) { written = append(written, prefix+" "+args) }, funcr.Options{LogCaller: funcr.All})))
		return written
	}
	want, got := lines(func(log logr.Logger) logr.Logger { return log }), lines(func(log logr.Logger) logr.Logger { return lazylog.New(log) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if len(got) != 4 || !strings.Contains(got[0], "lazylog_test.go") {
		t.Errorf("got %q, want 4 lines with this file", got)
	}
}

func TestDebugMessages(t *testing.T) {
	for verbosity, want := range []int{1, 3} {
		var written []string
		log := funcr.New(func(_, args string) { written = append(written, args) }, funcr.Options{Verbosity: verbosity})
		speak(lazylog.New(log, "First", "Fourth").WithName("controller").WithValues("pod", "web-0"))
		infos := slices.DeleteFunc(slices.Clone(written), func(line string) bool { return !strings.Contains(line, `"msg"="F`) })
		if len(infos) != want {
			t.Errorf("verbosity %d: got %q, want %d lines of information", verbosity, infos, want)
		}
		if len(written)-len(infos) != 1+verbosity {
			t.Errorf("verbosity %d: got %q, want the other lines unchanged", verbosity, written)
		}
	}
}

func TestALoggerThatDiscards(t *testing.T) {
	speak(lazylog.New(logr.Logger{}))
	speak(lazylog.New(logr.Discard()))
}

func BenchmarkWithValues(b *testing.B) {
	log := zap.New(zap.WriteTo(&strings.Builder{}))
	for name, log := range map[string]logr.Logger{"zap": log, "lazy": lazylog.New(log)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				log.WithValues("controller", "podlifecycle", "namespace", "default", "name", "web-0").WithValues("reconcileID", "705ab4f5").V(1).Info("Reconciling")
			}
		})
	}
}
