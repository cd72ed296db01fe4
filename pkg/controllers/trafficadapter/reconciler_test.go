package trafficadapter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	trafficadaptercontroller "github.com/podops-dev/podops/pkg/controllers/trafficadapter"
	"github.com/podops-dev/podops/pkg/resourceconsist/trafficadapter"
	"github.com/podops-dev/podops/test/builders"
)

func adapter() *appsv1alpha1.TrafficAdapter {
	return &appsv1alpha1.TrafficAdapter{
		ObjectMeta: metav1.ObjectMeta{Name: "lb", UID: "lb", Generation: 3},
		Spec: appsv1alpha1.TrafficAdapterSpec{
			Controller: "lb", Services: []appsv1alpha1.ServiceMatch{{LabelSelector: &metav1.LabelSelector{}}},
			Lease: &appsv1alpha1.LeaseReference{Namespace: "lb-system", Name: "lb"},
		},
	}
}

func service(name, control string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{appsv1alpha1.ControlLabelKey: control}}}
}

// lease returns a Lease of 15 seconds that was renewed some time before the epoch.
func lease(holder string, before time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lb-system", Name: "lb"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(holder), LeaseDurationSeconds: ptr.To(int32(15)), RenewTime: &metav1.MicroTime{Time: builders.Epoch.Add(-before)},
		},
	}
}

// requests counts the requests of a reconcile to the API server.
type requests struct{ reads, writes int }

// reconciled reconciles the adapter once, and returns it. readErr is the error of reading a Lease.
func reconciled(t *testing.T, readErr error, objects ...client.Object) (*appsv1alpha1.TrafficAdapter, requests, error) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), appsv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	var sent requests
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&appsv1alpha1.TrafficAdapter{}).
		WithIndex(&corev1.Service{}, trafficadapter.ServiceField, trafficadapter.IndexServices).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				if _, ok := object.(*coordinationv1.Lease); ok {
					sent.reads++
					if readErr != nil {
						return readErr
					}
				}
				return c.Get(ctx, key, object, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, name string, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				sent.writes++
				return c.SubResource(name).Patch(ctx, object, patch, opts...)
			},
		}).Build()
	r := trafficadaptercontroller.New(c, c, clocktesting.NewFakePassiveClock(builders.Epoch))
	result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "lb"}})
	if err == nil && result.RequeueAfter == 0 {
		t.Error("the Lease is not read again")
	}
	got := &appsv1alpha1.TrafficAdapter{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "lb"}, got); err != nil {
		t.Fatal(err)
	}
	return got, sent, err
}

func TestRunning(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "lb", errors.New("no right"))
	for sentence, tc := range map[string]struct {
		objects    []client.Object
		err        error
		wantStatus metav1.ConditionStatus
		wantReason string
	}{
		"the Lease is renewed":      {objects: []client.Object{lease("lb-0", 3*time.Second)}, wantStatus: metav1.ConditionTrue, wantReason: "LeaseRenewed"},
		"the Lease has expired":     {objects: []client.Object{lease("lb-0", 15*time.Second)}, wantStatus: metav1.ConditionFalse, wantReason: "LeaseExpired"},
		"the Lease was released":    {objects: []client.Object{lease("", 0)}, wantStatus: metav1.ConditionFalse, wantReason: "LeaseExpired"},
		"the Lease does not exist":  {wantStatus: metav1.ConditionFalse, wantReason: "LeaseNotFound"},
		"the Lease is not readable": {err: forbidden, wantStatus: metav1.ConditionUnknown, wantReason: "LeaseUnreadable"},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, sent, err := reconciled(t, tc.err, append(tc.objects, adapter())...)
			if err != nil {
				t.Fatal(err)
			}
			running := meta.FindStatusCondition(got.Status.Conditions, appsv1alpha1.ConditionRunning)
			if running == nil || running.Status != tc.wantStatus || running.Reason != tc.wantReason || running.ObservedGeneration != 3 {
				t.Errorf("Running is %+v", running)
			}
			if !meta.IsStatusConditionTrue(got.Status.Conditions, appsv1alpha1.ConditionReady) {
				t.Errorf("Ready is not True: %+v", got.Status.Conditions)
			}
			_, again, err := reconciled(t, tc.err, append(tc.objects, got)...)
			if diff := cmp.Diff([]requests{{1, 1}, {1, 0}}, []requests{sent, again}, cmp.AllowUnexported(requests{})); diff != "" || err != nil {
				t.Errorf("requests of the first and the second reconcile (-want +got), %v:\n%s", err, diff)
			}
		})
	}
}

func TestAnAdapterWithoutALeaseHasAnUnknownProgram(t *testing.T) {
	without := adapter()
	without.Spec.Lease = nil
	got, sent, err := reconciled(t, nil, without)
	running := meta.FindStatusCondition(got.Status.Conditions, appsv1alpha1.ConditionRunning)
	if err != nil || running == nil || running.Status != metav1.ConditionUnknown || sent.reads != 0 {
		t.Errorf("Running is %+v after %d reads, %v", running, sent.reads, err)
	}
}

func TestAnErrorOfTheAPIServerChangesNoCondition(t *testing.T) {
	got, sent, err := reconciled(t, errors.New("the API server is unavailable"), adapter())
	if err == nil || sent.writes > 0 || len(got.Status.Conditions) > 0 {
		t.Errorf("%d writes, %v, conditions %v", sent.writes, err, got.Status.Conditions)
	}
}

func TestReadyAndServices(t *testing.T) {
	invalid := adapter()
	invalid.Spec.Services = append(invalid.Spec.Services, appsv1alpha1.ServiceMatch{LabelSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}},
	}})
	for sentence, tc := range map[string]struct {
		adapter      *appsv1alpha1.TrafficAdapter
		wantReason   string
		wantServices int32
	}{
		"valid":                 {adapter(), "Registered", 2},
		"with a wrong selector": {invalid, "InvalidSelector", 2},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, _, err := reconciled(t, nil, tc.adapter, service("a", "true"), service("b", "true"), service("c", "false"))
			ready := meta.FindStatusCondition(got.Status.Conditions, appsv1alpha1.ConditionReady)
			if err != nil || ready == nil || ready.Reason != tc.wantReason || got.Status.ServiceCount != tc.wantServices {
				t.Errorf("Ready is %+v, %d Services, %v", ready, got.Status.ServiceCount, err)
			}
		})
	}
}
