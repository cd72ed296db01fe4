package opa

import (
	"errors"
	"strings"
	"syscall"
	// Rules name time zones when they read clocks and calendars. The image of the manager may have
	// no database of time zones, and every zone would be unknown.
	_ "time/tzdata"

	"github.com/open-policy-agent/opa/v1/topdown"
)

// zoneError returns the error of an evaluation. A worker may open no file, and package time looks for a zone that it does not know in
// files: the error would be about those.
func zoneError(err error) error {
	failed := (*topdown.Error)(nil)
	if !errors.As(err, &failed) {
		return err
	}
	builtin, ok := strings.CutSuffix(failed.Message, ": "+syscall.EMFILE.Error())
	if ok && strings.HasPrefix(builtin, "time.") {
		failed.Message = builtin + ": unknown time zone"
	}
	return err
}
