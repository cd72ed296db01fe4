package operator

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	// accessCached is for how long an answer of the API server holds, and maxAccessCached bounds the answers.
	accessCached    = time.Minute
	maxAccessCached = 256

	// maxAccessReviews bounds the reviews at a time: anyone who reaches the port can cause them.
	maxAccessReviews = 4

	// accessTimeout bounds the reviews of one request.
	accessTimeout = 10 * time.Second
)

// metricsAccess admits requests whose bearer token the API server knows (TokenReview), and whose user may
// get the path (SubjectAccessReview). The filter of controller-runtime does the same with the API server's own
// packages, which are a tenth of what the manager links.
type metricsAccess struct {
	tokens  authenticationclient.TokenReviewInterface
	access  authorizationclient.SubjectAccessReviewInterface
	answers *cache.LRUExpireCache // status codes, by the digest of a request
	slots   chan struct{}
}

// newMetricsAccess returns a filter for requests. It implements the FilterProvider of metrics servers.
//
//nolint:forbidigo // The FilterProvider's type names the client, which is the manager's.
func newMetricsAccess(config *rest.Config, httpClient *http.Client) (metricsserver.Filter, error) {
	tokens, err := authenticationclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("making a client of TokenReviews: %w", err)
	}
	access, err := authorizationclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("making a client of SubjectAccessReviews: %w", err)
	}
	m := &metricsAccess{
		tokens: tokens.TokenReviews(), access: access.SubjectAccessReviews(),
		answers: cache.NewLRUExpireCache(maxAccessCached), slots: make(chan struct{}, maxAccessReviews),
	}
	return m.filter, nil
}

// filter implements metricsserver.Filter.
func (m *metricsAccess) filter(log logr.Logger, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		status, err := m.status(req)
		if err != nil {
			log.Error(err, "The access to metrics was not reviewed")
		}
		if status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		next.ServeHTTP(w, req)
	}), nil
}

// status returns the status code for a request: 200, 401 without a valid token, 403 without the right, and 500 with
// an error when the API server gives no answer.
func (m *metricsAccess) status(req *http.Request) (int, error) {
	scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); token == "" || !strings.EqualFold(scheme, "Bearer") {
		return http.StatusUnauthorized, nil
	}
	target := &authorizationv1.NonResourceAttributes{Verb: strings.ToLower(req.Method), Path: req.URL.Path}
	key := sha256.Sum256([]byte(token + " " + target.Verb + " " + target.Path))
	if answer, ok := m.answers.Get(key); ok {
		return answer.(int), nil //nolint:forcetypeassert // of this type only
	}
	ctx, cancel := context.WithTimeout(req.Context(), accessTimeout)
	defer cancel()
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-ctx.Done():
		return http.StatusInternalServerError, fmt.Errorf("%d other requests are reviewed: %w", maxAccessReviews, ctx.Err())
	}
	status, err := m.review(ctx, token, target)
	if err == nil {
		m.answers.Add(key, status, accessCached)
	}
	return status, err
}

// review has the API server review a token and the right of its user.
func (m *metricsAccess) review(ctx context.Context, token string, target *authorizationv1.NonResourceAttributes) (int, error) {
	reviewed, err := m.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return http.StatusInternalServerError, fmt.Errorf("creating a TokenReview: %w", err)
	}
	if !reviewed.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := reviewed.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for name, values := range user.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	right, err := m.access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: target,
	}}, metav1.CreateOptions{})
	if err != nil {
		return http.StatusInternalServerError, fmt.Errorf("creating a SubjectAccessReview for user %s: %w", user.Username, err)
	}
	if !right.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
