// Package client calls the HTTP API of the key-value store (package api).
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/podops-dev/podops/examples/kvstore/pkg/api"
	"github.com/podops-dev/podops/examples/kvstore/pkg/hosts"
	"github.com/podops-dev/podops/examples/kvstore/pkg/machine"
	"github.com/podops-dev/podops/examples/kvstore/pkg/node"
)

const (
	maxAnswerBytes = 1 << 20
	maxIdlePerHost = 16
	idleTimeout    = 30 * time.Second
)

// Client calls single members. It is safe for concurrent use.
type Client struct {
	resolver hosts.Resolver
	port     int
	http     *http.Client
}

// New returns a Client of members that serve at the port.
func New(resolver hosts.Resolver, port int) *Client {
	transport := &http.Transport{DialContext: resolver.Dial, MaxIdleConnsPerHost: maxIdlePerHost, IdleConnTimeout: idleTimeout}
	return &Client{resolver: resolver, port: port, http: &http.Client{Transport: transport}}
}

// Error is an answer that is not a success.
type Error struct {
	Status  int
	Code    api.Code
	Message string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%d %s: %s", e.Status, e.Code, e.Message) }

// CodeOf returns the code of an Error, and an empty code for other errors.
func CodeOf(err error) api.Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Answer is a success.
type Answer struct {
	Body     []byte
	Revision uint64 // 0: none
	// Member answered. Leader served the request in Term.
	Member, Version, Leader string
	Term                    uint64
}

// Request is a request to one member.
type Request struct {
	Method string
	Path   string // escaped
	Body   []byte
	Header map[string]string
}

// Do sends a request to the member at a host, once. A rejection is an *Error; the Answer then
// names the members that have rejected it.
func (c *Client) Do(ctx context.Context, host string, r Request) (Answer, error) {
	response, err := c.send(ctx, host, r)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return Answer{}, fmt.Errorf("reading the answer of %s: %w", host, err)
	}
	header := response.Header
	a := Answer{Member: header.Get(api.HeaderMember), Version: header.Get(api.HeaderVersion), Leader: header.Get(api.HeaderLeader)}
	a.Revision, _ = strconv.ParseUint(header.Get(api.HeaderRevision), 10, 64) // absent in most answers
	a.Term, _ = strconv.ParseUint(header.Get(api.HeaderTerm), 10, 64)         // absent in most answers
	if response.StatusCode >= http.StatusMultipleChoices {
		return a, rejection(response.StatusCode, body)
	}
	a.Body = body
	return a, nil
}

// send returns the response to a request. The caller closes its body.
func (c *Client) send(ctx context.Context, host string, r Request) (*http.Response, error) {
	address := "http://" + net.JoinHostPort(host, strconv.Itoa(c.port)) + r.Path
	request, err := http.NewRequestWithContext(ctx, r.Method, address, bytes.NewReader(r.Body))
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	for name, value := range r.Header {
		request.Header.Set(name, value)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("calling %s: %w", host, err)
	}
	return response, nil
}

func rejection(status int, body []byte) *Error {
	var rejected api.Error
	if json.Unmarshal(body, &rejected) != nil {
		rejected.Message = string(body)
	}
	return &Error{Status: status, Code: rejected.Code, Message: rejected.Message}
}

// KeyPath returns the path of a key.
func KeyPath(key string) string { return "/kv/" + url.PathEscape(key) }

// Get reads a key. A key that does not exist is an *Error with the code NotFound.
func (c *Client) Get(ctx context.Context, host, key string) (machine.Entry, error) {
	a, err := c.Do(ctx, host, Request{Method: http.MethodGet, Path: KeyPath(key)})
	return machine.Entry{Revision: a.Revision, Value: a.Body}, err
}

// Write applies a command and returns the revision of the key.
func (c *Client) Write(ctx context.Context, host string, command machine.Command) (Answer, error) {
	return c.Do(ctx, host, WriteOf(command))
}

// WriteOf returns the request for a command.
func WriteOf(command machine.Command) Request {
	r := Request{Path: KeyPath(command.Key), Body: command.Value, Header: map[string]string{}}
	switch command.Op {
	case machine.Put:
		r.Method = http.MethodPut
	case machine.Append:
		r.Method = http.MethodPost
	case machine.Delete:
		r.Method = http.MethodDelete
	}
	if command.If != nil {
		r.Header["If-Match"] = strconv.FormatUint(*command.If, 10)
	}
	if command.Client != "" {
		r.Header[api.HeaderClient] = command.Client
		r.Header[api.HeaderSeq] = strconv.FormatUint(command.Seq, 10)
	}
	return r
}

// Status returns the status of a member.
func (c *Client) Status(ctx context.Context, host string) (api.Status, error) {
	var status api.Status
	return status, c.json(ctx, host, Request{Method: http.MethodGet, Path: "/status"}, &status)
}

// TransferLeadership moves leadership away from a member.
func (c *Client) TransferLeadership(ctx context.Context, host string) (api.Transfer, error) {
	var transfer api.Transfer
	return transfer, c.json(ctx, host, Request{Method: http.MethodPost, Path: "/leader/transfer"}, &transfer)
}

// AddMember sends the request of a member to be added, and returns the members.
func (c *Client) AddMember(ctx context.Context, host string, join node.Join) ([]node.Member, error) {
	body, err := json.Marshal(join)
	if err != nil {
		return nil, fmt.Errorf("encoding a request to join: %w", err)
	}
	var members []node.Member
	return members, c.json(ctx, host, Request{Method: http.MethodPost, Path: "/members", Body: body}, &members)
}

// RemoveMember removes a member, and returns the members.
func (c *Client) RemoveMember(ctx context.Context, host, id string) ([]node.Member, error) {
	var members []node.Member
	return members, c.json(ctx, host, Request{Method: http.MethodDelete, Path: "/members/" + url.PathEscape(id)}, &members)
}

// Check returns nil when a probe of a member, e.g. /healthz, succeeds.
func (c *Client) Check(ctx context.Context, host, path string) (Answer, error) {
	return c.Do(ctx, host, Request{Method: http.MethodGet, Path: path})
}

func (c *Client) json(ctx context.Context, host string, r Request, to any) error {
	a, err := c.Do(ctx, host, r)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(a.Body, to); err != nil {
		return fmt.Errorf("decoding the answer of %s: %w", host, err)
	}
	return nil
}

// ErrCutOff means that a backup ended early.
var ErrCutOff = errors.New("the backup is cut off")

// Backup writes a consistent state to w.
func (c *Client) Backup(ctx context.Context, host string, w io.Writer) (int64, error) {
	response, err := c.send(ctx, host, Request{Method: http.MethodGet, Path: "/backup"})
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
		if err != nil {
			return 0, fmt.Errorf("reading the answer of %s: %w", host, err)
		}
		return 0, rejection(response.StatusCode, body)
	}
	size, err := io.Copy(w, response.Body)
	if err != nil {
		return size, fmt.Errorf("%w: %w", ErrCutOff, err)
	}
	if size != response.ContentLength {
		return size, fmt.Errorf("%w: %d of %d bytes", ErrCutOff, size, response.ContentLength)
	}
	return size, nil
}
