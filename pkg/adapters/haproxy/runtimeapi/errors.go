package runtimeapi

import (
	"errors"
	"fmt"
	"strings"
)

// What HAProxy refuses. Match them with errors.Is.
var (
	// ErrNoBackend says that the configuration has no such backend.
	ErrNoBackend = errors.New("HAProxy has no such backend")
	// ErrNoServer says that the backend has no such server: it was removed, or HAProxy
	// was restarted, which forgets what was added at run time.
	ErrNoServer = errors.New("the backend has no such server")
	// ErrExists says that a server of that name is there already.
	ErrExists = errors.New("the backend has a server of that name")
	// ErrBusy says that a server cannot be removed yet. A later try may succeed.
	ErrBusy = errors.New("the server still has connections or is not in maintenance")
	// ErrDenied says that the socket lacks level admin.
	ErrDenied = errors.New("the socket does not allow it: configure it with level admin")
	// ErrRefused is everything else that HAProxy says instead of doing it.
	ErrRefused = errors.New("HAProxy refused")
	// ErrAnswer says that an answer was cut or makes no sense. Nothing may be concluded
	// from it, above all not that a server is gone.
	ErrAnswer = errors.New("the answer of HAProxy is incomplete or cannot be read")
)

// refusal names the text of an answer that is not the one of success. The words are those
// of HAProxy 2.6 to 3.2.
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
