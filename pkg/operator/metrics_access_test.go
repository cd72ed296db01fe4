package operator

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// reviewers answer reviews: the token "valid" is that of the user prometheus.
type reviewers struct {
	authenticationclient.TokenReviewInterface
	allowed func(authorizationv1.SubjectAccessReviewSpec) bool
	failure error
	blocks  bool
	calls   int
}

func (r *reviewers) Create(ctx context.Context, review *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	r.calls++
	if r.blocks {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if review.Spec.Token == "valid" {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "prometheus", Groups: []string{"monitoring"}}}
	}
	return review, r.failure
}

// rights answers SubjectAccessReviews.
type rights struct {
	authorizationclient.SubjectAccessReviewInterface
	*reviewers
}

func (r rights) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	review.Status.Allowed = r.allowed(review.Spec)
	return review, r.failure
}

// handler returns the filter before a handler that answers 200.
func (r *reviewers) handler(t *testing.T) http.Handler {
	t.Helper()
	access := &metricsAccess{tokens: r, access: rights{reviewers: r}, answers: cache.NewLRUExpireCache(maxAccessCached), slots: make(chan struct{}, maxAccessReviews)}
	handler, err := access.filter(testr.New(t), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// get returns the status code of a request for the metrics.
func get(handler http.Handler, authorization string) int {
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Authorization", authorization)
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Code
}

func TestMetricsAccess(t *testing.T) {
	mayRead := func(spec authorizationv1.SubjectAccessReviewSpec) bool {
		what := spec.NonResourceAttributes
		return spec.User == "prometheus" && len(spec.Groups) == 1 && *what == authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"}
	}
	nothing := func(authorizationv1.SubjectAccessReviewSpec) bool { return false }
	for name, tc := range map[string]struct {
		authorization string
		reviewers     reviewers
		want          int
	}{
		"a user with the right":        {"Bearer valid", reviewers{allowed: mayRead}, http.StatusOK},
		"a user without the right":     {"Bearer valid", reviewers{allowed: nothing}, http.StatusForbidden},
		"an unknown token":             {"Bearer other", reviewers{allowed: mayRead}, http.StatusUnauthorized},
		"no token":                     {"", reviewers{allowed: mayRead}, http.StatusUnauthorized},
		"another scheme":               {"Basic valid", reviewers{allowed: mayRead}, http.StatusUnauthorized},
		"an API server that fails":     {"Bearer valid", reviewers{allowed: mayRead, failure: errors.New("etcd has no leader")}, http.StatusInternalServerError},
		"a scheme in small letters":    {"bearer valid", reviewers{allowed: mayRead}, http.StatusOK},
		"an API server without answer": {"Bearer valid", reviewers{allowed: mayRead, blocks: true}, http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := get(tc.reviewers.handler(t), tc.authorization); got != tc.want {
					t.Errorf("got %d, want %d", got, tc.want)
				}
			})
		})
	}
}

// TestMetricsAccessIsCached shows that an answer holds for a minute, and a failure does not.
func TestMetricsAccessIsCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		allowed := true
		r := &reviewers{allowed: func(authorizationv1.SubjectAccessReviewSpec) bool { return allowed }, failure: errors.New("etcd has no leader")}
		handler := r.handler(t)
		get(handler, "Bearer valid")
		r.failure = nil
		if got := get(handler, "Bearer valid"); got != http.StatusOK || r.calls != 2 {
			t.Errorf("got %d after %d reviews, want 200 after a second one", got, r.calls)
		}
		allowed = false
		if got := get(handler, "Bearer valid"); got != http.StatusOK || r.calls != 2 {
			t.Errorf("got %d after %d reviews, want the cached 200", got, r.calls)
		}
		time.Sleep(accessCached + time.Second)
		if got := get(handler, "Bearer valid"); got != http.StatusForbidden {
			t.Errorf("got %d a minute after the right was withdrawn, want 403", got)
		}
	})
}

// TestMetricsAccessIsBounded shows that a flood of tokens causes four reviews at a time.
func TestMetricsAccessIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reviewers{blocks: true}
		access := &metricsAccess{tokens: r, answers: cache.NewLRUExpireCache(maxAccessCached), slots: make(chan struct{}, maxAccessReviews)}
		for range maxAccessReviews {
			access.slots <- struct{}{}
		}
		request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		request.Header.Set("Authorization", "Bearer other")
		began := time.Now()
		status, err := access.status(request)
		if status != http.StatusInternalServerError || err == nil || r.calls > 0 || time.Since(began) != accessTimeout {
			t.Errorf("got %d, %v and %d reviews after %s, want 500 without a review after %s", status, err, r.calls, time.Since(began), accessTimeout)
		}
	})
}
