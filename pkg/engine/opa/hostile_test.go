package opa_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/podops-dev/podops/pkg/engine/opa"
)

// TestHostileMillionRules checks that a module of a million rules is rejected by its size, before
// it is parsed: its rules have errors of syntax, which are not reported.
func TestHostileMillionRules(t *testing.T) {
	source := "package rule\n\n" + strings.Repeat("allow if if input.pod.ready\n", 1000000)
	problems := &opa.CompileError{}
	_, err := newEngine(t, opa.Options{}).Inspect(t.Context(), opa.Source{Module: source})
	if !errors.As(err, &problems) || len(problems.Problems) != 1 || !strings.Contains(problems.Problems[0].Message, "bytes") {
		t.Errorf("got error %v, want one about the size", err)
	}
}

// TestHostileSchemas checks that no schema makes the compiler open a connection, neither that of
// the parameters nor one in an annotation.
func TestHostileSchemas(t *testing.T) {
	calls := atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		fmt.Fprint(w, `{"type": "object"}`)
	}))
	defer server.Close()
	schema := fmt.Sprintf(`{"$ref": "%s/schema.json"}`, server.URL)
	with := newEngine(t, opa.Options{})
	if _, err := with.Inspect(t.Context(), opa.Source{Module: "package rule\n\nallow if input.parameters.x\n", ParametersSchema: json.RawMessage(schema)}); err == nil {
		t.Error("a remote schema of the parameters is no error")
	}
	source := "package rule\n\n# METADATA\n# schemas:\n# - input: " + schema + "\nallow if input.pod.ready\n"
	if _, err := with.Inspect(t.Context(), opa.Source{Module: source}); err != nil {
		t.Errorf("the annotation is not ignored: %v", err)
	}
	if calls.Load() != 0 {
		t.Errorf("the server got %d requests", calls.Load())
	}
}
