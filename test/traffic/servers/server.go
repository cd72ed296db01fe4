package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/podops-dev/podops/examples/draining"
)

const (
	// PodHeader is the header of an answer with the name of the pod that gave it.
	PodHeader = "X-Pod"

	// WorkParameter is the query parameter for the duration of the answer: "?work=250ms".
	// The first half of the body is sent at once and the second half after that time, so
	// that a client notices when it is cut off in between.
	WorkParameter = "work"

	// maxWork bounds the work of a request.
	maxWork = 30 * time.Second

	headerTimeout = 10 * time.Second
)

// Body returns the answer of the pod of that name.
func Body(pod string) string { return "hello from " + pod + "\n" }

// server is a process that listens on the address of a pod.
type server struct {
	listener net.Listener
	ended    chan struct{} // closed when it no longer listens
}

// listen starts a server that answers with the pod's name, and its drain endpoint. It returns an error when it
// cannot listen: an address is taken, or not one of this machine.
func listen(pod, address, drainAddress string) (*server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for pod %s: %w", pod, err)
	}
	drain, err := net.Listen("tcp", drainAddress)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listening for pod %s: %w", pod, err), listener.Close())
	}
	s := &server{listener: listener, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		web := &http.Server{
			Handler: answer(pod), ReadHeaderTimeout: headerTimeout,
			// Health checks of load balancers disconnect, which is not logged.
			ErrorLog: log.New(io.Discard, "", 0),
		}
		_ = draining.Serve(web, listener, drain) // it always ends with an error, and only through kill
	}()
	return s, nil
}

// kill closes the listeners and every connection, and returns when the addresses are free.
func (s *server) kill() error {
	err := s.listener.Close()
	<-s.ended
	if err != nil {
		return fmt.Errorf("closing connections: %w", err)
	}
	return nil
}

var errWork = errors.New("work is a duration between 0s and 30s, as in ?work=250ms")

func answer(pod string) http.Handler {
	body := Body(pod)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		work, err := workOf(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set(PodHeader, pod)
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		if work == 0 {
			_, _ = io.WriteString(w, body) // the client may have disconnected
			return
		}
		_, _ = io.WriteString(w, body[:len(body)/2])
		_ = http.NewResponseController(w).Flush() // bytes that cannot be sent now are sent at the end
		if wait(r.Context(), work) {
			_, _ = io.WriteString(w, body[len(body)/2:])
		}
	})
}

func workOf(r *http.Request) (time.Duration, error) {
	text := r.URL.Query().Get(WorkParameter)
	if text == "" {
		return 0, nil
	}
	work, err := time.ParseDuration(text)
	if err != nil || work < 0 || work > maxWork {
		return 0, fmt.Errorf("%w, not %q", errWork, text)
	}
	return work, nil
}

// wait reports whether the time has passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
