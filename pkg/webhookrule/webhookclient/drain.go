package webhookclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/podops-dev/podops/pkg/core/lifecycle"
)

// drainTimeout bounds a call of a drain endpoint, and drainConnect its connection.
const drainTimeout, drainConnect = 3 * time.Second, time.Second

// DrainClient calls drain endpoints of pods. It follows no redirect, sends nothing of the cluster, and reads the status of an
// answer alone. It is safe for concurrent use.
type DrainClient struct {
	client *http.Client
}

// NewDrainClient returns a client that reaches only the addresses that the guard allows.
func NewDrainClient(guard Guard) DrainClient {
	client := newTransports(guard, Timeouts{Connect: drainConnect, Header: drainTimeout, Try: drainTimeout}).make(nil)
	// A connection that stays open would be left at a server that counts its connections.
	client.Transport.(refuseRedirects).DisableKeepAlives = true
	return DrainClient{client: client}
}

// Drain sends one POST to the drain endpoint of a pod with this address. It reports whether no connection is left: the answer
// is 200 or 204. Otherwise answer is what the endpoint does, as in "answers 202": one of few texts, because they are
// written to the pod.
func (c DrainClient) Drain(ctx context.Context, address string, endpoint lifecycle.DrainEndpoint) (drained bool, answer string) {
	target := url.URL{Scheme: "http", Host: net.JoinHostPort(address, strconv.Itoa(int(endpoint.Port))), Path: endpoint.Path}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), nil)
	if err != nil {
		return false, "has an address that cannot be called"
	}
	response, err := c.client.Do(request)
	if err != nil {
		failure, is := errors.AsType[*Failure](err)
		switch {
		case is && failure.Class == ClassAddressForbidden:
			return false, "has an address that may not be called: " + failure.Message
		case is && failure.Class == ClassRedirectRefused:
			return false, "redirects, which PodOps does not follow"
		default:
			return false, "cannot be reached"
		}
	}
	defer response.Body.Close() // which ends the connection: the body is not read
	drained = response.StatusCode == http.StatusOK || response.StatusCode == http.StatusNoContent
	return drained, fmt.Sprintf("answers %d", response.StatusCode)
}
