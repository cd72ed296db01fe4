package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// backups is a provider that stores the bodies of PUT requests, and can be down. It is safe for concurrent
// use.
type backups struct {
	url    string
	server *http.Server

	mu     sync.Mutex // guards the fields below
	down   bool
	stored map[string]int // bytes by path
}

const headerTimeout = 10 * time.Second

func openBackups() (*backups, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for backups: %w", err)
	}
	b := &backups{url: "http://" + listener.Addr().String(), stored: map[string]int{}}
	b.server = &http.Server{Handler: b, ReadHeaderTimeout: headerTimeout}
	go func() { _ = b.server.Serve(listener) }() // until close
	return b, nil
}

// ServeHTTP stores the body of a PUT.
func (b *backups) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	size, err := io.Copy(io.Discard, r.Body)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case r.Method != http.MethodPut || err != nil:
		http.Error(w, "want a PUT", http.StatusBadRequest)
	case b.down:
		http.Error(w, "the provider is down", http.StatusServiceUnavailable)
	default:
		b.stored[r.URL.Path] = int(size)
	}
}

// setDown changes whether requests fail.
func (b *backups) setDown(down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = down
}

// bytes returns how many backups are stored, and their size.
func (b *backups) bytes() (count, size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.stored {
		size += n
	}
	return len(b.stored), size
}

func (b *backups) close() error {
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	if err := b.server.Shutdown(ctx); err != nil {
		return fmt.Errorf("ending the provider of backups: %w", err)
	}
	return nil
}
