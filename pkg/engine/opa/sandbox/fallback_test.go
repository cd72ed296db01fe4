package sandbox

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// TestFallback checks that modules get the same results without processes, with the same limit of time, and that this is
// reported once.
func TestFallback(t *testing.T) {
	var reported []error
	without, err := NewFallback(func(err error) { reported = append(reported, err) })
	if err != nil {
		t.Fatal(err)
	}
	without.command = func() ([]string, error) { return []string{"/no/such/file"}, nil }
	with := New(Options{Timeout: patience})
	waiting := requests(pods(2))
	verdicts := map[string]map[string]rule.Verdict{}
	for name, workers := range map[string]opa.Workers{"with": with, "without": without} {
		engine, err := opa.New(opa.Options{Workers: workers, CustomTimeout: limitForTests})
		if err != nil {
			t.Fatal(err)
		}
		verdicts[name] = evaluate(t, programIn(t, engine, "shop", fine, `{}`), environment(nil), waiting).Verdicts
	}
	if diff := cmp.Diff(verdicts["with"], verdicts["without"]); diff != "" {
		t.Errorf("verdicts (-in processes +without):\n%s", diff)
	}
	if len(reported) != 1 || !errors.Is(reported[0], ErrNotStarted) {
		t.Errorf("reported %v, want one error of the start", reported)
	}
	if _, known := without.Known(opa.Source{Module: fine}); !known {
		t.Error("the inspected module is not known")
	}
	if _, err := without.Check(t.Context(), opa.Source{Module: "package rule\n\nallow if http.send({}).ok\n"}); len(problemsOf(err)) != 1 {
		t.Errorf("got error %v, want a problem of the module", err)
	}
	engine, err := opa.New(opa.Options{Workers: without})
	if err != nil {
		t.Fatal(err)
	}
	got := evaluate(t, programIn(t, engine, "shop", endless, `{}`), environment(nil), waiting[:1]).Verdicts[waiting[0].Key()]
	if got.Code != rule.CodeTimeout {
		t.Errorf("got %+v of an endless module, want a timeout", got)
	}
}
