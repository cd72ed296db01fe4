// Package lazylog has a logger that encodes its values when it writes a line. Every reconcile and
// every admission review makes a logger with values, and few write a line.
package lazylog

import (
	"slices"

	"github.com/go-logr/logr"
)

// New returns a logger that writes the lines of another logger. Lines with one of the debug
// messages are lines of the debug level: libraries that write them do not let their users choose.
func New(log logr.Logger, debug ...string) logr.Logger {
	inner := log.GetSink()
	if inner == nil {
		return log
	}
	if deep, ok := inner.(logr.CallDepthLogSink); ok {
		inner = deep.WithCallDepth(1) // the frame of Info and Error
	}
	return log.WithSink(sink{LogSink: inner, debug: debug})
}

// sink keeps the values of its logger, and the messages that belong to the debug level.
type sink struct {
	logr.LogSink
	values []any
	debug  []string
}

var _ logr.CallDepthLogSink = sink{}

// WithValues returns a sink with more values.
func (s sink) WithValues(values ...any) logr.LogSink {
	s.values = slices.Concat(s.values, values)
	return s
}

// WithName returns a sink with a longer name.
func (s sink) WithName(name string) logr.LogSink {
	s.LogSink = s.LogSink.WithName(name)
	return s
}

// WithCallDepth returns a sink that leaves out frames of its callers.
func (s sink) WithCallDepth(depth int) logr.LogSink {
	if deep, ok := s.LogSink.(logr.CallDepthLogSink); ok {
		s.LogSink = deep.WithCallDepth(depth)
	}
	return s
}

// Info writes a line.
func (s sink) Info(level int, message string, values ...any) {
	if slices.Contains(s.debug, message) {
		if level++; !s.Enabled(level) {
			return
		}
	}
	s.LogSink.Info(level, message, slices.Concat(s.values, values)...)
}

// Error writes a line of an error.
func (s sink) Error(err error, message string, values ...any) {
	s.LogSink.Error(err, message, slices.Concat(s.values, values)...)
}
