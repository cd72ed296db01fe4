package pod_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/webhooks/pod"
	"github.com/podops-dev/podops/test/builders"
)

// promises are those that a DeleteHolder hands over.
type promises []types.UID

func (p *promises) Promise(_ types.NamespacedName, uid types.UID) { *p = append(*p, uid) }

var replicaSet = metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "set"}

func owned() *builders.PodBuilder { return builders.MakePod("web-0").Available().OwnedBy(replicaSet) }

func TestDeleteHolder(t *testing.T) {
	for name, tc := range map[string]struct {
		pod       *corev1.Pod
		namespace *corev1.Namespace // default: one that lives
		dryRun    bool
		wantHeld  bool
		want      promises
	}{
		"a pod that serves is held":              {pod: owned().Obj(), wantHeld: true, want: promises{"web-0-uid"}},
		"a pod that does not serve yet is held":  {pod: builders.MakePod("web-0").OwnedBy(replicaSet).Obj(), wantHeld: true, want: promises{"web-0-uid"}},
		"a dry run is held and promises nothing": {pod: owned().Obj(), dryRun: true, wantHeld: true},
		"a pod that waits is held":               {pod: owned().Waiting("pod-delete", "delete", builders.Epoch).Obj(), wantHeld: true, want: promises{"web-0-uid"}},
		"a pod that prepares is held":            {pod: owned().Preparing("pod-delete", "delete").Obj(), wantHeld: true, want: promises{"web-0-uid"}},
		"a namespace that the cache has not is alive": {
			pod: owned().Namespace("unknown").Obj(), wantHeld: true, want: promises{"web-0-uid"},
		},
		"a pod that may be operated on passes":    {pod: owned().Allowed("pod-delete", "delete").Obj()},
		"so does one that another id operates on": {pod: owned().Allowed("a", "update").Obj()},
		"a pod without the control label passes":  {pod: owned().Uncontrolled().Obj()},
		"a terminating pod passes":                {pod: owned().Terminating(builders.Epoch).Obj()},
		"a pod that succeeded passes":             {pod: owned().Phase(corev1.PodSucceeded).Obj()},
		"a pod that failed passes":                {pod: owned().Phase(corev1.PodFailed).Obj()},
		"a mirror pod passes":                     {pod: owned().Annotation(corev1.MirrorPodAnnotationKey, "x").Obj()},
		"a pod of nobody passes":                  {pod: builders.MakePod("web-0").Available().Obj()},
		"a pod of another kind of owner passes": {
			pod: builders.MakePod("web-0").Available().OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web"}).Obj(),
		},
		"a namespace that ends holds nothing": {
			pod: owned().Obj(),
			namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "default", DeletionTimestamp: &metav1.Time{Time: builders.Epoch}, Finalizers: []string{"kubernetes"},
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := tc.namespace
			if namespace == nil {
				namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
			}
			reader := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(namespace).Build()
			req := deleting(t, tc.pod)
			req.DryRun = &tc.dryRun
			var got promises
			response := pod.NewDeleteHolder(decoder(t), reader, &got).Handle(t.Context(), req)
			if response.Allowed == tc.wantHeld {
				t.Errorf("got %+v", answerOf(response))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("promises (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeleteHolderAnswer(t *testing.T) {
	const intro = "the delete of pod web-0 is held until its rules allow it and its traffic is off"
	selects := func(name, app string, status appsv1alpha1.PodTransitionRuleStatus, rules ...appsv1alpha1.TransitionRule) client.Object {
		return &appsv1alpha1.PodTransitionRule{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: appsv1alpha1.PodTransitionRuleSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, Rules: rules,
			},
			Status: status,
		}
	}
	numbers := appsv1alpha1.PodTransitionRuleStatus{Selected: 4, Available: 3, Waiting: 1}
	blocked := func(name string, stage appsv1alpha1.TransitionStage) appsv1alpha1.PodTransitionRuleStatus {
		status := numbers
		status.Blocked = []appsv1alpha1.BlockedPod{{Name: name, Stage: stage, Rule: "b/keep", Message: "1 of 4 pods are unavailable, and 1 may be"}}
		return status
	}
	rules := []appsv1alpha1.TransitionRule{
		{Name: "keep", Stage: appsv1alpha1.StagePreCheck}, {Name: "off", Disabled: true}, {Name: "later", Stage: appsv1alpha1.StagePostCheck}, {Name: "more"},
	}

	for name, tc := range map[string]struct {
		rules   []client.Object
		listErr error
		want    string
	}{
		"no rule selects the pod": {want: intro},
		"rules of other pods are not named": {
			rules: []client.Object{selects("a", "db", numbers, rules...)}, want: intro,
		},
		"the rules that count are named, with numbers": {
			rules: []client.Object{selects("b", "web", numbers, rules...)},
			want:  intro + ": b (keep, more): 3 of 4 pods available, 1 waiting",
		},
		"the rule that blocks says why": {
			rules: []client.Object{selects("b", "web", blocked("web-0", appsv1alpha1.StagePreCheck), rules...)},
			want:  intro + ": b/keep: 1 of 4 pods are unavailable, and 1 may be",
		},
		"what blocks another pod, or later, is not told": {
			rules: []client.Object{
				selects("a", "web", blocked("web-1", appsv1alpha1.StagePreCheck), rules...),
				selects("b", "web", blocked("web-0", appsv1alpha1.StagePostCheck), rules...),
			},
			want: intro + ": a (keep, more): 3 of 4 pods available, 1 waiting; b (keep, more): 3 of 4 pods available, 1 waiting",
		},
		"a cache that does not answer does not let the delete pass": {
			rules: []client.Object{selects("b", "web", numbers, rules...)}, listErr: errors.New("cache not started"), want: intro,
		},
	} {
		t.Run(name, func(t *testing.T) {
			reader := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(tc.rules...).WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if tc.listErr != nil {
						return tc.listErr
					}
					return c.List(ctx, list, opts...)
				},
			}).Build()
			response := pod.NewDeleteHolder(decoder(t), reader, &promises{}).Handle(t.Context(), deleting(t, owned().Label("app", "web").Obj()))
			if response.Allowed || response.Result == nil {
				t.Fatalf("got %+v, want a refusal", response)
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
