package pod_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	realclock "k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
	"github.com/podops-dev/podops/pkg/webhooks/pod"
	"github.com/podops-dev/podops/test/builders"
)

// deferrals are the requests that a webhook passes on: UID, method and actor.
type deferrals []string

func (p *deferrals) Defer(_ types.NamespacedName, uid types.UID, request deferreddelete.Request) {
	deferral := fmt.Sprintf("%s %s %s", uid, request.Method, request.Actor)
	if request.Interval > 0 {
		deferral += " after " + request.Interval.String()
	}
	*p = append(*p, deferral)
}

func (p *deferrals) Ended(types.NamespacedName, types.UID, deferreddelete.Lapse) {}

// reviewsOf returns a new metric of reviews.
func reviewsOf(t *testing.T) *prometheus.CounterVec {
	t.Helper()
	reviews, err := pod.NewReviews(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return reviews
}

func newDeferrer(t *testing.T, reader, apiReader client.Reader, deferrer pod.Deferrer) *pod.DeleteDeferrer {
	t.Helper()
	return pod.NewDeleteDeferrer(deferConfig(t, reader, apiReader, deferrer, waits()))
}

// deferConfig returns the config of a webhook.
func deferConfig(t *testing.T, reader, apiReader client.Reader, deferrer pod.Deferrer, waits *pod.Waits) pod.DeferConfig {
	t.Helper()
	return pod.DeferConfig{
		Decoder: decoder(t), Reader: reader, APIReader: apiReader, Deferrer: deferrer, Waits: waits, Reviews: reviewsOf(t), Identity: identity,
	}
}

// waits returns Waits in which a request waits for a look at the cache or two.
func waits() *pod.Waits { return pod.NewWaits(60*time.Millisecond, realclock.RealClock{}) }

var replicaSet = metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "set"}

// newSet returns the ReplicaSet that controls the pods.
func newSet() *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: replicaSet.Name, UID: replicaSet.UID}}
}

func owned() *builders.PodBuilder { return builders.MakePod("web-0").Available().OwnedBy(replicaSet) }

// evicted returns a pod in the state right before the taint manager deletes it.
func evicted() *corev1.Pod {
	pod := owned().Obj()
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager",
	})
	return pod
}

// noGrace returns a pod whose every delete has a grace period of 0 seconds.
func noGrace(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.TerminationGracePeriodSeconds = new(int64(0))
	return pod
}

func TestDeleteDeferrer(t *testing.T) {
	for name, tc := range map[string]struct {
		pod          *corev1.Pod
		namespace    *corev1.Namespace // default: an active one
		user         string            // default: the ReplicaSet controller
		options      string
		collection   bool
		dryRun       bool
		wantDeferred bool
		want         deferrals
	}{
		"a pod that serves is deferred":             {pod: owned().Obj(), wantDeferred: true, want: deferrals{"web-0-uid Delete Owner"}},
		"a pod that does not serve yet is deferred": {pod: builders.MakePod("web-0").OwnedBy(replicaSet).Obj(), wantDeferred: true, want: deferrals{"web-0-uid Delete Owner"}},
		"a dry run is deferred and not passed on":   {pod: owned().Obj(), dryRun: true, wantDeferred: true},
		"a pod that waits is deferred":              {pod: owned().Waiting("pod-delete", "delete", builders.Epoch).Obj(), wantDeferred: true, want: deferrals{"web-0-uid Delete Owner"}},
		"a pod that prepares is deferred":           {pod: owned().Preparing("pod-delete", "delete").Obj(), wantDeferred: true, want: deferrals{"web-0-uid Delete Owner"}},
		"a namespace that the cache does not have is active": {
			pod: owned().Namespace("unknown").Obj(), wantDeferred: true, want: deferrals{"web-0-uid Delete Owner"},
		},
		"a pod that may be operated on passes":       {pod: owned().Allowed("pod-delete", "delete").Obj()},
		"a pod that is deleted by another id passes": {pod: owned().Allowed("a", "delete").Obj()},
		"a pod that another id updates is deferred":  {pod: owned().Allowed("a", "update").Obj(), wantDeferred: true, want: deferrals{"web-0-uid Delete Owner"}},
		"a pod without the control label passes":     {pod: owned().Uncontrolled().Obj()},
		"a terminating pod passes":                   {pod: owned().Terminating(builders.Epoch).Obj()},
		"a pod that succeeded passes":                {pod: owned().Phase(corev1.PodSucceeded).Obj()},
		"a pod that failed passes":                   {pod: owned().Phase(corev1.PodFailed).Obj()},
		"a pod that the taint manager evicts passes": {pod: evicted()},
		"a mirror pod passes":                        {pod: owned().Annotation(corev1.MirrorPodAnnotationKey, "x").Obj()},
		"a pod without an owner is deferred": {
			pod: builders.MakePod("web-0").Available().Obj(), user: "jane", wantDeferred: true, want: deferrals{"web-0-uid Delete Client"},
		},
		"a pod of a StatefulSet is deferred": {
			pod:  builders.MakePod("web-0").Available().OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "db"}).Obj(),
			user: "system:serviceaccount:kube-system:statefulset-controller", wantDeferred: true, want: deferrals{"web-0-uid Delete Owner"},
		},
		"a pod of a custom owner is deferred": {
			pod:  builders.MakePod("web-0").Available().OwnedBy(metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Shard", Name: "db", UID: "db"}).Obj(),
			user: "system:serviceaccount:shards:controller", wantDeferred: true, want: deferrals{"web-0-uid Delete Controller"},
		},
		"a person's delete is deferred":       {pod: owned().Obj(), user: "jane", wantDeferred: true, want: deferrals{"web-0-uid Delete Client"}},
		"a delete of a collection is, too":    {pod: owned().Obj(), user: "jane", collection: true, wantDeferred: true, want: deferrals{"web-0-uid DeleteCollection Client"}},
		"a delete with the UID of the pod is": {pod: owned().Obj(), user: "jane", options: `{"preconditions":{"uid":"web-0-uid"}}`, wantDeferred: true, want: deferrals{"web-0-uid Delete Client"}},
		"a delete of an earlier pod passes":   {pod: owned().Obj(), user: "jane", options: `{"preconditions":{"uid":"earlier"}}`},
		"a pod without grace in its spec is": {
			pod: noGrace(owned().Obj()), user: "jane", options: `{"gracePeriodSeconds":0}`, wantDeferred: true, want: deferrals{"web-0-uid Delete Client"},
		},
		"a delete without grace passes": {pod: owned().Obj(), user: "jane", options: `{"gracePeriodSeconds":0}`},
		"PodOps passes":                 {pod: owned().Preparing("pod-delete", "delete").Obj(), user: identity},
		"a terminating namespace defers nothing": {
			pod: owned().Obj(),
			namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "default", DeletionTimestamp: &metav1.Time{Time: builders.Epoch}, Finalizers: []string{"kubernetes"},
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			elsewhere := newSet()
			elsewhere.Namespace = "unknown"
			stateful := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", UID: "db"}}
			namespace := tc.namespace
			if namespace == nil {
				namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
			}
			reader := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(namespace, newSet(), elsewhere, stateful).Build()
			req := deleting(t, tc.pod)
			req.DryRun, req.Options.Raw = &tc.dryRun, []byte(tc.options)
			if !tc.collection {
				req.Name = tc.pod.Name
			}
			if tc.user != "" {
				req.UserInfo.Username = tc.user
			}
			var got deferrals
			response := newDeferrer(t, reader, reader, &got).Handle(clientauth.WithVerified(t.Context(), true), req)
			if response.Allowed == tc.wantDeferred {
				t.Errorf("got %+v", visibleOf(response))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("deferrals (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDeleteDeferrerDependsOnTheOwner matters because the garbage collector and the controllers of
// nodes may share the user of the ReplicaSet controller.
func TestDeleteDeferrerDependsOnTheOwner(t *testing.T) {
	terminating, successor := newSet(), newSet()
	terminating.DeletionTimestamp, terminating.Finalizers = &metav1.Time{Time: builders.Epoch}, []string{"foregroundDeletion"}
	successor.UID = "another"
	for name, tc := range map[string]struct {
		cached, apiReader *appsv1.ReplicaSet
		apiErr            error
		wantDeferred      bool
	}{
		"an owner that exists defers":                      {cached: newSet(), wantDeferred: true},
		"a terminating owner lets the delete pass":         {cached: terminating, apiReader: newSet()},
		"a deleted owner lets the delete pass":             {},
		"an owner that was replaced lets the delete pass":  {cached: successor, apiReader: successor},
		"an owner that the cache does not have yet defers": {apiReader: newSet(), wantDeferred: true},
		"a predecessor in the cache is not the owner":      {cached: successor, apiReader: newSet(), wantDeferred: true},
		"an owner that cannot be read counts as present":   {apiErr: errors.New("no connection"), wantDeferred: true},
	} {
		t.Run(name, func(t *testing.T) {
			reader := func(set *appsv1.ReplicaSet, err error) client.Reader {
				builder := fake.NewClientBuilder().WithScheme(scheme(t)).WithInterceptorFuncs(interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
						if err != nil {
							return err
						}
						return c.Get(ctx, key, object, opts...)
					},
				})
				if set != nil {
					builder.WithObjects(set.DeepCopy())
				}
				return builder.Build()
			}
			deferrer := newDeferrer(t, reader(tc.cached, nil), reader(tc.apiReader, tc.apiErr), &deferrals{})
			response := deferrer.Handle(clientauth.WithVerified(t.Context(), true), deleting(t, owned().Obj()))
			if response.Allowed == tc.wantDeferred {
				t.Errorf("got %+v, want deferred: %v", visibleOf(response), tc.wantDeferred)
			}
		})
	}
}

// TestAnUpdateThatBeginsADelete is held like the delete: the controller of a Job removes its finalizer first, and
// the result of a pod without it is lost.
func TestAnUpdateThatBeginsADelete(t *testing.T) {
	const controller = "system:serviceaccount:kube-system:job-controller"
	owner := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "job"}
	tracked := func() *builders.PodBuilder {
		return builders.MakePod("job-0").Available().OwnedBy(owner).Finalizer(batchv1.JobTrackingFinalizer)
	}
	ended := batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}}}
	for name, tc := range map[string]struct {
		user   string
		pod    *builders.PodBuilder
		status batchv1.JobStatus
		keeps  bool
		want   deferrals
	}{
		"of a pod that runs is held":                {user: controller, pod: tracked(), want: deferrals{"job-0-uid Delete Owner"}},
		"of a pod that may be deleted passes":       {user: controller, pod: tracked().Allowed("pod-delete", "delete")},
		"of a pod that has succeeded passes":        {user: controller, pod: tracked().Phase(corev1.PodSucceeded)},
		"of a pod that is no longer counted passes": {user: controller, pod: tracked(), status: ended},
		"by a person passes":                        {user: user, pod: tracked()},
		"that keeps the finalizer passes":           {user: controller, pod: tracked(), keeps: true},
	} {
		t.Run(name, func(t *testing.T) {
			got := deferrals(nil)
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: owner.Name, UID: owner.UID}, Status: tc.status}
			old := tc.pod.Obj()
			requested := old.DeepCopy()
			if !tc.keeps {
				requested.Finalizers = nil
			}
			deferrer := newDeferrer(t, cacheOf(t), cacheOf(t, job), &got)
			response := deferrer.Handle(clientauth.WithVerified(t.Context(), true), updating(t, tc.user, old, requested))
			if diff := cmp.Diff(tc.want, got); diff != "" || response.Allowed != (tc.want == nil) {
				t.Errorf("got %+v, requests (-want +got):\n%s", visibleOf(response), diff)
			}
		})
	}
}

// TestAForgedDeleteReadsNothing shows that an unverified review makes the manager read from the API
// server only for a pod that exists.
func TestAForgedDeleteReadsNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		cached       []client.Object
		wantReads    int
		wantDeferred bool
	}{
		"a pod that does not exist":           {wantDeferred: true},
		"a predecessor of the pod":            {cached: []client.Object{owned().UID("another").Obj()}, wantDeferred: true},
		"a pod that exists, without an owner": {cached: []client.Object{owned().Obj()}, wantReads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			reads := 0
			apiReader := fake.NewClientBuilder().WithScheme(scheme(t)).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
					reads++
					return c.Get(ctx, key, object, opts...)
				},
			}).Build()
			cached := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(tc.cached...).Build()
			response := newDeferrer(t, cached, apiReader, &deferrals{}).Handle(t.Context(), deleting(t, owned().Obj()))
			if response.Allowed == tc.wantDeferred || reads != tc.wantReads {
				t.Errorf("got %+v after %d reads, want deferred %t after %d", visibleOf(response), reads, tc.wantDeferred, tc.wantReads)
			}
		})
	}
}

func TestDeleteDeferrerResponse(t *testing.T) {
	const (
		intro = "PodOps holds this delete (normal during a rollout). Why: kubectl "
		look  = intro + "describe pod web-0 -n default"
	)
	selects := func(name, app string, waiting int32, rules ...appsv1alpha1.TransitionRule) client.Object {
		if len(rules) == 0 {
			rules = []appsv1alpha1.TransitionRule{{Name: "keep", Stage: appsv1alpha1.StagePreCheck}}
		}
		return &appsv1alpha1.PodTransitionRule{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       appsv1alpha1.PodTransitionRuleSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, Rules: rules},
			Status:     appsv1alpha1.PodTransitionRuleStatus{Waiting: waiting},
		}
	}

	for name, tc := range map[string]struct {
		rules    []client.Object
		listErr  error
		unproven bool // the sender is not verified
		want     string
	}{
		"an unverified sender gets no names of rules": {
			rules: []client.Object{selects("b", "web", 0)}, unproven: true, want: intro + "get podtransitionrule -n default -o wide",
		},
		"no rule selects the pod":                  {want: look},
		"rules of other pods are not named":        {rules: []client.Object{selects("a", "db", 0)}, want: look},
		"rules that select the pod are named":      {rules: []client.Object{selects("b", "web", 0)}, want: intro + "get podtransitionrule b -n default -o wide"},
		"the text does not change with the status": {rules: []client.Object{selects("b", "web", 7)}, want: intro + "get podtransitionrule b -n default -o wide"},
		"rules that do not apply to the delete are not named": {
			rules: []client.Object{
				selects("a", "web", 0, appsv1alpha1.TransitionRule{Name: "updates", Conditions: []string{"update"}}),
				selects("b", "web", 0, appsv1alpha1.TransitionRule{Name: "skipped"}),
				selects("c", "web", 0, appsv1alpha1.TransitionRule{Name: "off", Disabled: true}, appsv1alpha1.TransitionRule{Name: "later", Stage: appsv1alpha1.StagePostCheck}),
				selects("d", "web", 0, appsv1alpha1.TransitionRule{Name: "others", Filter: &appsv1alpha1.TransitionRuleFilter{
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}},
				}}),
				selects("e", "web", 0),
			},
			want: intro + "get podtransitionrule e -n default -o wide",
		},
		"the first five by name": {
			rules: []client.Object{
				selects("f", "web", 0), selects("e", "web", 0), selects("d", "web", 0), selects("c", "web", 0), selects("b", "web", 0), selects("a", "web", 0),
			},
			want: intro + "get podtransitionrule a b c d e -n default -o wide",
		},
		"a cache that cannot be read does not let the delete pass": {
			rules: []client.Object{selects("b", "web", 0)}, listErr: errors.New("cache not started"), want: look,
		},
	} {
		t.Run(name, func(t *testing.T) {
			reader := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(append(tc.rules, newSet())...).WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if tc.listErr != nil {
						return tc.listErr
					}
					return c.List(ctx, list, opts...)
				},
			}).Build()
			response := newDeferrer(t, reader, reader, &deferrals{}).
				Handle(clientauth.WithVerified(t.Context(), !tc.unproven), deleting(t, owned().Label("app", "web").
					Annotation(appsv1alpha1.SkipRulesAnnotationKey, `{"skipRules": ["skipped"]}`).Obj()))
			if response.Allowed || response.Result == nil {
				t.Fatalf("got %+v, want a denial", response)
			}
			got := *response.Result
			// Clients that find retryAfterSeconds retry by themselves, before anything can have changed.
			want := metav1.Status{Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: tc.want}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}
