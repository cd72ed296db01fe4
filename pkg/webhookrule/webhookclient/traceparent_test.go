package webhookclient

import (
	"net/http"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/podops-dev/podops/pkg/core/tracing"
)

// TestATracedCallHasItsParent shows that a POST and a poll with a trace have the header traceparent, and no other call.
func TestATracedCallHasItsParent(t *testing.T) {
	var got []string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Traceparent"))
		answer(`{"success":true}`)(w, r)
	})
	client := NewClient(local(), Timeouts{})
	defer client.CloseIdle()
	endpoint := Endpoint{URL: s.URL}
	traced := tracing.Call{TraceID: "7b1c", Of: []tracing.Lifecycle{{ID: "me", Trace: trace.TraceID{1}}}}
	polled := traced
	polled.Poll = true
	for _, call := range []Call{
		{Post: &PostCall{Endpoint: endpoint, Request: PostRequest{TraceID: "7b1c"}}, Traced: traced},
		{Poll: &PollCall{Endpoint: endpoint, Keys: []string{"task-id"}, TaskID: "7"}, Traced: polled},
		{Post: &PostCall{Endpoint: endpoint, Request: PostRequest{TraceID: "7b1c"}}},
	} {
		if result := call.make(t.Context(), client); result.Failure != nil {
			t.Fatal(result.Failure)
		}
	}
	want := []string{traced.TraceParent(), polled.TraceParent(), ""}
	if got[0] != want[0] || got[1] != want[1] || got[2] != want[2] || got[0] == got[1] || got[0] == "" {
		t.Errorf("the headers traceparent are %q, want %q", got, want)
	}
}
