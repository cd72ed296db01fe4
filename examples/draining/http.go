package draining

import (
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// drainHTTP returns the handler of the drain endpoint of a server, to be served on a port of its own. While it is called, the
// answers of the server end their connections.
func drainHTTP(server *http.Server) http.Handler {
	var connections, drainsUntil atomic.Int64
	server.ConnState = func(_ net.Conn, state http.ConnState) {
		connections.Add(map[http.ConnState]int64{http.StateNew: 1, http.StateClosed: -1}[state])
	}
	next := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if time.Now().UnixNano() < drainsUntil.Load() {
			w.Header().Set("Connection", "close") // and GOAWAY with HTTP/2
		}
		next.ServeHTTP(w, r)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		drainsUntil.Store(time.Now().Add(10 * time.Second).UnixNano())
		if connections.Load() > 0 {
			w.WriteHeader(http.StatusAccepted)
		}
	})
}

// Serve runs a server on a listener, and its drain endpoint on another, until one of them fails. Then it closes both.
func Serve(server *http.Server, on, drainOn net.Listener) error {
	drain := &http.Server{Handler: drainHTTP(server), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 2)
	go func() { failed <- server.Serve(on) }()
	go func() { failed <- drain.Serve(drainOn) }()
	defer server.Close()
	defer drain.Close()
	return <-failed
}
