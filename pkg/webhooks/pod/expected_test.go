package pod_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/builders"
)

func TestNewPodExpectsTheFinalizersOfItsEmployers(t *testing.T) {
	all := map[string]string{"Service/default/web": "prot.podopslifecycle.kusionstack.io/1"}
	both := `{"expectedFinalizers":{"Service/default/own":"prot.podopslifecycle.kusionstack.io/2","Service/default/web":"prot.podopslifecycle.kusionstack.io/1"}}`
	for sentence, tc := range map[string]struct {
		pod      *corev1.Pod
		expected map[string]string
		err      error
		want     any // of the patch; nil: none
	}{
		"a pod without annotations": {
			pod: builders.MakePod("web").Obj(), expected: all,
			want: map[string]any{appsv1alpha1.AvailableConditionsAnnotationKey: `{"expectedFinalizers":{"Service/default/web":"prot.podopslifecycle.kusionstack.io/1"}}`},
		},
		"a pod with an expectation of its own": {
			pod: builders.MakePod("web").Expect("Service/default/own", "prot.podopslifecycle.kusionstack.io/2").Obj(), expected: all, want: both,
		},
		"a pod with the same expectation": {pod: builders.MakePod("web").Expect("Service/default/web", "prot.podopslifecycle.kusionstack.io/1").Obj(), expected: all},
		"a pod without employers":         {pod: builders.MakePod("web").Obj()},
		"a pod that is not under PodOps":  {pod: builders.MakePod("web").Uncontrolled().Obj(), expected: all},
		"a malformed annotation":          {pod: builders.MakePod("web").Annotation(appsv1alpha1.AvailableConditionsAnnotationKey, "{").Obj(), expected: all},
		"one employer that cannot be found": {
			pod: builders.MakePod("web").Annotation("note", "x").Obj(), expected: all, err: errors.New("no cache"),
			want: `{"expectedFinalizers":{"Service/default/web":"prot.podopslifecycle.kusionstack.io/1"}}`,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			calledFor := ""
			created := tc.pod.DeepCopy()
			created.Namespace = ""
			request := creating(t, created)
			request.Namespace = "default"
			response := mutator(t).Expecting(func(_ context.Context, pod *corev1.Pod) (map[string]string, error) {
				calledFor = pod.Namespace
				return tc.expected, tc.err
			}).Handle(t.Context(), request)
			if !response.Allowed {
				t.Fatalf("the pod is denied: %v", response.Result)
			}
			if calledFor != "default" && tc.pod.Labels[appsv1alpha1.ControlLabelKey] != "" {
				t.Errorf("called for a pod in namespace %q", calledFor)
			}
			var got any
			for _, operation := range response.Patches {
				if strings.HasPrefix(operation.Path, "/metadata/annotations") {
					got = operation.Value
				}
			}
			if diff := cmp.Diff(decoded(t, tc.want), decoded(t, got)); diff != "" {
				t.Errorf("annotation (-want +got):\n%s", diff)
			}
		})
	}
}

// decoded returns a value as a JSON decoder returns it.
func decoded(t *testing.T, value any) any {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		t.Fatal(err)
	}
	return plain
}
