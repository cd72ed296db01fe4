package inspection_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"

	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/webhooks/inspection"
)

// inspect is an Inspector that only reads the source, and takes no CPU.
type inspect func(ctx context.Context, source string) error

func (i inspect) Check(ctx context.Context, source opa.Source) (time.Duration, error) {
	return 0, i(ctx, source.Module)
}

func (i inspect) Known(opa.Source) (opa.Inspection, bool) { return opa.Inspection{}, false }

// newChecker returns a Checker on the real clock, or that of a synctest bubble.
func newChecker(inspector inspection.Inspector, timeout time.Duration, atOnce int) *inspection.Checker {
	return inspection.New(inspector, timeout, atOnce, clock.RealClock{})
}

func module(source string) inspection.Module {
	return inspection.Module{Path: field.NewPath("spec", "module"), File: "freeze.rego", Source: source}
}

func TestProblemsContainTheLocation(t *testing.T) {
	wrong := inspect(func(context.Context, string) error {
		return &opa.CompileError{Problems: []opa.Problem{
			{Row: 4, Column: 7, Code: "rego_type_error", Message: "undefined function http.send"},
			{Code: "podops_compile_limit", Message: "the module takes too long to compile"},
			{File: "podops/lib/quota/quota.rego", Row: 1, Column: 2, Code: "rego_type_error", Message: "odd"},
		}}
	})
	errs, err := newChecker(wrong, time.Minute, 1).Check(t.Context(), module("package rule"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`spec.module: Invalid value: "freeze.rego:4:7": rego_type_error: undefined function http.send`,
		`spec.module: Invalid value: "freeze.rego": podops_compile_limit: the module takes too long to compile`,
		`spec.module: Invalid value: "podops/lib/quota/quota.rego:1:2": rego_type_error: odd`,
	}
	var got []string
	for _, one := range errs {
		got = append(got, one.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestTenProblemsAreListed(t *testing.T) {
	wrong := inspect(func(context.Context, string) error {
		return &opa.CompileError{Problems: make([]opa.Problem, 25)}
	})
	errs, err := newChecker(wrong, time.Minute, 1).Check(t.Context(), module(""))
	if err != nil {
		t.Fatal(err)
	}
	if len(errs) != 11 || !strings.Contains(errs[10].Error(), "and 15 more problems") {
		t.Errorf("got %d errors, the last is %v", len(errs), errs[len(errs)-1])
	}
}

func TestEveryModuleIsChecked(t *testing.T) {
	wrong := inspect(func(_ context.Context, source string) error {
		if source == "good" {
			return nil
		}
		return &opa.CompileError{Problems: []opa.Problem{{Row: 1, Column: 1, Message: source}}}
	})
	errs, err := newChecker(wrong, time.Minute, 1).Check(t.Context(), module("bad"), module("good"), module("worse"))
	if err != nil || len(errs) != 2 {
		t.Errorf("got %v, %v", errs, err)
	}
}

// TestAResponseComesInTime uses an inspector that ignores its context.
func TestAResponseComesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		stuck := inspect(func(context.Context, string) error { <-release; return nil })
		checker := newChecker(stuck, time.Second, 1)
		start := time.Now()
		_, err := checker.Check(t.Context(), module("loops"))
		if !errors.Is(err, inspection.ErrTimeout) || time.Since(start) != time.Second {
			t.Errorf("got %v after %s", err, time.Since(start))
		}
		// The first one has the only slot, so the next one does not begin.
		if _, err := checker.Check(t.Context(), module("waits")); !errors.Is(err, inspection.ErrTimeout) {
			t.Errorf("got %v", err)
		}
		close(release)
		synctest.Wait()
		if _, err := checker.Check(t.Context(), module("goes")); err != nil {
			t.Errorf("got %v once the slot is free", err)
		}
	})
}

func TestAPanicIsAnError(t *testing.T) {
	panics := inspect(func(context.Context, string) error { panic("oh") })
	checker := newChecker(panics, time.Minute, 1)
	for range 2 { // the slot is free again
		_, err := checker.Check(t.Context(), module(""))
		caught := &opa.PanicError{}
		if !errors.As(err, &caught) {
			t.Errorf("got %v", err)
		}
	}
}

func TestAnUnknownResultIsNotInvalid(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		code   int32
		reason metav1.StatusReason
	}{
		"a timeout":     {inspection.ErrTimeout, http.StatusGatewayTimeout, metav1.StatusReasonTimeout},
		"another error": {errors.New("no child process"), http.StatusInternalServerError, ""},
	} {
		t.Run(name, func(t *testing.T) {
			response := inspection.Unknown(tc.err)
			if response.Allowed || response.Result.Code != tc.code || response.Result.Reason != tc.reason || response.Result.Message != tc.err.Error() {
				t.Errorf("got %+v", response.Result)
			}
		})
	}
}
