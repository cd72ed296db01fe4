package node

import (
	"context"
	"io"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// logger returns the logger of raft, which writes its warnings and errors to log. Other
// lines repeat the logs of the member.
func logger(to *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Warn, Output: io.Discard})
	l.RegisterSink(sink{to})
	return l
}

type sink struct{ to *slog.Logger }

// Accept writes one line.
func (s sink) Accept(name string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelWarn
	switch {
	case level < hclog.Warn:
		return
	case level >= hclog.Error:
		to = slog.LevelError
	}
	s.to.Log(context.Background(), to, strings.TrimSpace(msg), append([]any{"component", name}, args...)...)
}
