package certificates

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestWithToken(t *testing.T) {
	for name, tc := range map[string]struct{ path, token, want string }{
		"a webhook that needs it":         {"/hold-v1-pod-delete", "t1", "/hold-v1-pod-delete/token-t1"},
		"one that has it":                 {"/hold-v1-pod-delete/token-t1", "t1", "/hold-v1-pod-delete/token-t1"},
		"one that has an earlier one":     {"/hold-v1-pod-delete/token-t0", "t1", "/hold-v1-pod-delete/token-t1"},
		"a URL":                           {"https://127.0.0.1:9443/x/hold-v1-pod-delete", "t1", "https://127.0.0.1:9443/x/hold-v1-pod-delete/token-t1"},
		"any other webhook":               {"/mutate-v1-pod", "t1", "/mutate-v1-pod"},
		"without a key there is no token": {"/hold-v1-pod-delete", "", "/hold-v1-pod-delete"},
		"nor does an earlier one remain":  {"/hold-v1-pod-delete/token-t0", "", "/hold-v1-pod-delete"},
	} {
		if got := withToken(tc.path, tc.token); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestAPathKeepsItsTokenOnce shows that neither address of a webhook accumulates tokens.
func TestAPathKeepsItsTokenOnce(t *testing.T) {
	inside, err := ParseAddress("ns", "webhook", "")
	if err != nil {
		t.Fatal(err)
	}
	outside, err := ParseAddress("ns", "webhook", "https://127.0.0.1:9443/x")
	if err != nil {
		t.Fatal(err)
	}
	path := "/hold-v1-pod-eviction"
	config := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Path: &path}}
	for i, step := range []struct {
		address Address
		want    string
	}{
		{inside, "/hold-v1-pod-eviction/token-t"}, {inside, "/hold-v1-pod-eviction/token-t"},
		{outside, "https://127.0.0.1:9443/x/hold-v1-pod-eviction/token-t"}, {outside, "https://127.0.0.1:9443/x/hold-v1-pod-eviction/token-t"},
		{inside, "/hold-v1-pod-eviction/token-t"},
	} {
		if err := step.address.point(&config); err != nil {
			t.Fatal(err)
		}
		seal(&config, "t")
		var got string
		switch {
		case config.URL != nil:
			got = *config.URL
		case config.Service != nil:
			got = *config.Service.Path
		}
		if got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}

// TestKnownTokens shows that a rotation of the CA leaves no time in which the API server has a token that
// no replica accepts.
func TestKnownTokens(t *testing.T) {
	now := epoch
	lifetimes := DefaultLifetimes()
	issued, err := lifetimes.Issue(lifetimes.Decide(State{}, []string{"a"}, now, now), []string{"a"}, now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := lifetimes.Issue(lifetimes.Decide(State{}, []string{"a"}, now, now), []string{"a"}, now)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServing(clocktesting.NewFakePassiveClock(now))
	if s.Known("/hold-v1-pod-delete/token-") || s.Known("/hold-v1-pod-delete") {
		t.Error("a path without a token is known before there is one")
	}
	path := func(pair Pair) string { return withToken("/hold-v1-pod-delete", pair.token()) }
	s.show(issued)
	if !s.Known(path(issued.Current)) || s.Known(path(other.Current)) || s.Known("/hold-v1-pod-delete/token-") || s.Known("/hold-v1-pod-delete") {
		t.Error("the token of the CA is not the known token")
	}
	rotating := issued
	rotating.Next = other.Current
	s.show(rotating)
	if !s.Known(path(issued.Current)) || !s.Known(path(other.Current)) {
		t.Error("the tokens of the present and the next CA must be known")
	}
	rotated := other
	s.show(rotated)
	if !s.Known(path(issued.Current)) || !s.Known(path(other.Current)) {
		t.Error("the token that the API server still has must be known")
	}
	if (Pair{}).token() != "" || issued.Current.token() == other.Current.token() {
		t.Error("the token does not depend on the key of the CA")
	}
}
