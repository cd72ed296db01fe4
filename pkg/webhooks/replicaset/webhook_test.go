package replicaset

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/replicasetpods"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
)

const (
	identity   = "system:serviceaccount:podops-system:podops-controller-manager"
	controller = "system:serviceaccount:kube-system:deployment-controller"
	user       = "alice"

	wanted = appsv1alpha1.DesiredReplicasAnnotationKey
	lowest = appsv1alpha1.LowestReplicasAnnotationKey
)

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, appsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// newSet returns the ReplicaSet web of controlled pods; annotations are pairs of keys and values.
func newSet(replicas int32, annotations ...string) *appsv1.ReplicaSet {
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web-uid"}}
	set.Spec.Replicas = &replicas
	set.Spec.Template.Labels = map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
	for pair := range slices.Chunk(annotations, 2) {
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, pair[0], pair[1])
	}
	return set
}

func free(set *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	set.Spec.Template.Labels = nil
	return set
}

// cache holds the ReplicaSet web with twelve pods, some of which were granted operate.
func cache(t *testing.T, granted int, objects ...client.Object) client.WithWatch {
	t.Helper()
	for i := range 12 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-" + strconv.Itoa(i), Labels: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web-uid", Controller: new(true)}},
		}}
		if i < granted {
			pod.Labels[appsv1alpha1.OperateLabelPrefix+"/"+appsv1alpha1.PodDeleteID] = "1"
		}
		objects = append(objects, pod)
	}
	return fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, replicasetpods.ControllerUIDField, replicasetpods.IndexByController).Build()
}

func raw(t *testing.T, object any) runtime.RawExtension {
	t.Helper()
	content, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: content}
}

func updating(t *testing.T, who string, old, requested any) admission.Request {
	t.Helper()
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Update, Namespace: "default", Name: "web", UserInfo: authenticationv1.UserInfo{Username: who},
		OldObject: raw(t, old), Object: raw(t, requested),
	}}
}

// patches returns the operations of a response, "replace /spec/replicas 12".
func patches(t *testing.T, response admission.Response) []string {
	t.Helper()
	if !response.Allowed {
		t.Fatalf("denied: %v", response.Result)
	}
	var lines []string
	for _, operation := range response.Patches {
		value, err := json.Marshal(operation.Value)
		if err != nil {
			t.Fatal(err)
		}
		path := strings.ReplaceAll(operation.Path, "podopslifecycle.kusionstack.io~1", "")
		lines = append(lines, strings.TrimSuffix(operation.Operation+" "+path+" "+string(value), " null"))
	}
	return lines
}

func TestMutator(t *testing.T) {
	for name, tc := range map[string]struct {
		who            string
		old, requested *appsv1.ReplicaSet
		granted        int
		want           []string
		warns          bool
	}{
		"a scale-down is kept and recorded": {
			who: controller, old: newSet(12), requested: newSet(9),
			want: []string{"add /metadata/annotations {}", `add /metadata/annotations/desired-replicas "9"`, "replace /spec/replicas 12"},
		},
		"a person is warned": {
			who: user, old: newSet(12, "a", "b"), requested: newSet(9, "a", "b"), warns: true,
			want: []string{`add /metadata/annotations/desired-replicas "9"`, "replace /spec/replicas 12"},
		},
		"granted pods may go": {
			who: controller, old: newSet(12, wanted, "9", lowest, "10"), requested: newSet(9, wanted, "9", lowest, "10"), granted: 2,
			want: []string{"remove /metadata/annotations/lowest-replicas", "replace /spec/replicas 10"},
		},
		"the last pods go": {
			who: controller, old: newSet(12, wanted, "9"), requested: newSet(9, wanted, "9"), granted: 3,
			want: []string{"remove /metadata/annotations/desired-replicas"},
		},
		"a repeated request writes nothing": {
			who: controller, old: newSet(12, wanted, "9", lowest, "11"), requested: newSet(9, wanted, "9", lowest, "11"),
			want: []string{"replace /spec/replicas 12"},
		},
		"a raised ReplicaSet has no demand": {
			who: controller, old: newSet(12, wanted, "9"), requested: newSet(13, wanted, "9"),
			want: []string{"remove /metadata/annotations/desired-replicas"},
		},
		"an update with the kept number withdraws nothing: so does every update of another field": {
			who: user, old: newSet(12, wanted, "9"), requested: newSet(12, wanted, "9"),
		},
		"other changes pass": {who: controller, old: newSet(12, wanted, "9"), requested: newSet(12, wanted, "9", "a", "b")},
		"the annotation is restored": {
			who: user, old: newSet(12, wanted, "9"), requested: newSet(12, lowest, "3"),
			want: []string{`add /metadata/annotations/desired-replicas "9"`, "remove /metadata/annotations/lowest-replicas"},
		},
		"the annotation of another user is removed": {
			who: user, old: newSet(12), requested: newSet(12, wanted, "0"), want: []string{"remove /metadata/annotations/desired-replicas"},
		},
		"pods that are not controlled may go": {who: controller, old: free(newSet(12)), requested: free(newSet(9))},
		"requests of the manager pass":        {who: identity, old: newSet(12, wanted, "9"), requested: newSet(11, wanted, "9")},
	} {
		t.Run(name, func(t *testing.T) {
			reader := replicasetpods.Reader{Reader: cache(t, tc.granted)}
			response := NewMutator(admission.NewDecoder(scheme(t)), reader, identity).Handle(t.Context(), updating(t, tc.who, tc.old, tc.requested))
			if diff := cmp.Diff(tc.want, patches(t, response)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if warns := len(response.Warnings) > 0; warns != tc.warns {
				t.Errorf("warnings %v, want some: %v", response.Warnings, tc.warns)
			}
		})
	}
}

func TestWarningsNameTheWayOut(t *testing.T) {
	reader := replicasetpods.Reader{Reader: cache(t, 2)}
	response := NewMutator(admission.NewDecoder(scheme(t)), reader, identity).Handle(t.Context(), updating(t, user, newSet(12), newSet(9)))
	want := []string{
		"PodOps keeps 10 replicas until pods may be deleted, and goes on to 9. " +
			"Why they wait: kubectl get podtransitionrule -n default -o wide. To withdraw: kubectl scale -n default rs/web --replicas=12",
	}
	if diff := cmp.Diff(want, response.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestMutatorLeavesRequestsThatConflict(t *testing.T) {
	old, requested := newSet(12), newSet(9)
	old.ResourceVersion, requested.ResourceVersion = "2", "1"
	reader := replicasetpods.Reader{Reader: cache(t, 0)}
	response := NewMutator(admission.NewDecoder(scheme(t)), reader, identity).Handle(t.Context(), updating(t, user, old, requested))
	if len(patches(t, response)) > 0 || len(response.Warnings) > 0 {
		t.Errorf("patch %v, warnings %v of a request that is not carried out", response.Patches, response.Warnings)
	}
}

func TestReplicaSetsAreCreatedWithoutDemand(t *testing.T) {
	request := updating(t, controller, nil, newSet(0, wanted, "9", "a", "b"))
	request.Operation, request.OldObject = admissionv1.Create, runtime.RawExtension{}
	response := NewMutator(admission.NewDecoder(scheme(t)), replicasetpods.Reader{Reader: cache(t, 0)}, identity).Handle(t.Context(), request)
	if diff := cmp.Diff([]string{"remove /metadata/annotations/desired-replicas"}, patches(t, response)); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
}

func scaleOf(replicas int32) *autoscalingv1.Scale {
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web-uid"}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas},
	}
}

func TestScaler(t *testing.T) {
	for name, tc := range map[string]struct {
		stored             *appsv1.ReplicaSet
		from, to           int32
		granted            int
		unverified, dryRun bool
		want               []string
		annotation         string // afterwards
	}{
		"a scale-down is kept and recorded":     {stored: newSet(12), from: 12, to: 9, want: []string{"replace /spec/replicas 12"}, annotation: "9"},
		"granted pods may go":                   {stored: newSet(12), from: 12, to: 9, granted: 2, want: []string{"replace /spec/replicas 10"}, annotation: "9"},
		"the kept number withdraws the demand":  {stored: newSet(12, wanted, "9"), from: 12, to: 12},
		"a larger number withdraws it":          {stored: newSet(12, wanted, "9"), from: 12, to: 14},
		"a dry run records nothing":             {stored: newSet(12), from: 12, to: 9, dryRun: true, want: []string{"replace /spec/replicas 12"}},
		"a dry run withdraws nothing":           {stored: newSet(12, wanted, "9"), from: 12, to: 12, dryRun: true, annotation: "9"},
		"a review that may be forged is let go": {stored: newSet(12), from: 12, to: 9, unverified: true},
		"pods that are not controlled may go":   {stored: free(newSet(12)), from: 12, to: 9},
	} {
		t.Run(name, func(t *testing.T) {
			c := cache(t, tc.granted, tc.stored)
			request := updating(t, user, scaleOf(tc.from), scaleOf(tc.to))
			request.DryRun = &tc.dryRun
			ctx := clientauth.WithVerified(t.Context(), !tc.unverified)
			response := NewScaler(admission.NewDecoder(scheme(t)), replicasetpods.Reader{Reader: c}, c, identity).Handle(ctx, request)
			if diff := cmp.Diff(tc.want, patches(t, response)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if kept := len(tc.want) > 0; kept != (len(response.Warnings) > 0) {
				t.Errorf("warnings %v", response.Warnings)
			}
			if got := stored(t, c).Annotations[wanted]; got != tc.annotation {
				t.Errorf("recorded %q, want %q", got, tc.annotation)
			}
		})
	}
}

func stored(t *testing.T, c client.Client) *appsv1.ReplicaSet {
	t.Helper()
	set := &appsv1.ReplicaSet{}
	if err := c.Get(context.Background(), types.NamespacedName{Namespace: "default", Name: "web"}, set); err != nil {
		t.Fatal(err)
	}
	return set
}

func TestDeploymentMutator(t *testing.T) {
	deployment := func(strategy appsv1.DeploymentStrategyType, annotations ...string) *appsv1.Deployment {
		set := newSet(12, annotations...)
		d := &appsv1.Deployment{ObjectMeta: set.ObjectMeta}
		d.Spec.Replicas, d.Spec.Template, d.Spec.Strategy.Type = set.Spec.Replicas, set.Spec.Template, strategy
		return d
	}
	const recreate, rolling = appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType
	for name, tc := range map[string]struct {
		deployment *appsv1.Deployment
		unverified bool
		bound      string
		want       []string
		warns      string
	}{
		"annotations of a ReplicaSet are removed": {
			deployment: deployment(rolling, wanted, "9", lowest, "10", "a", "b"), bound: "50%",
			want: []string{"remove /metadata/annotations/desired-replicas", "remove /metadata/annotations/lowest-replicas"},
		},
		"Recreate never finishes below 100 %":     {deployment: deployment(recreate), bound: "50%", warns: "PodTransitionRule [half]"},
		"Recreate finishes with 100 %":            {deployment: deployment(recreate), bound: "100%"},
		"Recreate finishes with as many pods":     {deployment: deployment(recreate), bound: "12"},
		"an unverified review names no rule":      {deployment: deployment(recreate), bound: "50%", unverified: true, warns: "an availability rule below 100 %: use"},
		"RollingUpdate finishes with any of them": {deployment: deployment(rolling), bound: "50%"},
	} {
		t.Run(name, func(t *testing.T) {
			ruleset := &appsv1alpha1.PodTransitionRule{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "half"}}
			ruleset.Spec.Selector = &metav1.LabelSelector{MatchLabels: tc.deployment.Spec.Template.Labels}
			ruleset.Spec.Rules = []appsv1alpha1.TransitionRule{{
				Name: "half", AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: new(intstr.Parse(tc.bound))},
			}}
			c := cache(t, 0, ruleset)
			ctx := clientauth.WithVerified(t.Context(), !tc.unverified)
			response := NewDeploymentMutator(admission.NewDecoder(scheme(t)), c).Handle(ctx, updating(t, user, tc.deployment, tc.deployment))
			if diff := cmp.Diff(tc.want, patches(t, response)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if got := strings.Join(response.Warnings, "\n"); (tc.warns == "") != (got == "") || !strings.Contains(got, tc.warns) {
				t.Errorf("warnings %q, want %q", got, tc.warns)
			}
		})
	}
}
