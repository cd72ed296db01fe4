package cooperation_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/podopslifecycle/cooperation"
	"github.com/podops-dev/podops/test/builders"
)

const finalizer = "prot.podopslifecycle.kusionstack.io/directory"

// provider records the calls of Sync, and the finalizers that were on the pod during each.
type provider struct {
	calls []string
	err   error
	then  func(*corev1.Pod)
}

func (p *provider) TrafficOn(_ context.Context, pod *corev1.Pod) error  { return p.call("on", pod) }
func (p *provider) TrafficOff(_ context.Context, pod *corev1.Pod) error { return p.call("off", pod) }

func (p *provider) call(verb string, pod *corev1.Pod) error {
	if slices.Contains(pod.Finalizers, finalizer) {
		verb += ", protected"
	}
	p.calls = append(p.calls, verb)
	if p.then != nil {
		p.then(pod)
	}
	return p.err
}

func get(t *testing.T, c client.Client) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "web"}, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func TestSync(t *testing.T) {
	now := builders.Epoch
	for name, tc := range map[string]struct {
		pod   *builders.PodBuilder
		calls []string
		has   bool
	}{
		"a pod that is available gets traffic, then the finalizer": {
			pod: builders.MakePod("web").Available(), calls: []string{"on"}, has: true,
		},
		"a pod with traffic keeps the finalizer": {
			pod: builders.MakePod("web").Available().Finalizer(finalizer), calls: []string{"on, protected"}, has: true,
		},
		"a pod that prepares loses traffic, then the finalizer": {
			pod: builders.MakePod("web").Ready().Gate(false).Preparing("a", "update").Finalizer(finalizer), calls: []string{"off, protected"},
		},
		"a pod without the gate that prepares, too": {
			pod: builders.MakePod("web").Gateless().Ready().Preparing("a", "update").Finalizer(finalizer), calls: []string{"off, protected"},
		},
		"a pod that is not ready has none": {
			pod: builders.MakePod("web").Unready(now).Finalizer(finalizer), calls: []string{"off, protected"},
		},
		"a pod that is deleted has none": {
			pod: builders.MakePod("web").Available().Finalizer(finalizer, "example.com/other").Terminating(now), calls: []string{"off, protected"},
		},
		"a pod that has left PodOps gets traffic without a finalizer": {
			pod: builders.MakePod("web").Uncontrolled().Gate(true).Ready().Finalizer(finalizer), calls: []string{"on, protected"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithObjects(tc.pod.Obj()).Build()
			p := &provider{}
			if err := cooperation.Sync(t.Context(), c, p, finalizer, get(t, c)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.calls, p.calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if has := slices.Contains(get(t, c).Finalizers, finalizer); has != tc.has {
				t.Errorf("finalizer on the pod: %t, want %t", has, tc.has)
			}
		})
	}
}

func TestAFailureOfTheProviderKeepsTheFinalizer(t *testing.T) {
	pod := builders.MakePod("web").Ready().Gate(false).Preparing("a", "update").Finalizer(finalizer).Obj()
	c := fake.NewClientBuilder().WithObjects(pod).Build()
	p := &provider{err: errors.New("draining 3 requests")}
	if err := cooperation.Sync(t.Context(), c, p, finalizer, get(t, c)); !errors.Is(err, p.err) {
		t.Errorf("got %v, want the error of the provider", err)
	}
	if !slices.Contains(get(t, c).Finalizers, finalizer) {
		t.Error("the finalizer is gone, and the traffic is not")
	}
}

func TestTheFinalizerFollowsTheLatestPod(t *testing.T) {
	prepares := func() *builders.PodBuilder {
		return builders.MakePod("web").Ready().Gate(false).Preparing("a", "update")
	}
	available := func() *builders.PodBuilder { return builders.MakePod("web").Available() }
	for name, tc := range map[string]struct {
		seen, stored *builders.PodBuilder
	}{
		"an operation that prepares meanwhile prevents it":      {seen: available(), stored: prepares()},
		"an operation that ends meanwhile prevents its removal": {seen: prepares().Finalizer(finalizer), stored: available().Finalizer(finalizer)},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithObjects(tc.seen.Obj()).Build()
			p := &provider{then: func(*corev1.Pod) {
				changed := get(t, c)
				changed.Labels = tc.stored.Obj().Labels
				if err := c.Update(t.Context(), changed); err != nil {
					t.Fatal(err)
				}
				changed.Status = tc.stored.Obj().Status
				if err := c.Status().Update(t.Context(), changed); err != nil {
					t.Fatal(err)
				}
			}}
			before := slices.Contains(tc.stored.Obj().Finalizers, finalizer)
			if err := cooperation.Sync(t.Context(), c, p, finalizer, get(t, c)); !errors.Is(err, cooperation.ErrStale) {
				t.Errorf("got %v, want ErrStale", err)
			}
			if has := slices.Contains(get(t, c).Finalizers, finalizer); has != before {
				t.Errorf("finalizer on the pod: %t, want %t", has, before)
			}
		})
	}
}

func TestAConflictKeepsTheFinalizersOfOthers(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(builders.MakePod("web").Available().Obj()).Build()
	p := &provider{then: func(*corev1.Pod) {
		other := get(t, c)
		other.Finalizers = append(other.Finalizers, "prot.podopslifecycle.kusionstack.io/other")
		if err := c.Update(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}}
	if err := cooperation.Sync(t.Context(), c, p, finalizer, get(t, c)); err != nil {
		t.Fatal(err)
	}
	want := []string{"prot.podopslifecycle.kusionstack.io/other", finalizer}
	if diff := cmp.Diff(want, get(t, c).Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
}

func TestAPodThatIsGoneNeedsNothing(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	pod := builders.MakePod("web").Unready(builders.Epoch).Finalizer(finalizer).Obj()
	pod.ResourceVersion = "7"
	if err := cooperation.Sync(t.Context(), c, &provider{}, finalizer, pod); err != nil {
		t.Errorf("got %v, want none", err)
	}
}

func TestExpectAddsOneEmployer(t *testing.T) {
	requests := 0
	c := fake.NewClientBuilder().WithObjects(builders.MakePod("web").Expect("Service/default/a", "prot.podopslifecycle.kusionstack.io/a").Obj()).
		WithInterceptorFuncs(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			requests++
			return c.Patch(ctx, obj, patch, opts...)
		}}).Build()
	for range 2 {
		if _, err := cooperation.Expect(t.Context(), c, get(t, c), "Directory/default/d", finalizer); err != nil {
			t.Fatal(err)
		}
	}
	want := `{"expectedFinalizers":{"Directory/default/d":"` + finalizer + `","Service/default/a":"prot.podopslifecycle.kusionstack.io/a"}}`
	if diff := cmp.Diff(want, get(t, c).Annotations[appsv1alpha1.AvailableConditionsAnnotationKey]); diff != "" {
		t.Errorf("annotation (-want +got):\n%s", diff)
	}
	if requests != 1 {
		t.Errorf("%d requests, want 1", requests)
	}
}

func TestExpectLeavesAMalformedAnnotation(t *testing.T) {
	pod := builders.MakePod("web").Annotation(appsv1alpha1.AvailableConditionsAnnotationKey, "{").Obj()
	c := fake.NewClientBuilder().WithObjects(pod).Build()
	if _, err := cooperation.Expect(t.Context(), c, get(t, c), "Directory/default/d", finalizer); err == nil {
		t.Error("no error")
	}
	if got := get(t, c).Annotations[appsv1alpha1.AvailableConditionsAnnotationKey]; got != "{" {
		t.Errorf("the annotation became %q", got)
	}
}

func TestFinalizer(t *testing.T) {
	if got, err := cooperation.Finalizer("directory"); got != finalizer || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for _, id := range []string{"", "a/b", strings.Repeat("a", 64)} {
		if got, err := cooperation.Finalizer(id); err == nil {
			t.Errorf("id %q: got %q and no error", id, got)
		}
	}
}

func TestIsPodReady(t *testing.T) {
	if !cooperation.IsPodReady(builders.MakePod("web").Ready().Obj()) || cooperation.IsPodReady(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}) {
		t.Error("IsPodReady is not the condition Ready")
	}
}
