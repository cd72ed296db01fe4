// Package load sends requests at a constant rate and with constant concurrency, and counts
// the outcome of each.
//
// It hides no failure. A request is sent once: the client of the standard library retries a
// GET whose connection broke, and so hides failures that must be counted. A request
// succeeds when the whole body of a pod arrives with status 200. At a rate, latency runs
// from the time at which a request was due: a server that stalls delays the requests behind
// it, and these delays count as well.
package load
