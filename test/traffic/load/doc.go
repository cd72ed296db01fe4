// Package load sends requests at a constant rate and with constant concurrency, and
// counts what becomes of every one of them.
//
// It hides nothing. A request is sent once: the client of the standard library repeats a
// GET whose connection broke, and so loses the very failures that are to be counted. A
// request has succeeded when the whole body that a pod answers has come, with status 200.
// At a rate, latency runs from the moment a request was due: a server that stalls delays
// the requests behind it, and those count as well.
package load
