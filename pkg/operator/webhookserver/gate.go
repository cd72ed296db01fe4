package webhookserver

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
)

var (
	errEvicted = errors.New("a client that holds less memory needs it")
	errTimeout = errors.New("the review took too long")
)

// gate passes reviews to the handlers, within the limits.
type gate struct {
	next    http.Handler
	limits  Limits
	pending *sharedLedger
	lanes   lanes
	pace    *pace
	metrics *Metrics

	// exempt reports whether a source is not paced; every source is paced when it is nil.
	exempt atomic.Pointer[func(netip.Addr) bool]

	// draining makes every response end its connection, so that the client connects again,
	// to another server.
	draining func() bool

	// buffers are of firstRead bytes, for the bodies of reviews that need most of that.
	buffers sync.Pool // *bytes.Buffer
}

// lanes separate reviews that may take or wait for seconds from reviews that take a millisecond.
type lanes struct {
	fast, slow, waiting *lane
	slowPaths           map[string]bool
	waitingPaths        []string
}

func (l lanes) laneFor(path string) *lane {
	switch {
	case l.slowPaths[path]:
		return l.slow
	case slices.ContainsFunc(l.waitingPaths, func(begin string) bool { return strings.HasPrefix(path, begin) }):
		return l.waiting
	default:
		return l.fast
	}
}

// ServeHTTP reads a review, waits for its turn, and calls its handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.draining() {
		w.Header().Set("Connection", "close")
	}
	verified := r.TLS != nil && len(r.TLS.VerifiedChains) > 0
	c, _ := r.Context().Value(connKey{}).(*conn)
	if c == nil {
		http.Error(w, "no connection", http.StatusInternalServerError)
		return
	}
	if verified {
		c.pin()
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "a review is sent by POST", http.StatusMethodNotAllowed)
		return
	}
	if r.ContentLength > g.limits.ReviewBytes {
		http.Error(w, "the review is larger than "+strconv.FormatInt(g.limits.ReviewBytes, 10)+" bytes", http.StatusRequestEntityTooLarge)
		return
	}
	if err := g.review(w, r, c, verified); err != nil {
		g.refuse(w, err)
		return
	}
	c.used()
}

// review returns an error if no response was written.
func (g *gate) review(w http.ResponseWriter, r *http.Request, c *conn, verified bool) error {
	ctx, cancel := context.WithTimeoutCause(r.Context(), g.limits.requestTimeout(r), errTimeout)
	defer cancel()
	ctx, evict := context.WithCancelCause(ctx)
	defer evict(nil)
	if !verified && !g.isExempt(c.hold.source) {
		if err := g.pace.wait(ctx, c.hold.source, g.requestSize(r)); err != nil {
			return err
		}
	}
	reading := &reading{controller: http.NewResponseController(w)}
	h := &hold{source: c.hold.source, evict: func() {
		evict(errEvicted)
		reading.abort()
	}}
	defer g.pending.close(h)

	body, err := g.read(ctx, w, r, h)
	reading.end()
	if err != nil {
		return err
	}
	lane := g.lanes.laneFor(r.URL.Path)
	if lane != g.lanes.slow { // whose handlers may return before the work that they have begun ends
		defer g.giveBack(body)
	}
	if err := lane.acquire(ctx, c.hold.source); err != nil {
		return err
	}
	defer lane.leave(c.hold.source)
	if !g.pending.pin(h) {
		return errEvicted
	}
	request := r.WithContext(clientauth.WithVerified(ctx, verified))
	request.Body = inMemory{body}
	g.next.ServeHTTP(w, request)
	return nil
}

// inMemory is a body that a handler may read without a copy, by its method Bytes. The bytes are
// overwritten after the handler of a path that is not slow has returned.
type inMemory struct{ *bytes.Buffer }

// Close does nothing.
func (inMemory) Close() error { return nil }

// read reads the body. It reserves the memory of the whole body before the first byte: readers
// that wait for each other's memory would never end. The caller may give the body back.
func (g *gate) read(ctx context.Context, w http.ResponseWriter, r *http.Request, h *hold) (*bytes.Buffer, error) {
	size := g.bufferSize(g.requestSize(r))
	if err := g.pending.grow(ctx, h, size+overheadBytes); err != nil {
		return nil, err
	}
	buffer := g.buffer(size)
	if _, err := buffer.ReadFrom(http.MaxBytesReader(w, r.Body, g.limits.ReviewBytes)); err != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	return buffer, nil
}

// bufferSize returns the memory for a body of a size: firstRead if it needs most of that. A small review gets no large
// buffer, since many small reviews may be read at a time.
func (g *gate) bufferSize(size int64) int64 {
	if needed := size + bytes.MinRead; needed > firstRead/2 && needed <= firstRead && firstRead <= g.limits.ReviewBytes {
		return firstRead
	}
	return size
}

// buffer returns an empty buffer of a size, at most firstRead at first.
func (g *gate) buffer(size int64) *bytes.Buffer {
	if size == firstRead {
		if used, ok := g.buffers.Get().(*bytes.Buffer); ok {
			return used
		}
		return bytes.NewBuffer(make([]byte, 0, firstRead))
	}
	return bytes.NewBuffer(make([]byte, 0, min(size+bytes.MinRead, firstRead)))
}

// giveBack keeps a buffer of firstRead bytes for other reviews. Nothing may use its bytes any more.
func (g *gate) giveBack(buffer *bytes.Buffer) {
	if buffer.Cap() == firstRead {
		buffer.Reset()
		g.buffers.Put(buffer)
	}
}

// connects reports whether a source may open another connection now. Whether it has a certificate is known only
// after the handshake.
func (g *gate) connects(source netip.Addr) bool { return g.isExempt(source) || g.pace.connects(source) }

func (g *gate) isExempt(source netip.Addr) bool {
	exempt := g.exempt.Load()
	return exempt != nil && (*exempt)(source)
}

// requestSize returns the announced bytes of a body, or the maximum when they are not announced.
func (g *gate) requestSize(r *http.Request) int64 {
	if r.ContentLength < 0 {
		return g.limits.ReviewBytes
	}
	return r.ContentLength
}

// reading is a body that is read. Its end and its abort may come at the same moment, and
// a ResponseController must not be used once its request has ended.
type reading struct {
	mu         sync.Mutex
	controller *http.ResponseController
}

// abort ends the read.
func (r *reading) abort() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.controller != nil {
		_ = r.controller.SetReadDeadline(time.Unix(1, 0)) // The connection may be closed.
	}
}

func (r *reading) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.controller = nil
}

// firstRead is the buffer for a body before any of it has arrived: most reviews fit.
const firstRead = 64 << 10

// refuse responds to a review that was not handled. An API server applies the failurePolicy.
func (g *gate) refuse(w http.ResponseWriter, err error) {
	tooLarge := &http.MaxBytesError{}
	reason, code := "read", http.StatusBadRequest
	switch {
	case errors.Is(err, errEvicted):
		reason, code = "evicted", http.StatusServiceUnavailable
	case errors.Is(err, errBusy):
		reason, code = "busy", http.StatusServiceUnavailable
	case errors.Is(err, errTimeout):
		reason, code = "timeout", http.StatusGatewayTimeout
	case errors.As(err, &tooLarge):
		reason, code = "too-large", http.StatusRequestEntityTooLarge
	}
	g.metrics.refused.WithLabelValues(reason).Inc()
	http.Error(w, "the review was not handled: "+reason, code)
}

// requestTimeout returns the timeout of a review: the timeout of its API server, if that is
// less than the limit.
func (l Limits) requestTimeout(r *http.Request) time.Duration {
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || timeout <= 0 {
		return l.ReviewTimeout
	}
	return min(timeout, l.ReviewTimeout)
}
