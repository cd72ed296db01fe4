package certificates

import (
	"crypto/x509"
	"net"
	"slices"
	"time"
)

// Step is one change of a State. Steps are taken in the given order.
type Step string

const (
	// MakeNext makes the next CA.
	MakeNext Step = "MakeNext"

	// Promote makes the next CA the current CA, and the current CA a previous CA.
	Promote Step = "Promote"

	// Sign makes a serving certificate, signed by the current CA.
	Sign Step = "Sign"
)

// Decision contains the changes of a State.
type Decision struct {
	// Keep is the part of the State that is still valid.
	Keep State

	// Steps change Keep to the desired State. Empty: Keep is the desired State.
	Steps []Step
}

// Decide returns the changes of the state so that the webhooks can be served under
// the names (DNS names or IP addresses) at now.
//
// carriedSince is the time since which every webhook configuration contains the next
// CA of the state; zero when a configuration lacks it, or without a next CA. A
// serving certificate of the next CA is made only after the grace time, unless no
// other certificate could be served, in which case waiting would not help.
func (l Lifetimes) Decide(state State, names []string, carriedSince, now time.Time) Decision {
	keep := state.valid(now)
	serves := keep.serves(names, now)
	signs := keep.Current.whole()

	var steps []Step
	if !keep.Next.whole() && (!signs || !now.Before(renewAt(keep.Current.Cert))) {
		steps = append(steps, MakeNext)
	}

	desperate := !serves && !signs
	carried := keep.Next.whole() && !carriedSince.IsZero() && now.Sub(carriedSince) >= l.Grace
	switch {
	case desperate || carried:
		steps = append(steps, Promote, Sign)
	case !serves || signs && keep.servingDue(now):
		steps = append(steps, Sign)
	}
	return Decision{Keep: keep, Steps: steps}
}

// Wake returns when Decide must be called again if nothing else happens: when a renewal
// is due, or when a CA leaves the bundle. It may be in the past. The state must need no
// steps.
func (l Lifetimes) Wake(state State, carriedSince time.Time) time.Time {
	var times []time.Time
	if state.Current.whole() && state.Next.Cert == nil {
		times = append(times, renewAt(state.Current.Cert))
	}
	if state.Next.whole() && !carriedSince.IsZero() {
		times = append(times, carriedSince.Add(l.Grace))
	}
	if state.Serving.whole() {
		if renew := renewAt(state.Serving.Cert); state.outlasts() {
			times = append(times, renew)
		}
		// An expired certificate is always checked, even after other errors.
		times = append(times, state.Serving.Cert.NotAfter.Add(time.Second))
	}
	for _, ca := range state.authorities() {
		times = append(times, ca.NotAfter.Add(time.Second))
	}
	return slices.MinFunc(times, time.Time.Compare)
}

// serves reports whether the serving certificate is usable at now:
//   - it is present, with its key,
//   - a CA of the state has signed it, for serving,
//   - it covers every name.
func (s State) serves(names []string, now time.Time) bool {
	if !s.Serving.whole() {
		return false
	}
	roots := x509.NewCertPool()
	for _, ca := range s.authorities() {
		roots.AddCert(ca)
	}
	_, err := s.Serving.Cert.Verify(x509.VerifyOptions{
		Roots:       roots,
		CurrentTime: now,
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(names, func(name string) bool {
		return s.Serving.Cert.VerifyHostname(hostname(name)) != nil
	})
}

// servingDue reports whether the serving certificate should be replaced although it
// is still valid.
func (s State) servingDue(now time.Time) bool {
	return s.outlasts() && !now.Before(renewAt(s.Serving.Cert))
}

// outlasts reports whether the current CA lives longer than the serving certificate.
// When it does not, another certificate of the same CA would gain nothing.
func (s State) outlasts() bool {
	return s.Current.whole() && s.Current.Cert.NotAfter.After(s.Serving.Cert.NotAfter)
}

// hostname returns an IP address in the form that VerifyHostname requires.
func hostname(name string) string {
	if net.ParseIP(name) != nil {
		return "[" + name + "]"
	}
	return name
}
