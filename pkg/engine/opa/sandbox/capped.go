package sandbox

import (
	"bytes"
	"errors"
)

var errCut = errors.New("more output than allowed")

// capped is a buffer of at most most bytes. It does not embed bytes.Buffer, because io.Copy would
// use its ReadFrom, which has no limit.
type capped struct {
	most int

	// kept are the bytes that fit.
	kept []byte
}

// Write keeps the bytes that fit. The error closes the pipe, which ends a process that continues to
// write.
func (c *capped) Write(data []byte) (int, error) {
	fits := min(len(data), c.most-len(c.kept))
	c.kept = append(c.kept, data[:fits]...)
	if fits < len(data) {
		return fits, errCut
	}
	return fits, nil
}

// firstLine returns the first line of the output, without its end.
func (c *capped) firstLine() string {
	line, _, _ := bytes.Cut(c.kept, []byte("\n"))
	return string(line)
}
