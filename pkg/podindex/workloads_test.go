package podindex_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/podindex"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/test/builders"
)

// TestWorkloads has a pod wait: the snapshot has what its Deployment wants, and each change is a notification.
func TestWorkloads(t *testing.T) {
	x := newIndex(t)
	x.put(builders.MakePod("web-0").Label(appsv1.DefaultDeploymentUniqueLabelKey, "one").
		OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs-1", UID: "rs-1"}).
		Available().Waiting("a", "upgrade", builders.Epoch).Obj())
	first, second, deployment := revised("rs-1", 1, 1, 1), revised("rs-2", 2, 2, 1), workload("deploy", "", 3)
	first.TemplateLabels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "one"}
	second.TemplateLabels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "two"}
	paused, unknown := deployment, deployment
	paused.Paused, unknown.Uncounted = true, true
	for _, step := range []struct {
		name  string
		owner podindex.Owner
		want  map[types.UID]rule.Workload
	}{
		{"the ReplicaSet alone", first, map[types.UID]rule.Workload{"rs-1": {Desired: 1}}},
		{"the Deployment", deployment, map[types.UID]rule.Workload{"deploy": {Desired: 3, Revision: "one"}}},
		{"a rollout", second, map[types.UID]rule.Workload{"deploy": {Desired: 3, Revision: "two"}}},
		{"a pause", paused, map[types.UID]rule.Workload{"deploy": {Desired: 3, Revision: "two", Paused: true}}},
		{"numbers that are not known", unknown, map[types.UID]rule.Workload{}},
	} {
		x.notified = nil
		x.SetOwner(step.owner)
		if diff := cmp.Diff(step.want, x.Snapshot("default", nil).Workloads); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		if len(x.notified) == 0 {
			t.Errorf("%s is no notification", step.name)
		}
	}
}
