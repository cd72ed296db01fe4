package replicaset

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/state/replicasetpods"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
)

const (
	woken  = appsv1alpha1.WokenAnnotationKey
	wanted = appsv1alpha1.DesiredReplicasAnnotationKey
	lowest = appsv1alpha1.LowestReplicasAnnotationKey
	scaled = "deployment.kubernetes.io/desired-replicas"
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

// rolling makes the ReplicaSet an old ReplicaSet of the Deployment web.
func rolling(set *appsv1.ReplicaSet) *appsv1.ReplicaSet { return inRollout(set, "1") }

// newest makes it the one of the present template.
func newest(set *appsv1.ReplicaSet) *appsv1.ReplicaSet { return inRollout(set, "2") }

func inRollout(set *appsv1.ReplicaSet, revision string) *appsv1.ReplicaSet {
	set.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "d", Controller: new(true)}}
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, appsv1alpha1.DeploymentRevisionAnnotationKey, revision)
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

func updating(t *testing.T, old, requested any) admission.Request {
	t.Helper()
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Update, Namespace: "default", Name: "web",
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
		old, requested *appsv1.ReplicaSet
		granted        int
		total          int32  // pods of the status
		stored         string // the revision of the Deployment, if it is another revision than in the cache
		want           []string
	}{
		"a step of a rollout is kept": {
			old: rolling(newSet(12)), requested: rolling(newSet(9)), want: []string{"replace /spec/replicas 12", `add /metadata/annotations/desired-replicas "9"`},
		},
		"granted pods may go, and the wake has ended": {
			old: rolling(newSet(12, woken, "t")), requested: rolling(newSet(9, woken, "t")), granted: 2,
			want: []string{"replace /spec/replicas 10", `add /metadata/annotations/desired-replicas "9"`},
		},
		"the last pods go": {
			old: rolling(newSet(12, woken, "t")), requested: rolling(newSet(9, woken, "t")), granted: 3,
			want: []string{"remove /metadata/annotations/woken"},
		},
		"a repeated request writes nothing": {
			old: rolling(newSet(12, wanted, "9")), requested: rolling(newSet(9, wanted, "9")), want: []string{"replace /spec/replicas 12"},
		},
		"with its Deployment it is lowered": {old: rolling(newSet(12, scaled, "12")), requested: rolling(newSet(9, scaled, "9"))},
		"a ReplicaSet alone is lowered":     {old: newSet(12), requested: newSet(9)},
		"and the record of an earlier version is removed": {
			old: newSet(12, wanted, "9"), requested: newSet(8, wanted, "9"), want: []string{"remove /metadata/annotations/desired-replicas"},
		},
		"the newest ReplicaSet is lowered": {old: newest(newSet(12)), requested: newest(newSet(9))},
		"a step is kept although the cache does not show the newest revision yet": {
			old: newest(newSet(12)), requested: newest(newSet(9)), stored: "3", want: []string{"replace /spec/replicas 12", `add /metadata/annotations/desired-replicas "9"`},
		},
		"a ReplicaSet with pods of others, too": {old: rolling(newSet(12)), requested: rolling(newSet(9)), total: 13},
		"a raised ReplicaSet passes":            {old: rolling(newSet(12)), requested: rolling(newSet(13))},
		"pods that are not controlled may go":   {old: free(rolling(newSet(12))), requested: free(rolling(newSet(9)))},
	} {
		t.Run(name, func(t *testing.T) {
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "web", UID: "d", Annotations: map[string]string{appsv1alpha1.DeploymentRevisionAnnotationKey: "2"},
			}}
			tc.old.Status.Replicas = tc.total
			stored := deployment.DeepCopy()
			if tc.stored != "" {
				stored.Annotations[appsv1alpha1.DeploymentRevisionAnnotationKey] = tc.stored
			}
			reader, live := replicasetpods.Reader{Reader: cache(t, tc.granted, deployment)}, replicasetpods.Reader{Reader: cache(t, 0, stored)}
			response := NewMutator(admission.NewDecoder(scheme(t)), reader, live).Handle(t.Context(), updating(t, tc.old, tc.requested))
			if diff := cmp.Diff(tc.want, patches(t, response)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if len(response.Warnings) > 0 {
				t.Errorf("warnings %v", response.Warnings)
			}
		})
	}
}

func TestMutatorLeavesRequestsThatConflict(t *testing.T) {
	old, requested := rolling(newSet(12)), rolling(newSet(9))
	old.ResourceVersion, requested.ResourceVersion = "2", "1"
	reader := replicasetpods.Reader{Reader: cache(t, 0)}
	response := NewMutator(admission.NewDecoder(scheme(t)), reader, reader).Handle(t.Context(), updating(t, old, requested))
	if len(patches(t, response)) > 0 {
		t.Errorf("patch %v of a request that is not carried out", response.Patches)
	}
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
			response := NewDeploymentMutator(admission.NewDecoder(scheme(t)), c).Handle(ctx, updating(t, tc.deployment, tc.deployment))
			if diff := cmp.Diff(tc.want, patches(t, response)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if got := strings.Join(response.Warnings, "\n"); (tc.warns == "") != (got == "") || !strings.Contains(got, tc.warns) {
				t.Errorf("warnings %q, want %q", got, tc.warns)
			}
		})
	}
}
