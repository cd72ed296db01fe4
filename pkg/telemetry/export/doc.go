// Package export sends spans to an OTLP receiver over HTTP. No caller waits for it: spans wait in a queue that is
// bounded and shared between namespaces, and are dropped and counted beyond that.
package export
