package webhookclient

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

// Timeouts bound the steps of a call. Zero values select the defaults.
type Timeouts struct {
	// Connect bounds resolving and connecting, and separately the TLS handshake. Default: 3 s.
	Connect time.Duration

	// Header bounds the time from the request to the end of the answer's headers.
	// Default: 10 s.
	Header time.Duration

	// Try bounds one try, its body included. Default: 12 s.
	Try time.Duration

	// Total bounds a call with all of its tries. Default: 25 s.
	Total time.Duration

	// Wait is the longest Retry-After that a call itself waits for. The caller handles a longer
	// delay, because a waiting call occupies a worker. Default: 3 s.
	Wait time.Duration
}

func (t Timeouts) withDefaults() Timeouts {
	set := func(value *time.Duration, standard time.Duration) {
		if *value <= 0 {
			*value = standard
		}
	}
	set(&t.Connect, 3*time.Second)
	set(&t.Header, 10*time.Second)
	set(&t.Try, 12*time.Second)
	set(&t.Total, 25*time.Second)
	set(&t.Wait, 3*time.Second)
	return t
}

// Client makes single calls. It is safe for concurrent use.
type Client struct {
	timeout    Timeouts
	transports *transports
	now        func() time.Time
}

// NewClient returns a client that reaches only the addresses that the guard allows.
func NewClient(guard Guard, timeout Timeouts) *Client {
	timeout = timeout.withDefaults()
	return &Client{timeout: timeout, transports: newTransports(guard, timeout), now: time.Now}
}

// CloseIdle closes the idle connections.
func (c *Client) CloseIdle() { c.transports.clear() }

// Post requests the approval of pods from a service. All tries have the same trace id. A request
// that the service may have received is not repeated, unless the service returned 429 or 503 with
// Retry-After. An error is a *Failure; if its Sent is set, this trace id must not be sent again.
func (c *Client) Post(ctx context.Context, endpoint Endpoint, request PostRequest) (webhooktask.PostAnswer, error) {
	body, err := request.encode()
	if err != nil {
		return webhooktask.PostAnswer{}, err
	}
	target, err := ParseURL(endpoint.URL)
	if err != nil {
		return webhooktask.PostAnswer{}, err
	}
	answer, err := c.call(ctx, endpoint, http.MethodPost, target, body)
	if err != nil {
		return webhooktask.PostAnswer{}, err
	}
	decoded, err := decodePost(answer)
	if err != nil {
		return webhooktask.PostAnswer{}, endpoint.redacted(err)
	}
	decoded.Message = endpoint.shown(decoded.Message)
	return decoded, nil
}

// Poll requests the result of a task; keys are the query parameters that carry its id. An error is
// a *Failure.
func (c *Client) Poll(ctx context.Context, endpoint Endpoint, keys []string, taskID string) (webhooktask.PollAnswer, error) {
	target, err := ParseURL(endpoint.URL)
	if err != nil {
		return webhooktask.PollAnswer{}, err
	}
	answer, err := c.call(ctx, endpoint, http.MethodGet, pollURL(target, keys, taskID), nil)
	if err != nil {
		return webhooktask.PollAnswer{}, err
	}
	decoded, err := decodePoll(answer)
	if err != nil {
		return webhooktask.PollAnswer{}, endpoint.redacted(err)
	}
	decoded.Message = endpoint.shown(decoded.Message)
	return decoded, nil
}

// call sends a request, with all of its tries, and reads the answer.
func (c *Client) call(ctx context.Context, endpoint Endpoint, method string, target *url.URL, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout.Total)
	defer cancel()
	on, err := c.transports.client(endpoint)
	if err != nil {
		return nil, err
	}
	tries := &retry{timeout: c.timeout, now: c.now, random: jitter, repeatable: method == http.MethodGet}
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: tries.gotConnection})
	request, err := newRequest(traced, endpoint, method, target, body)
	if err != nil {
		return nil, err
	}
	response, err := tries.client(on).Do(request) //nolint:bodyclose // discard closes it
	if err != nil {
		return nil, endpoint.redacted(classify(err, tries.sent.Load()))
	}
	defer discard(response.Body)
	answer, err := c.read(response)
	if err != nil {
		return nil, endpoint.redacted(err)
	}
	return answer, nil
}

// newRequest returns a request without unnecessary headers.
func newRequest(ctx context.Context, endpoint Endpoint, method string, target *url.URL, body []byte) (*retryablehttp.Request, error) {
	var content any
	if body != nil {
		content = body
	}
	request, err := retryablehttp.NewRequestWithContext(ctx, method, target.String(), content)
	if err != nil {
		return nil, fail(ClassConfiguration, "the url cannot be called")
	}
	request.Header.Set("User-Agent", "podops")
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if parent := traceParent(ctx); parent != "" {
		request.Header.Set("Traceparent", parent)
	}
	if err := endpoint.identify(request.Request); err != nil {
		return nil, err
	}
	return request, nil
}

// read returns the body of an answer with status 2xx.
func (c *Client) read(response *http.Response) ([]byte, error) {
	if response.StatusCode < 200 || response.StatusCode > 299 {
		failure := fail(ClassHTTPStatus, "the service answers HTTP %d %s", response.StatusCode, http.StatusText(response.StatusCode))
		failure.RetryAfter, _ = retryAfter(response.Header, c.now())
		failure.Sent = true
		return nil, failure
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, MaxAnswerBytes+1))
	if len(body) > MaxAnswerBytes {
		failure := fail(ClassTooLarge, "the answer is larger than %d bytes", MaxAnswerBytes)
		failure.Sent = true
		return nil, failure
	}
	if err != nil {
		return nil, classify(err, true)
	}
	return body, nil
}

// discard reads the rest of a short body, so that the connection can be reused, and closes the
// body. The rest of a long body is not read.
func discard(body io.ReadCloser) {
	const short = 4 << 10
	_, _ = io.CopyN(io.Discard, body, short)
	_ = body.Close()
}
