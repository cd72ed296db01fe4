package cluster_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/cluster"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
)

func TestNotFoundNamesAnotherKind(t *testing.T) {
	snapshot := &clusterstate.Snapshot{
		Namespace:   "shop",
		Deployments: []*appsv1.Deployment{{ObjectMeta: metav1.ObjectMeta{Name: "web"}}},
		Pods:        []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "db-0"}}},
		Unreadable:  []clusterstate.Unreadable{{Resource: "daemonsets", Reason: "forbidden"}},
	}
	for arguments, want := range map[string]string{
		"web":         "pod/web does not exist in namespace shop, but deploy/web does",
		"deploy/db-0": "deploy/db-0 does not exist in namespace shop, but pod/db-0 does",
		"api":         "pod/api does not exist in namespace shop",
		"ds/web":      "ds/web in namespace shop cannot be read: forbidden",
	} {
		target, err := cluster.ParseTarget([]string{arguments}, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := cluster.NotFound(snapshot, target).Error(); got != want {
			t.Errorf("%s: %q, want %q", arguments, got, want)
		}
	}
}
