package webhookclient

import (
	"crypto/sha256"
	"strings"
	"time"
)

// targetKey identifies a target. Calls with the same key share a circuit breaker, and calls with
// different keys do not: a namespace must not affect the calls of others with its own calls, or
// with a wrong scheme or caBundle.
type targetKey struct {
	namespace string
	scheme    string

	// host with its port, in lower case; invalidHost for a URL that cannot be called.
	host string

	// trust is a hash of the caBundle.
	trust [sha256.Size]byte
}

// invalidHost is the host of URLs that cannot be called.
const invalidHost = "invalid"

// target returns the key of the target that the call goes to.
func (c Call) target() targetKey {
	endpoint := Endpoint{}
	switch {
	case c.Post != nil:
		endpoint = c.Post.Endpoint
	case c.Poll != nil:
		endpoint = c.Poll.Endpoint
	}
	key := targetKey{namespace: c.Rule.Ruleset.Namespace, host: invalidHost, trust: sha256.Sum256([]byte(endpoint.CABundle))}
	parsed, err := ParseURL(endpoint.URL)
	if err != nil || len(parsed.Host) > maxHostBytes {
		return key
	}
	key.scheme, key.host = parsed.Scheme, strings.ToLower(parsed.Host)
	if parsed.Port() == "" {
		key.host += ":" + standardPort(parsed.Scheme)
	}
	return key
}

// maxHostBytes bounds a host with its port: the longest name of DNS, and a port.
const maxHostBytes = 260

func standardPort(scheme string) string {
	if scheme == "https" {
		return "443"
	}
	return "80"
}

// target has the calls of a namespace to one host, and their circuit breaker.
type target struct {
	key     targetKey
	tenant  *tenant
	breaker breaker

	// jobs are queued, oldest first; running counts the running jobs.
	jobs    []*job
	running int

	// used is when a call to it last ended.
	used time.Time

	// reserved is the time until which the probe is reserved for a caller of Admit.
	reserved time.Time
}

// open returns the failure of a call that the circuit breaker rejects; nil if the call may be made,
// also as the probe.
func (t *target) open(now time.Time) *Failure {
	if state, wait := t.breaker.state(now); state == stateOpen {
		return t.breakerOpen(wait)
	}
	return nil
}

// reservedProbe returns the failure of a call while the probe is reserved for another call, or nil.
func (t *target) reservedProbe(now time.Time) *Failure {
	if state, _ := t.breaker.state(now); state == stateHalfOpen && now.Before(t.reserved) {
		return t.breakerOpen(t.reserved.Sub(now))
	}
	return nil
}

func (t *target) breakerOpen(wait time.Duration) *Failure {
	failure := fail(ClassBreakerOpen, "circuit breaker open after %d failures in a row, next attempt in %s", t.breaker.failures, wait.Round(time.Second))
	failure.RetryAfter = min(wait, MaxRetryAfter)
	return failure
}

func (t *target) idle() bool { return len(t.jobs) == 0 && t.running == 0 }
