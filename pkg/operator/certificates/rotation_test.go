package certificates

import (
	"crypto/x509"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// simulation is a rotation without a cluster: the shared state, the bundles that API servers may
// use, and the certificates that replicas may serve.
type simulation struct {
	lifetimes Lifetimes
	now       time.Time
	state     State
	carried   carried

	bundles []published // oldest first
	served  []shown     // oldest first
}

type published struct {
	at     time.Time
	bundle []byte
}

type shown struct {
	until time.Time // zero for the current one
	cert  *x509.Certificate
}

// step runs the replica once. Publishing fails when the API server cannot be reached.
func (w *simulation) step(t *rapid.T, reachable bool) {
	decision := w.lifetimes.Decide(w.state, testNames, w.carried.sinceFor(w.state.Next), w.now)
	state, err := w.lifetimes.Issue(decision, testNames, w.now)
	if err != nil {
		t.Fatalf("issuing: %v", err)
	}
	if again := w.lifetimes.Decide(state, testNames, w.carried.sinceFor(state.Next), w.now); len(again.Steps) != 0 {
		t.Fatalf("after %v there is more to do: %v", decision.Steps, again.Steps)
	}
	w.state = state
	if last := len(w.served) - 1; last < 0 || !w.served[last].cert.Equal(state.Serving.Cert) {
		if last >= 0 {
			w.served[last].until = w.now
		}
		w.served = append(w.served, shown{cert: state.Serving.Cert})
	}
	if reachable {
		w.bundles = append(w.bundles, published{w.now, state.Bundle()})
	}
	w.carried = w.carried.observed(state.Next, reachable, w.now)
	if wake := w.lifetimes.Wake(state, w.carried.sinceFor(state.Next)); !wake.After(w.now) {
		t.Fatalf("at %s the next look is due at %s: a hot loop", w.now, wake)
	}
}

// check verifies every certificate that some replica may serve now with every bundle
// that some API server may use now; either may lag by the grace time.
func (w *simulation) check(t *rapid.T) {
	for i, bundle := range w.bundles {
		superseded := i+1 < len(w.bundles) && w.now.Sub(w.bundles[i+1].at) >= w.lifetimes.Grace
		if superseded {
			continue
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(bundle.bundle)
		for _, shown := range w.served {
			if !shown.until.IsZero() && w.now.Sub(shown.until) >= w.lifetimes.Grace {
				continue
			}
			for _, name := range testNames {
				_, err := shown.cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: w.now, DNSName: hostname(name)})
				if err != nil {
					t.Fatalf("at %s, certificate of %s and bundle of %s: %v",
						w.now, shown.cert.NotBefore, bundle.at, err)
				}
			}
		}
	}
}

// TestEveryCertificateIsTrustedWhileItMayBeServed shows that through years of rotations, with late
// wake-ups, and webhook configurations that cannot be written for days, no API server receives a
// certificate that it does not trust.
func TestEveryCertificateIsTrustedWhileItMayBeServed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Lifetimes{
			CA:      time.Duration(rapid.IntRange(60, 400).Draw(t, "CA days")) * day,
			Serving: time.Duration(rapid.IntRange(3, 60).Draw(t, "serving days")) * day,
			Grace:   time.Duration(rapid.IntRange(1, 7200).Draw(t, "grace seconds")) * time.Second,
			Skew:    time.Hour,
		}
		w := &simulation{lifetimes: l, now: epoch}
		w.step(t, true)
		w.check(t)
		// A third of a life is left at renewal. The configurations may be unreachable for half of
		// that, and a replica a little late each time; a longer outage cannot be bridged.
		slack := int((l.Serving/3 - 2*l.Grace).Seconds()) / 6
		rotations := 0
		for range rapid.IntRange(10, 40).Draw(t, "steps") {
			before := w.state.Current.Cert
			wake := l.Wake(w.state, w.carried.sinceFor(w.state.Next))
			late := time.Duration(rapid.IntRange(0, slack).Draw(t, "late by seconds")) * time.Second
			switch published := w.state.Next.Cert == nil || !w.carried.sinceFor(w.state.Next).IsZero(); {
			case rapid.Bool().Draw(t, "woken early"):
				// Any event may start a run, also when no change is due.
				w.now = w.now.Add(late % l.Grace)
			case published && wake.After(w.now):
				w.now = wake.Add(late)
			default:
				// A next CA that could not be published is retried soon.
				w.now = w.now.Add(late)
			}
			w.check(t)
			pressing := w.now.After(before.NotAfter.Add(-l.CA / 6))
			w.step(t, pressing || rapid.IntRange(0, 3).Draw(t, "reachable") > 0)
			w.check(t)
			if !w.state.Current.Cert.Equal(before) {
				rotations++
			}
		}
		if lived := w.now.Sub(epoch); lived > 2*l.CA && rotations == 0 {
			t.Fatalf("no CA was replaced in %s", lived)
		}
	})
}
