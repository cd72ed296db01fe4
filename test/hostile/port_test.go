package hostile_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
)

// intruder is an address that no API server has.
const intruder = "127.0.0.99"

var _ = Describe("The webhook port", Ordered, ContinueOnFailure, func() {
	BeforeEach(func(ctx context.Context) { attacked.restart(ctx) })

	It("withstands requests whose bodies never end", func(ctx context.Context) {
		attacked.survives(ctx, "half-sent-bodies")
	})

	It("withstands a flood of TLS handshakes", func(ctx context.Context) {
		attacked.survives(ctx, "handshakes")
	})

	It("withstands a flood of forged reviews", func(ctx context.Context) {
		attacked.survives(ctx, "forged-reviews")
	})
})

// dialer connects from the intruder's address.
func dialer() *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(intruder)}, Timeout: 5 * time.Second}
}

// anyServer verifies no certificate: an intruder accepts every server.
func anyServer() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true} //nolint:gosec // See above.
}

// sendHalfBodies keeps 300 connections open on which a part of a review was sent.
func (a *attacker) sendHalfBodies(ctx context.Context) error {
	body := strings.Repeat("x", 2<<20)
	return a.inParallel(ctx, 300, func(ctx context.Context, _ int) error {
		connection, err := tls.DialWithDialer(dialer(), "tcp", a.Webhook, anyServer())
		if err != nil {
			pause(ctx)
			return nil
		}
		defer connection.Close()
		a.sent.Add(1)
		_ = connection.SetDeadline(time.Now().Add(attackTime))
		_, _ = fmt.Fprintf(connection, "POST /mutate-v1-pod HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", 6<<20, body)
		held := make(chan struct{})
		go func() {
			defer close(held)
			_, _ = connection.Read(make([]byte, 1)) // until the server closes it
		}()
		select {
		case <-held:
		case <-ctx.Done():
		}
		return nil
	})
}

// handshake opens connections, completes their TLS handshakes, and closes them, 50 at a time.
func (a *attacker) handshake(ctx context.Context) error {
	return a.inParallel(ctx, 50, func(ctx context.Context, _ int) error {
		a.sent.Add(1)
		connection, err := tls.DialWithDialer(dialer(), "tcp", a.Webhook, anyServer())
		if err != nil {
			pause(ctx)
			return nil //nolint:nilerr // the server may close a connection; the attack continues
		}
		return connection.Close()
	})
}

// forgeReviews sends reviews as an API server does, 100 at a time. It reads each answer, so that its
// connections are used again: the server limits new connections before it reads a review.
func (a *attacker) forgeReviews(ctx context.Context) error {
	transport := &http.Transport{DialContext: dialer().DialContext, TLSClientConfig: anyServer(), MaxConnsPerHost: 200, MaxIdleConnsPerHost: 200}
	defer transport.CloseIdleConnections()
	sender := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	review := forgedReview()
	return a.inParallel(ctx, 100, func(ctx context.Context, _ int) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+a.Webhook+"/mutate-v1-pod", strings.NewReader(review))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		answer, err := sender.Do(request)
		if err != nil {
			pause(ctx)
			return nil //nolint:nilerr // the server may reject a review; the attack continues
		}
		a.sent.Add(1)
		_, _ = io.Copy(io.Discard, answer.Body) // the server may close a connection; the attack continues
		return answer.Body.Close()
	})
}

// pause bounds the CPU time that a rejected attacker uses.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
}

// forgedReview returns a review of a large pod of the neighbour.
func forgedReview() string {
	return fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE",`+
		`"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"namespace":%q,"userInfo":{"username":"system:admin"},`+
		`"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","namespace":%q,"annotations":{"large":%q},"labels":{"kusionstack.io/control":"true"}},"spec":{"containers":[{"name":"a","image":"b"}]}}}}`,
		neighbourNamespace, neighbourNamespace, strings.Repeat("y", 100<<10))
}
