package webhookclient

import (
	"net/http"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRetryAfterIsCapped(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"7":                              7 * time.Second,
		" 7 ":                            7 * time.Second,
		"300":                            5 * time.Minute,
		"301":                            MaxRetryAfter,
		"999999999":                      MaxRetryAfter,
		"9223372036854775807":            MaxRetryAfter,
		"9223372036854775808":            MaxRetryAfter,
		"99999999999999999999999999":     MaxRetryAfter,
		"Fri, 02 Jan 2026 03:04:15 GMT":  10 * time.Second,
		"Friday, 02-Jan-26 03:04:15 GMT": 10 * time.Second,
		"Fri Jan  2 03:04:15 2026":       10 * time.Second,
		"Fri, 31 Dec 9999 23:59:59 GMT":  MaxRetryAfter,
	} {
		if got, has := retryAfter(http.Header{"Retry-After": {value}}, now); !has || got != want {
			t.Errorf("%q: %v (%v), want %v", value, got, has, want)
		}
	}
	for _, value := range []string{"", "-1", "1.5", "soon", "0x10", "Fri, 02 Jan 2026 03:04:05 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 99999 23:59:59 GMT"} {
		if got, has := retryAfter(http.Header{"Retry-After": {value}}, now); has || got != 0 {
			t.Errorf("%q: %v, want none", value, got)
		}
	}
}

func TestRetryAfterIsAlwaysBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.String(), rapid.StringMatching(`-?[0-9]{1,40}`)).Draw(t, "value")
		if got, _ := retryAfter(http.Header{"Retry-After": {value}}, time.Now()); got < 0 || got > MaxRetryAfter {
			t.Errorf("%q: %v", value, got)
		}
	})
}

func TestBackoffGrowsAndSpreads(t *testing.T) {
	for tries, want := range map[int]time.Duration{1: 200 * time.Millisecond, 2: 400 * time.Millisecond, 100: 3200 * time.Millisecond} {
		if least, most := retryDelay(tries, 0), retryDelay(tries, 1); least != want/2 || most != want {
			t.Errorf("after %d tries: from %v to %v, want %v to %v", tries, least, most, want/2, want)
		}
	}
}
