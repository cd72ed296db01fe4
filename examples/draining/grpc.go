package draining

import (
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
)

// serveGRPC serves on listeners until that fails. It returns the handler of the drain endpoint at once: a call ends the
// server gracefully, and the next server begins once that has ended.
func serveGRPC(listen func() (net.Listener, error), newServer func() *grpc.Server) (drain http.Handler, failed <-chan error) {
	var current atomic.Pointer[grpc.Server]
	current.Store(newServer())
	errs := make(chan error, 1)
	go func() {
		for {
			listener, err := listen()
			if err == nil {
				err = current.Load().Serve(listener) // which returns nil after GracefulStop
			}
			if err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				errs <- err
				return
			}
			current.Store(newServer())
		}
	}()
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		stopped := make(chan struct{})
		go func() { defer close(stopped); current.Load().GracefulStop() }()
		select {
		case <-stopped:
		case <-time.After(time.Second):
			w.WriteHeader(http.StatusAccepted) // a call is left
		}
	}), errs
}
