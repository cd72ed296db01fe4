package dispatch

import (
	"fmt"
	"strings"
	"testing"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

// TestResource shows that a call without parameters contains the facts that a service needs to approve a
// rollout.
func TestResource(t *testing.T) {
	pod := &rule.PodFact{
		Name: "web-6d4c-x", UID: "1", Owner: rule.Owner{Kind: "Deployment", Name: "web", UID: "2"}, Revision: rule.Revision{Current: "6d4c", State: rule.RevisionOutdated},
		Labels: map[string]string{"app": "web", "pod-template-hash": "6d4c", "operating.podopslifecycle.kusionstack.io/a": "1"},
	}
	want := webhookclient.Resource{
		APIVersion: "v1", Kind: "Pod", Name: "web-6d4c-x", UID: "1", Owner: &webhookclient.ResourceOwner{Kind: "Deployment", Name: "web"},
		Revision: "6d4c", RevisionState: "Outdated", Labels: map[string]string{"app": "web", "pod-template-hash": "6d4c"},
	}
	if diff := cmp.Diff(want, newResource(pod, nil)); diff != "" {
		t.Errorf("resource differs (-want +got):\n%s", diff)
	}
	pod.Labels, pod.Revision = map[string]string{"controller-revision-hash": "web-7"}, rule.Revision{Current: "web-7", State: rule.RevisionUnknown}
	for i := range 100 {
		pod.Labels[fmt.Sprintf("label-%03d", i)] = strings.Repeat("x", 60)
	}
	got := newResource(pod, nil)
	if got.RevisionState != "" {
		t.Errorf("state %q of a revision that is not known", got.RevisionState)
	}
	if size := len(fmt.Sprint(got.Labels)); got.Revision != "web-7" || len(got.Labels) < 50 || size > 5000 {
		t.Errorf("revision %q, %d labels of %d bytes, want web-7 and labels of about 4 KiB", got.Revision, len(got.Labels), size)
	}
}

// TestPostHasTheCauseOfADelete shows that the cause is the cause of the delete, with the ids of the pod
// in any order, and is missing where PodOps does not know it.
func TestPostHasTheCauseOfADelete(t *testing.T) {
	id := rule.RuleID{Ruleset: types.NamespacedName{Namespace: "shop", Name: "web"}, Rule: "approval"}
	moved, shrunk, updated := &rule.PodFact{Name: "web-0", UID: "0"}, &rule.PodFact{Name: "web-1", UID: "1"}, &rule.PodFact{Name: "web-2", UID: "2"}
	post := NewPost(id, appsv1alpha1.StagePreCheck, nil, webhooktask.Post{TraceID: "1", Requests: []rule.Request{
		{Pod: moved, ID: "a", Type: "update"},
		{Pod: moved, ID: "pod-delete", Type: "delete", Cause: rule.CauseRollout},
		{Pod: moved, ID: "z", Type: "update"},
		{Pod: shrunk, ID: "pod-delete", Type: "delete", Cause: rule.CauseScaleIn},
		{Pod: updated, ID: "a", Type: "update"},
	}}, func(rule.Request) *corev1.Pod { return nil })
	got := map[string]string{}
	for _, resource := range post.Resources {
		got[resource.Name] = resource.Cause
	}
	if diff := cmp.Diff(map[string]string{"web-0": "Rollout", "web-1": "ScaleIn", "web-2": ""}, got); diff != "" || len(post.Resources) != 3 {
		t.Errorf("causes of %d resources differ (-want +got):\n%s", len(post.Resources), diff)
	}
}
