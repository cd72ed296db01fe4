package pod_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
	"github.com/podops-dev/podops/pkg/webhooks/pod"
	"github.com/podops-dev/podops/test/builders"
)

// evicting returns the review of an eviction of web-0: the object is an Eviction.
func evicting(object string) admission.Request {
	req := request(admissionv1.Create, user, nil, []byte(object))
	req.Namespace, req.Name, req.SubResource = "default", "web-0", "eviction"
	return req
}

func budget(name, app string) client.Object {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}
}

func TestEvictionDeferrer(t *testing.T) {
	const plain = `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"web-0","namespace":"default"}}`
	with := func(options string) string {
		return strings.TrimSuffix(plain, "}") + `,"deleteOptions":` + options + "}"
	}
	web := func() *builders.PodBuilder { return owned().Label("app", "web") }
	held := deferrals{"web-0-uid Eviction Evictor"}
	for name, tc := range map[string]struct {
		pod          *corev1.Pod // nil: the cache does not have it
		budgets      []client.Object
		object       string
		wantDeferred bool
		want         deferrals
	}{
		"a pod that serves is held":                   {pod: web().Obj(), object: plain, wantDeferred: true, want: held},
		"an older version of the API is the same":     {pod: web().Obj(), object: strings.Replace(plain, "policy/v1", "policy/v1beta1", 1), wantDeferred: true, want: held},
		"a dry run is held and not passed on":         {pod: web().Obj(), object: with(`{"dryRun":["All"]}`), wantDeferred: true},
		"no grace is still an eviction":               {pod: web().Obj(), object: with(`{"gracePeriodSeconds":0}`), wantDeferred: true, want: held},
		"one PodDisruptionBudget":                     {pod: web().Obj(), budgets: []client.Object{budget("a", "web"), budget("b", "db")}, object: plain, wantDeferred: true, want: held},
		"with two, the API server rejects it":         {pod: web().Obj(), budgets: []client.Object{budget("a", "web"), budget("b", "web")}, object: plain},
		"with another UID, the API server rejects it": {pod: web().Obj(), object: with(`{"preconditions":{"uid":"earlier"}}`)},
		"a pod that may be operated on passes":        {pod: web().Allowed("pod-delete", "delete").Obj(), object: plain},
		"a pod that has succeeded passes":             {pod: web().Phase(corev1.PodSucceeded).Obj(), object: plain},
		"a pod that is not under PodOps passes":       {object: plain},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append(tc.budgets, newSet(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
			if tc.pod != nil {
				objects = append(objects, tc.pod)
			}
			reader := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).Build()
			var got deferrals
			response := pod.NewEvictionDeferrer(deferConfig(t, reader, reader, &got, waits())).Handle(clientauth.WithVerified(t.Context(), true), evicting(tc.object))
			if response.Allowed == tc.wantDeferred {
				t.Fatalf("got %+v", visibleOf(response))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("deferrals (-want +got):\n%s", diff)
			}
			if !tc.wantDeferred {
				return
			}
			details := response.Result.Details // nil for a dry run
			if response.Result.Code != http.StatusTooManyRequests || details != nil && details.RetryAfterSeconds != 0 {
				t.Errorf("got %+v, want 429 without a delay: kubectl drain retries every 5 s", response.Result)
			}
		})
	}
}

// TestAnEvictionOfAPodThatTheCacheDoesNotHave shows that a cache that is behind lets no pod pass, and that a
// flood of forged reviews reads nothing from the API server.
func TestAnEvictionOfAPodThatTheCacheDoesNotHave(t *testing.T) {
	unavailable := errors.New("the API server is unavailable")
	for name, tc := range map[string]struct {
		stored     *corev1.Pod // nil: it does not exist
		err        error
		unverified bool
		wantReads  int
		wantHeld   bool
		wantPassed bool // to the Deferrer
	}{
		"a controlled pod is held":                  {stored: owned().Obj(), wantReads: 1, wantHeld: true, wantPassed: true},
		"a pod that does not exist passes":          {wantReads: 1},
		"a pod that is not controlled passes":       {stored: owned().Uncontrolled().Obj(), wantReads: 1},
		"a pod that cannot be read passes":          {stored: owned().Obj(), err: unavailable, wantReads: 1},
		"a review that anyone may have sent passes": {stored: owned().Obj(), unverified: true},
	} {
		t.Run(name, func(t *testing.T) {
			others := []client.Object{newSet(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}}
			cached := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(others...).Build()
			if tc.stored != nil {
				others = append(others, tc.stored)
			}
			reads := 0
			server := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(others...).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					reads++
					if tc.err != nil {
						return tc.err
					}
					return c.Get(ctx, key, object, options...)
				},
			}).Build()
			var got deferrals
			ctx := clientauth.WithVerified(t.Context(), !tc.unverified)
			response := pod.NewEvictionDeferrer(deferConfig(t, cached, server, &got, waits())).Handle(ctx, evicting(`{}`))
			if response.Allowed == tc.wantHeld || tc.wantHeld && response.Result.Code != http.StatusTooManyRequests {
				t.Errorf("got %+v", visibleOf(response))
			}
			if reads != tc.wantReads || (len(got) > 0) != tc.wantPassed {
				t.Errorf("%d reads of the API server, deferrals %v", reads, got)
			}
		})
	}
}

// TestAnEvictionOfAPodThatIsReleased shows that a cache that is behind lets no pod pass that its owner, which is gone, has left behind.
func TestAnEvictionOfAPodThatIsReleased(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	released := owned().Obj()
	released.OwnerReferences = nil
	for name, tc := range map[string]struct {
		stored   *corev1.Pod // nil: it cannot be read
		wantHeld bool
	}{
		"released":                           {stored: released, wantHeld: true},
		"with its owner: it is deleted next": {stored: owned().Obj()},
		"a pod that cannot be read":          {wantHeld: true},
	} {
		t.Run(name, func(t *testing.T) {
			cached := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(owned().Obj(), namespace).Build()
			server := fake.NewClientBuilder().WithScheme(scheme(t)).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					if _, isPod := object.(*corev1.Pod); isPod && tc.stored == nil {
						return errors.New("the API server is unavailable")
					}
					return c.Get(ctx, key, object, options...)
				},
			})
			if tc.stored != nil {
				server = server.WithObjects(tc.stored)
			}
			deferrer := pod.NewEvictionDeferrer(deferConfig(t, cached, server.Build(), &deferrals{}, waits()))
			response := deferrer.Handle(clientauth.WithVerified(t.Context(), true), evicting(`{}`))
			if response.Allowed == tc.wantHeld || tc.wantHeld && response.Result.Code != http.StatusTooManyRequests {
				t.Errorf("got %+v", visibleOf(response))
			}
		})
	}
}

func TestEvictionDeferrerWithoutACache(t *testing.T) {
	reader := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(owned().Obj(), newSet()).WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("not synced")
		},
	}).Build()
	deferrer := pod.NewEvictionDeferrer(deferConfig(t, reader, reader, &deferrals{}, waits()))
	if response := deferrer.Handle(t.Context(), evicting(`{}`)); response.Allowed {
		t.Error("an eviction passes while the budgets are not known")
	}
	if response := deferrer.Handle(t.Context(), evicting(`{`)); response.Allowed || response.Result.Code != http.StatusBadRequest {
		t.Errorf("got %+v for an object that is no JSON, want 400", response.Result)
	}
}
