package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// buffer is the http.ResponseWriter of a response that is sent when it is complete.
type buffer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func newBuffer() *buffer { return &buffer{header: http.Header{}} }

func (b *buffer) Header() http.Header { return b.header }

func (b *buffer) WriteHeader(code int) {
	if b.code == 0 {
		b.code = code
	}
}

func (b *buffer) Write(data []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	return b.body.Write(data)
}

func (b *buffer) Flush() {}

func (b *buffer) response(r *http.Request) *http.Response {
	b.WriteHeader(http.StatusOK)
	return newResponse(r, b.code, b.header, io.NopCloser(bytes.NewReader(b.body.Bytes())), int64(b.body.Len()))
}

// pipe is the http.ResponseWriter of a response that is sent as it is written. Its reader ends the request by closing
// the body.
type pipe struct {
	header  http.Header
	code    int
	reader  *io.PipeReader
	writer  *io.PipeWriter
	cancel  context.CancelFunc
	begin   sync.Once
	started chan struct{}
}

func newPipe(cancel context.CancelFunc) *pipe {
	reader, writer := io.Pipe()
	return &pipe{header: http.Header{}, reader: reader, writer: writer, cancel: cancel, started: make(chan struct{})}
}

func (p *pipe) Header() http.Header { return p.header }

func (p *pipe) WriteHeader(code int) {
	p.begin.Do(func() {
		p.code = code
		close(p.started)
	})
}

func (p *pipe) Write(data []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	return p.writer.Write(data)
}

func (p *pipe) Flush() {}

// CloseNotify never notifies: the context of the request ends instead. The handlers of watches look for the method.
func (p *pipe) CloseNotify() <-chan bool { return nil }

// finish ends the body after what was written.
func (p *pipe) finish() {
	p.WriteHeader(http.StatusOK)
	_ = p.writer.Close()
}

// abort ends a body that is not finished, for both sides.
func (p *pipe) abort(err error) { _ = p.writer.CloseWithError(err) }

// Read reads the body.
func (p *pipe) Read(data []byte) (int, error) { return p.reader.Read(data) }

// Close ends the request.
func (p *pipe) Close() error {
	p.cancel()
	return p.reader.Close()
}

func (p *pipe) response(r *http.Request) *http.Response {
	return newResponse(r, p.code, p.header.Clone(), p, -1)
}

func newResponse(r *http.Request, code int, header http.Header, body io.ReadCloser, length int64) *http.Response {
	return &http.Response{
		Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), StatusCode: code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: body, ContentLength: length, Request: r,
	}
}
