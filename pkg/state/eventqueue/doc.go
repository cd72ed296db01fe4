// Package eventqueue sends events to the API server without delaying anything else: the
// events that controllers record are bounded in number and bytes, shared fairly between
// namespaces, and sent by one worker.
//
//	Eventf ── backlog ── worker ── create, or patch of a series
//	          per namespace: a rate, a share, the newest of each series
//
// client-go's broadcaster of events.k8s.io starts a goroutine for each event and keeps
// each series for six minutes without a bound, which 100 waiting pods under 960 rules turn
// into gigabytes. The broadcaster of core/v1 bounds both, but lets one namespace fill its
// queue.
//
// Events are written as core/v1: their series contain the newest message, and the time by
// which kubectl sorts.
package eventqueue
