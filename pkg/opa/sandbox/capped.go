package sandbox

import (
	"bytes"
	"errors"
)

var errCut = errors.New("more output than allowed")

// capped is a buffer that takes no more than most bytes. It embeds none: io.Copy would find
// bytes.Buffer.ReadFrom, which takes everything.
type capped struct {
	most int

	// kept is what was written, cut: whether there was more.
	kept []byte
	cut  bool
}

// Write keeps what fits. The error makes the pipe close, and a child that goes on writing end.
func (c *capped) Write(data []byte) (int, error) {
	room := min(len(data), c.most-len(c.kept))
	c.kept = append(c.kept, data[:room]...)
	if room < len(data) {
		c.cut = true
		return room, errCut
	}
	return room, nil
}

// firstLine of what was written, without its end.
func (c *capped) firstLine() string {
	line, _, _ := bytes.Cut(c.kept, []byte("\n"))
	return string(line)
}
