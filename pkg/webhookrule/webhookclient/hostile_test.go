package webhookclient

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// byHand serves a connection with a function, after a request was read.
func byHand(t *testing.T, write func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				_, _ = connection.Read(make([]byte, 64<<10))
				write(connection)
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

// drip writes one byte at a time until the client closes the connection.
func drip(connection net.Conn, text string) {
	for i := 0; ; i++ {
		if _, err := io.WriteString(connection, text[i%len(text):i%len(text)+1]); err != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestASlowAnswerEndsAtTheDeadline(t *testing.T) {
	for name, write := range map[string]func(net.Conn){
		"sends nothing":              func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) },
		"headers, a byte at a time":  func(c net.Conn) { drip(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 1<<20)) },
		"a body, a byte at a time":   func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); drip(c, " ") },
		"an error, a byte at a time": func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 500 No\r\n\r\n"); drip(c, " ") },
		"endless interim answers":    func(c net.Conn) { drip(c, "HTTP/1.1 103 Early Hints\r\n\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tries := atomic.Int32{}
			_, err := post(t, short(), Endpoint{URL: byHand(t, func(c net.Conn) {
				tries.Add(1)
				write(c)
			})})
			if name == "an error, a byte at a time" {
				wantClass(t, err, ClassHTTPStatus)
			} else {
				wantClass(t, err, ClassTimeout)
			}
			// It ends, and the service received the request.
			if tries.Load() != 1 {
				t.Errorf("%d tries, want 1", tries.Load())
			}
		})
	}
}

func TestHeadersHaveADeadlineOfTheirOwn(t *testing.T) {
	begin := time.Now()
	url := byHand(t, func(c net.Conn) { drip(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 1<<20)) })
	_, err := post(t, Timeouts{Header: 100 * time.Millisecond}, Endpoint{URL: url})
	wantClass(t, err, ClassTimeout)
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestHeadersThatNeverEnd(t *testing.T) {
	for name, head := range map[string]string{
		"of the answer":            "HTTP/1.1 200 OK\r\n",
		"of endless early answers": "HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			url := byHand(t, func(c net.Conn) {
				text := head
				for {
					if _, err := io.WriteString(c, text); err != nil {
						return
					}
					if name == "of the answer" {
						text = "X-Header: " + strings.Repeat("x", 1000) + "\r\n"
					}
				}
			})
			_, err := post(t, Timeouts{}, Endpoint{URL: url})
			if failure := wantFailure(t, err, ClassTooLarge); !failure.Sent {
				t.Error("the failure counts as not sent")
			}
		})
	}
}

// endless writes without end.
func endless(sent *atomic.Int64, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		chunk := bytes.Repeat([]byte(" "), 64<<10)
		for sent.Load() < 10<<30 {
			written, err := w.Write(chunk)
			sent.Add(int64(written))
			if err != nil {
				return
			}
		}
	}
}

func TestABodyOf10GiBIsCutAndMemoryIsFlat(t *testing.T) {
	for status, class := range map[int]Class{http.StatusOK: ClassTooLarge, http.StatusBadRequest: ClassHTTPStatus} {
		var sent atomic.Int64
		s := serve(t, endless(&sent, status))
		client := NewClient(local(), Timeouts{})
		before := allocated()
		const calls = 20
		for range calls {
			_, err := client.Poll(t.Context(), Endpoint{URL: s.URL}, []string{"task-id"}, "7")
			wantClass(t, err, class)
		}
		client.CloseIdle()
		// Buffers of the sockets are added to the bytes that are read.
		if perCall := sent.Load() / calls; perCall > 16<<20 {
			t.Errorf("HTTP %d: %d bytes were sent per call", status, perCall)
		}
		if grown := allocated() - before; grown > 8<<20 {
			t.Errorf("HTTP %d: the heap grew by %d bytes", status, grown)
		}
	}
}

// allocated returns the live heap.
func allocated() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func TestAnAnswerOfExactlyTheLimitIsRead(t *testing.T) {
	body := `{"success":true}`
	s := serve(t, answer(body+strings.Repeat(" ", MaxAnswerBytes-len(body))))
	if got, err := post(t, Timeouts{}, Endpoint{URL: s.URL}); err != nil || !got.Success {
		t.Errorf("%+v, %v", got, err)
	}
	s = serve(t, answer(body+strings.Repeat(" ", MaxAnswerBytes-len(body)+1)))
	_, err := post(t, Timeouts{}, Endpoint{URL: s.URL})
	wantClass(t, err, ClassTooLarge)
}

func TestCompressedAnswersAreNotUnpacked(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			t.Errorf("compression is requested: %s", r.Header.Get("Accept-Encoding"))
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write([]byte{0x1f, 0x8b, 8, 0})
	})
	_, err := post(t, Timeouts{}, Endpoint{URL: s.URL})
	wantClass(t, err, ClassBadResponse)
}
