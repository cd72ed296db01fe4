package load

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/podops-dev/podops/test/traffic/servers"
)

const (
	// ServerHeader is the header of an answer with the name of the server at the load
	// balancer.
	ServerHeader = "X-Server"

	// maxBody bounds how much of a body is read.
	maxBody = 1 << 16
)

// connection sends requests over one connection at a time.
type connection struct {
	kind    Kind
	address string
	timeout time.Duration
	conn    net.Conn // nil: not connected
	reader  *bufio.Reader
}

// send sends one request, once, and reads its answer. It fills the fields of the outcome
// that the answer determines.
func (c *connection) send(path string, o *Outcome) {
	o.Err = c.exchange(path, o)
	if o.Err != nil || c.kind == OneShot {
		c.close()
	}
}

func (c *connection) exchange(path string, o *Outcome) error {
	deadline := time.Now().Add(c.timeout)
	if err := c.dial(deadline); err != nil {
		return err
	}
	keep := ""
	if c.kind == OneShot {
		keep = "Connection: close\r\n"
	}
	if _, err := fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", path, c.address, keep); err != nil {
		return classify(err, false)
	}
	answer, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return classify(err, false)
	}
	defer answer.Body.Close()
	o.Status, o.Pod, o.Server = answer.StatusCode, answer.Header.Get(servers.PodHeader), answer.Header.Get(ServerHeader)
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBody))
	if err != nil {
		return classify(err, true)
	}
	if answer.Close {
		c.close()
	}
	switch {
	case o.Status != http.StatusOK:
		return fmt.Errorf("%w %d", ErrStatus, o.Status)
	case o.Pod == "" || string(body) != servers.Body(o.Pod):
		return fmt.Errorf("%w: %d bytes in the name of pod %q", ErrBody, len(body), o.Pod)
	}
	return nil
}

func (c *connection) dial(deadline time.Time) error {
	if c.conn == nil {
		conn, err := (&net.Dialer{Deadline: deadline}).Dial("tcp", c.address)
		if err != nil {
			return classify(err, false)
		}
		c.conn, c.reader = conn, bufio.NewReader(conn)
	}
	if err := c.conn.SetDeadline(deadline); err != nil {
		return classify(err, false)
	}
	return nil
}

func (c *connection) close() {
	if c.conn != nil {
		_ = c.conn.Close() // nothing more is read from it
		c.conn = nil
	}
}
