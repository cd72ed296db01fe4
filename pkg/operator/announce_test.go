package operator

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr/funcr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

func TestReadyIsAnnouncedOnce(t *testing.T) {
	var lines []string
	var checks atomic.Int64
	late := func(*http.Request) error {
		if checks.Add(1) < 3 {
			return errors.New("not yet")
		}
		return nil
	}
	log := funcr.New(func(_, text string) { lines = append(lines, text) }, funcr.Options{})
	a := announcement{log: log, checks: []healthz.Checker{healthz.Ping, late}, where: "https://127.0.0.1:9443"}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "ready: rules are enforced") || !strings.Contains(lines[0], "https://127.0.0.1:9443") || checks.Load() != 3 {
		t.Errorf("after %d checks: %q", checks.Load(), lines)
	}
}

func TestAManagerThatEndsIsNotAnnounced(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	log := funcr.New(func(_, text string) { t.Errorf("announced: %s", text) }, funcr.Options{})
	never := func(*http.Request) error { return errors.New("not yet") }
	if err := (announcement{log: log, checks: []healthz.Checker{never}}).Start(ctx); err != nil {
		t.Fatal(err)
	}
}
