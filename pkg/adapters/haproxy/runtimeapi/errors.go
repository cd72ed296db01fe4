package runtimeapi

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of HAProxy. Match them with errors.Is.
var (
	// ErrNoBackend means that the configuration has no such backend.
	ErrNoBackend = errors.New("HAProxy has no such backend")
	// ErrNoServer means that the backend has no such server: it was removed, or HAProxy was
	// restarted, which drops servers that were added at run time.
	ErrNoServer = errors.New("the backend has no such server")
	// ErrExists means that the backend has a server of that name already.
	ErrExists = errors.New("the backend has a server of that name")
	// ErrBusy means that a server cannot be removed yet. A later try may succeed.
	ErrBusy = errors.New("the server still has connections or is not in maintenance")
	// ErrDenied means that the socket lacks level admin.
	ErrDenied = errors.New("the socket does not allow it: configure it with level admin")
	// ErrRefused is every other error message of HAProxy.
	ErrRefused = errors.New("HAProxy returned an error")
	// ErrAnswer means that an answer was truncated or cannot be parsed. It supports no
	// conclusion, in particular not that a server was removed.
	ErrAnswer = errors.New("the answer of HAProxy is incomplete or cannot be read")
)

// refusal returns the error of an answer that does not report success. The texts are from HAProxy
// 2.6 to 3.2.
func refusal(command, answer string) error {
	kinds := []struct {
		text string
		kind error
	}{
		{"No such backend", ErrNoBackend},
		{"Can't find backend", ErrNoBackend},
		{"No such proxy", ErrNoBackend},
		{"No such server", ErrNoServer},
		{"Already exists", ErrExists},
		{"still has connections", ErrBusy},
		{"in maintenance mode can be deleted", ErrBusy},
		{"Permission denied", ErrDenied},
	}
	kind := ErrRefused
	for _, entry := range kinds {
		if strings.Contains(answer, entry.text) {
			kind = entry.kind
			break
		}
	}
	return fmt.Errorf("%w: %q was answered with %q", kind, command, clip(answer))
}
