package podrelease

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/state/podwriter"
	"github.com/podops-dev/podops/test/builders"
)

// intercepted returns a runner whose requests pass through funcs.
func intercepted(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *runner {
	t.Helper()
	r := runnerOf(t, Options{Controllers: []string{"inside"}}, objects...)
	r.client = interceptor.NewClient(r.client.(client.WithWatch), funcs)
	r.writer = podwriter.New(r.client, unrecorded{}, clocktesting.NewFakePassiveClock(builders.Epoch))
	return r
}

// rejecting returns interceptors for which a write to pods/status is a write to the pod: the fake client would drop
// its metadata. meets is called instead for one pod.
func rejecting(name string, meets func(c client.Client, written func() error) error) interceptor.Funcs {
	return interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, object client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
			pod := &corev1.Pod{}
			pod.Namespace, pod.Name = object.GetNamespace(), object.GetName()
			write := func() error { return c.Patch(ctx, pod, patch) }
			if pod.Name == name {
				return meets(c, write)
			}
			return write()
		},
	}
}

// expectLeft fails the test unless releasing the pods "bad" and "other" ends without a deadline, and leaves the first.
func expectLeft(t *testing.T, r *runner, cause string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := r.releasePods(ctx); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	if err := r.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "other"}, pod); err != nil {
		t.Fatal(err)
	}
	if ids := lifecycle.IDs(pod.Labels); len(ids) > 0 {
		t.Errorf("the other pod is still in the lifecycles %v", ids)
	}
	if len(r.report.Left) != 1 || !strings.HasPrefix(r.report.Left[0], "default/bad: ") || !strings.Contains(r.report.Left[0], cause) {
		t.Errorf("left %q, want the bad pod: %s", r.report.Left, cause)
	}
}

func waiting(name string) *corev1.Pod {
	return builders.MakePod(name).Available().Waiting("a", "update", builders.Epoch).Obj()
}

// An operation controller that goes on begins its lifecycle again, for ever.
func TestAPodThatIsChangedAgainAndAgainDoesNotHoldUpOthers(t *testing.T) {
	r := intercepted(t, rejecting("bad", func(c client.Client, written func() error) error {
		if err := written(); err != nil {
			return err
		}
		again := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"operating.podopslifecycle.kusionstack.io/a":"1"}}}`))
		return c.Patch(t.Context(), waiting("bad"), again)
	}), waiting("bad"), waiting("other"))
	expectLeft(t, r, "another client changes it again and again")
}

func TestAPodThatTheAPIServerRejectsDoesNotHoldUpOthers(t *testing.T) {
	r := intercepted(t, rejecting("bad", func(client.Client, func() error) error {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "bad", nil)
	}), waiting("bad"), waiting("other"))
	expectLeft(t, r, "is invalid")
}

func TestAPodThatChangesAllTheTimeIsReleased(t *testing.T) {
	conflicts := 0
	r := intercepted(t, rejecting("other", func(c client.Client, written func() error) error {
		if conflicts++; conflicts%4 != 0 {
			change := fmt.Sprintf(`{"metadata":{"annotations":{"changed":"%d"}}}`, conflicts)
			if err := c.Patch(t.Context(), waiting("other"), client.RawPatch(types.MergePatchType, []byte(change))); err != nil {
				return err
			}
			return apierrors.NewConflict(corev1.Resource("pods"), "other", nil)
		}
		return written()
	}), waiting("other"))
	if settled, err := r.pass(t.Context()); settled || err != nil || r.last != nil {
		t.Errorf("settled %t, %v, %v: want one write", settled, err, r.last)
	}
	if settled, err := r.pass(t.Context()); !settled || err != nil {
		t.Errorf("settled %t, %v", settled, err)
	}
}

// Between the reading of a Service or a PodOperation and its release, its owner may change it.
func TestObjectsThatChangeMeanwhileAreReleased(t *testing.T) {
	service := balanced("changes", "x", "inside")
	operation := &appsv1alpha1.PodOperation{}
	operation.Namespace, operation.Name, operation.Finalizers = "default", "changes", []string{appsv1alpha1.PodOperationFinalizer}
	changed := map[string]bool{}
	r := intercepted(t, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if kind := fmt.Sprintf("%T", object); !changed[kind] {
				changed[kind] = true
				meanwhile := object.DeepCopyObject().(client.Object)
				if err := c.Patch(ctx, meanwhile, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"changed":"meanwhile"}}}`))); err != nil {
					return err
				}
			}
			return c.Patch(ctx, object, patch, options...)
		},
	}, service, operation)
	if err := r.findServices(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, release := range map[string]func(context.Context) error{"Services": r.releaseServices, "PodOperations": r.releaseOperations} {
		if err := release(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, object := range []client.Object{service, operation} {
		if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
		if object.GetLabels()["changed"] == "" || len(object.GetFinalizers()) > 0 {
			t.Errorf("%T has the labels %v and the finalizers %v", object, object.GetLabels(), object.GetFinalizers())
		}
	}
}
