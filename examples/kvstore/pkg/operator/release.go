package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
)

// releaseTimeout bounds a call that releases the external resources of a cluster.
const releaseTimeout = 10 * time.Second

// Release releases the external resources that belong to a deleted cluster, such as a DNS record or a cloud account. It is
// called when nothing else is left, and again until it succeeds: resources that do not exist are released.
type Release func(ctx context.Context, cluster *kvstorev1.KVStoreCluster) error

// errRelativeURL is the error of a URL without a host.
var errRelativeURL = errors.New("the URL of external resources has no host")

// errReleaseStatus is the answer of a service that has not released the resources.
var errReleaseStatus = errors.New("the service of external resources has not released them")

// NewHTTPRelease returns a Release that sends DELETE <base>/<namespace>/<name>/<uid> to a service of the user. The answers 2xx, 404
// and 410 are a success.
func NewHTTPRelease(base string) (Release, error) {
	parsed, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("parsing the URL of external resources: %w", err)
	}
	if parsed.Host == "" {
		return nil, fmt.Errorf("%w: %q", errRelativeURL, base)
	}
	client := &http.Client{Timeout: releaseTimeout}
	return func(ctx context.Context, cluster *kvstorev1.KVStoreCluster) error {
		at := parsed.JoinPath(cluster.Namespace, cluster.Name, string(cluster.UID))
		request, err := http.NewRequestWithContext(ctx, http.MethodDelete, at.String(), nil)
		if err != nil {
			return fmt.Errorf("releasing external resources: %w", err)
		}
		response, err := client.Do(request)
		if err != nil {
			return fmt.Errorf("releasing external resources: %w", err)
		}
		defer func() { _ = response.Body.Close() }()
		switch status := response.StatusCode; {
		case status >= 200 && status < 300, status == http.StatusNotFound, status == http.StatusGone:
			return nil
		default:
			return fmt.Errorf("%w: DELETE %s: %s", errReleaseStatus, at.Redacted(), response.Status)
		}
	}, nil
}
