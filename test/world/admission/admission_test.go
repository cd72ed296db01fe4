package admission_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/podops-dev/podops/test/world/admission"
	"github.com/podops-dev/podops/test/world/apiserver"
)

// manifests has two mutating webhooks, of which the first is called again, and two validating ones, of which one fails
// open.
const manifests = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: changes}
webhooks:
- name: first.example.com
  admissionReviewVersions: [v1]
  clientConfig: {service: {name: hooks, namespace: system, path: /first}}
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  reinvocationPolicy: IfNeeded
  sideEffects: None
- name: second.example.com
  admissionReviewVersions: [v1]
  clientConfig: {service: {name: hooks, namespace: system, path: /second}}
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  sideEffects: None
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: checks}
webhooks:
- name: deletes.example.com
  admissionReviewVersions: [v1]
  clientConfig: {service: {name: hooks, namespace: system, path: /delete}}
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [pods]}
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods/eviction]}
  namespaceSelector:
    matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}
  matchConditions:
  - {name: no-node, expression: "!('system:nodes' in request.userInfo.groups)"}
  - {name: not-forced, expression: "request.?options.?gracePeriodSeconds.orValue(1) != 0"}
  failurePolicy: Ignore
  sideEffects: None
  timeoutSeconds: 3
- name: updates.example.com
  admissionReviewVersions: [v1]
  clientConfig: {service: {name: hooks, namespace: system, path: /update}}
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [pods]}
  objectSelector: {matchLabels: {held: "true"}}
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: 7
`

// configured returns the configuration of a manifest.
func configured(t *testing.T, manifest string) *admission.Configuration {
	t.Helper()
	c, err := admission.Read(fstest.MapFS{"hooks/all.yaml": {Data: []byte(manifest)}}, "hooks")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// reviewer is a manager that records its reviews. It allows everything, unless answer is set.
type reviewer struct {
	*admission.Server
	answer func(path string, review *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

	mu   sync.Mutex
	seen []string
}

// start returns a reviewer that is ready, until the test ends.
func start(t *testing.T, answer func(string, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) *reviewer {
	t.Helper()
	r := &reviewer{Server: admission.NewServer(), answer: answer}
	for _, path := range []string{"/first", "/second", "/delete", "/update"} {
		r.Register(path, http.HandlerFunc(r.review))
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Start(t.Context())
	}()
	t.Cleanup(func() { <-ended })
	synctest.Wait()
	r.Ready(true)
	return r
}

func (r *reviewer) review(w http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	review := admissionv1.AdmissionReview{}
	if err := json.Unmarshal(body, &review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.seen = append(r.seen, request.URL.Path)
	r.mu.Unlock()
	response := &admissionv1.AdmissionResponse{Allowed: true}
	if r.answer != nil {
		response = r.answer(request.URL.Path, review.Request)
	}
	response.UID = review.Request.UID
	review.Request, review.Response = nil, response
	_ = json.NewEncoder(w).Encode(review)
}

func pod(labels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: labels}}
}

// request returns a request for a pod of a user.
func request(operation admissionv1.Operation, object, old runtime.Object, groups ...string) *apiserver.Request {
	return &apiserver.Request{
		User: authenticationv1.UserInfo{Username: "user", Groups: append(groups, "system:authenticated")}, Operation: operation, Namespace: "default", Name: "web",
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Object: object, OldObject: old, Options: &metav1.DeleteOptions{},
	}
}

func eviction() *apiserver.Request {
	r := request(admissionv1.Create, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}, nil)
	r.Subresource, r.Kind = "eviction", metav1.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}
	return r
}

func TestAWebhookIsCalledForTheRequestsThatItSelects(t *testing.T) {
	held, free := map[string]string{"held": "true"}, map[string]string{}
	now := int64(0)
	forced := request(admissionv1.Delete, nil, pod(free))
	forced.Options = &metav1.DeleteOptions{GracePeriodSeconds: &now}
	system := request(admissionv1.Delete, nil, pod(free))
	system.Namespace = "kube-system"
	status := request(admissionv1.Update, pod(held), pod(held))
	status.Subresource = "status"
	for name, test := range map[string]struct {
		request *apiserver.Request
		want    []string
	}{
		"a rule":                    {request(admissionv1.Delete, nil, pod(free)), []string{"/delete"}},
		"a rule for a subresource":  {eviction(), []string{"/delete"}},
		"no rule for a subresource": {status, nil},
		"a condition on the user":   {request(admissionv1.Delete, nil, pod(free), "system:nodes"), nil},
		"a condition on options":    {forced, nil},
		"a namespace":               {system, nil},
		"the label of both objects": {request(admissionv1.Update, pod(held), pod(held)), []string{"/update"}},
		"the label of the old":      {request(admissionv1.Update, pod(free), pod(held)), []string{"/update"}},
		"the label of the new":      {request(admissionv1.Update, pod(held), pod(free)), []string{"/update"}},
		"no label":                  {request(admissionv1.Update, pod(free), pod(free)), nil},
	} {
		configuration := configured(t, manifests)
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				manager := start(t, nil)
				chain := admission.New(admission.Options{Configuration: configuration, Managers: []*admission.Server{manager.Server}})
				if err := chain.Validate(t.Context(), test.request); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, manager.seen); diff != "" {
					t.Errorf("reviews (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// labelling returns a mutating webhook that counts its calls in a label.
func labelling(path string, review *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	sent := corev1.Pod{}
	_ = json.Unmarshal(review.Object.Raw, &sent)
	operation, value := "add", "1"
	if sent.Labels[path[1:]] != "" {
		operation, value = "replace", sent.Labels[path[1:]]+"1"
	}
	patch, _ := json.Marshal([]map[string]string{{"op": operation, "path": "/metadata/labels" + path, "value": value}})
	kind := admissionv1.PatchTypeJSONPatch
	return &admissionv1.AdmissionResponse{Allowed: true, Patch: patch, PatchType: &kind, Warnings: []string{"labelled"}}
}

func TestMutatingWebhooksPatchTheObject(t *testing.T) {
	configuration := configured(t, manifests)
	synctest.Test(t, func(t *testing.T) {
		manager := start(t, labelling)
		chain := admission.New(admission.Options{Configuration: configuration, Managers: []*admission.Server{manager.Server}})
		sent := pod(map[string]string{"app": "web"})
		r := request(admissionv1.Create, sent, nil)
		if err := chain.Mutate(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		// The first is called again, since the second changed the object.
		if diff := cmp.Diff([]string{"/first", "/second", "/first"}, manager.seen); diff != "" {
			t.Errorf("reviews (-want +got):\n%s", diff)
		}
		got, ok := r.Object.(*corev1.Pod)
		if !ok {
			t.Fatalf("the object is a %T", r.Object)
		}
		if diff := cmp.Diff(map[string]string{"app": "web", "first": "11", "second": "1"}, got.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		if len(sent.Labels) != 1 || len(r.Warnings) != 3 {
			t.Errorf("labels of the object that was sent: %v, warnings: %v", sent.Labels, r.Warnings)
		}
	})
}

// TestAManagerThatDoesNotAnswer shows what a client sees of a manager that has ended, hangs, or is killed.
func TestAManagerThatDoesNotAnswer(t *testing.T) {
	deletes, updates := request(admissionv1.Delete, nil, pod(nil)), request(admissionv1.Update, pod(map[string]string{"held": "true"}), pod(nil))
	slow := func(string, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		time.Sleep(2 * time.Second)
		return &admissionv1.AdmissionResponse{Allowed: true}
	}
	for name, test := range map[string]struct {
		before  func(*reviewer)
		request *apiserver.Request
		took    time.Duration
		failed  string
	}{
		"it is slow":                        {func(*reviewer) {}, updates, 2 * time.Second, ""},
		"it is not ready, fail open":        {func(r *reviewer) { r.Ready(false) }, deletes, 0, ""},
		"it is not ready, fail closed":      {func(r *reviewer) { r.Ready(false) }, updates, 0, "no endpoints available"},
		"it was killed, fail open":          {func(r *reviewer) { r.Kill() }, deletes, 0, ""},
		"it was killed, fail closed":        {func(r *reviewer) { r.Kill() }, updates, 0, "connection refused"},
		"it is killed meanwhile":            {func(r *reviewer) { time.AfterFunc(time.Second, r.Kill) }, updates, time.Second, "connection reset"},
		"it is killed meanwhile, fail open": {func(r *reviewer) { time.AfterFunc(time.Second, r.Kill) }, deletes, time.Second, ""},
		"it hangs, fail open":               {func(r *reviewer) { r.Hang(true) }, deletes, 3 * time.Second, ""},
		"it hangs, fail closed":             {func(r *reviewer) { r.Hang(true) }, updates, 7 * time.Second, "deadline exceeded"},
	} {
		configuration := configured(t, manifests)
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				manager := start(t, slow)
				test.before(manager)
				chain := admission.New(admission.Options{Configuration: configuration, Managers: []*admission.Server{manager.Server}})
				began := time.Now()
				err := chain.Validate(t.Context(), test.request)
				if took := time.Since(began); took != test.took {
					t.Errorf("took %v, want %v", took, test.took)
				}
				if failed := apierrors.IsInternalError(err); failed != (test.failed != "") || failed && !strings.Contains(err.Error(), test.failed) {
					t.Errorf("error %v, want %q", err, test.failed)
				}
			})
		})
	}
}

func TestOneOfTheReadyManagersReviewsARequest(t *testing.T) {
	configuration := configured(t, manifests)
	synctest.Test(t, func(t *testing.T) {
		one, two := start(t, nil), start(t, nil)
		chain := admission.New(admission.Options{Configuration: configuration, Managers: []*admission.Server{one.Server, two.Server}})
		for range 20 {
			if err := chain.Validate(t.Context(), eviction()); err != nil {
				t.Fatal(err)
			}
		}
		if len(one.seen)+len(two.seen) != 20 || len(one.seen) < 4 || len(two.seen) < 4 {
			t.Errorf("%d and %d reviews, want 20, some of each", len(one.seen), len(two.seen))
		}
	})
}

// TestAServerEndsWithItsReviews shows that a server that ends answers what it has begun, and refuses what is new.
func TestAServerEndsWithItsReviews(t *testing.T) {
	configuration := configured(t, manifests)
	synctest.Test(t, func(t *testing.T) {
		manager := &reviewer{Server: admission.NewServer(), answer: func(string, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			time.Sleep(2 * time.Second)
			return &admissionv1.AdmissionResponse{Allowed: true}
		}}
		manager.Register("/update", http.HandlerFunc(manager.review))
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan time.Time, 1)
		began := time.Now()
		go func() { _ = manager.Start(ctx); ended <- time.Now() }()
		synctest.Wait()
		manager.Ready(true)
		chain := admission.New(admission.Options{Configuration: configuration, Managers: []*admission.Server{manager.Server}})
		update := func() error {
			return chain.Validate(t.Context(), request(admissionv1.Update, pod(map[string]string{"held": "true"}), pod(nil)))
		}
		time.AfterFunc(time.Second, end)
		if err := update(); err != nil {
			t.Errorf("the running review: %v", err)
		}
		if at := (<-ended).Sub(began); at != 2*time.Second {
			t.Errorf("ended after %v, want 2s", at)
		}
		if err := update(); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("the next review: %v", err)
		}
	})
}

func TestOthersObject(t *testing.T) {
	configuration := configured(t, manifests)
	scale := &apiserver.Request{
		User: authenticationv1.UserInfo{Username: "bob"}, Operation: admissionv1.Update, Namespace: "default", Name: "web", Subresource: "scale",
		Resource: metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"},
	}
	for name, test := range map[string]struct {
		objection admission.Objection
		request   *apiserver.Request
		want      string
		reviews   []string
		took      time.Duration
	}{
		"a policy, before PodOps": {
			objection: admission.NoScale("scales", "bob"), request: scale,
			want: `replicasets.apps "web" is forbidden: ValidatingAdmissionPolicy 'scales' with binding 'scales' denied request: not allowed here`,
		},
		"a policy about another user": {objection: admission.NoScale("scales", "eve"), request: scale},
		"a webhook, together with PodOps": {
			objection: admission.Hostile("no.example.com", 1, 0, admission.On(admissionv1.Delete, "pods")),
			request:   request(admissionv1.Delete, nil, pod(nil)), reviews: []string{"/delete"}, took: 2 * time.Second,
			want: `admission webhook "no.example.com" denied the request: not allowed here`,
		},
		"a webhook about other requests": {
			objection: admission.Hostile("no.example.com", 1, 0, admission.On(admissionv1.Create, "pods/eviction")),
			request:   request(admissionv1.Delete, nil, pod(nil)), reviews: []string{"/delete"}, took: 2 * time.Second,
		},
		"a quota": {
			objection: admission.Exceeded("small", 1), request: request(admissionv1.Create, pod(nil), nil),
			want: `pods "web" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1`,
		},
		"never": {objection: admission.Exceeded("small", 0), request: request(admissionv1.Create, pod(nil), nil)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				manager := start(t, func(string, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
					time.Sleep(2 * time.Second)
					return &admissionv1.AdmissionResponse{Allowed: true}
				})
				chain := admission.New(admission.Options{
					Configuration: configuration, Managers: []*admission.Server{manager.Server}, Objections: []admission.Objection{test.objection},
				})
				began := time.Now()
				err := chain.Validate(t.Context(), test.request)
				if message := text(err); message != test.want || err != nil && apierrors.ReasonForError(err) != metav1.StatusReasonForbidden {
					t.Errorf("error %q, want %q, forbidden", message, test.want)
				}
				if took := time.Since(began); took != test.took || !slices.Equal(manager.seen, test.reviews) {
					t.Errorf("reviews %q in %v, want %q in %v", manager.seen, took, test.reviews, test.took)
				}
				chain.Quiet()
				if err := chain.Validate(t.Context(), test.request); err != nil {
					t.Errorf("after the objections have ended: %v", err)
				}
			})
		})
	}
}

// TestObjectionsFollowTheSeed shows that a seed decides which requests are denied and for how long they wait.
func TestObjectionsFollowTheSeed(t *testing.T) {
	configuration := configured(t, "")
	decisions := func(t *testing.T, seed uint64) (all []string) {
		synctest.Test(t, func(t *testing.T) {
			chain := admission.New(admission.Options{Configuration: configuration, Seed: seed, Objections: []admission.Objection{
				admission.Hostile("some.example.com", 0.5, time.Second, admission.On(admissionv1.Delete, "pods")),
			}})
			for range 20 {
				began := time.Now()
				err := chain.Validate(t.Context(), request(admissionv1.Delete, nil, pod(nil)))
				all = append(all, time.Since(began).String()+text(err))
			}
		})
		return all
	}
	first, again, other := decisions(t, 1), decisions(t, 1), decisions(t, 2)
	if diff := cmp.Diff(first, again); diff != "" || slices.Equal(first, other) {
		t.Errorf("the same seed (-first +again):\n%s\nanother seed: %q", diff, other)
	}
	denials := len(slices.DeleteFunc(first, func(line string) bool { return !strings.Contains(line, "denied") }))
	if denials < 4 || denials > 16 {
		t.Errorf("%d of 20 denied, want about half", denials)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
