package kvstore_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator/plan"
)

var _ = Describe("The objects of a cluster", func() {
	It("are not written again after the API server has set its defaults", func(ctx context.Context) {
		cluster := &kvstorev1.KVStoreCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "defaults", UID: "uid", Finalizers: []string{kvstorev1.Finalizer}},
			Spec: kvstorev1.KVStoreClusterSpec{
				Version: "1.0.0", Replicas: 3, Storage: kvstorev1.StorageSpec{ClassName: "standard", Size: "1Gi"},
			},
		}
		snapshot, settings := plan.Snapshot{Cluster: cluster}, plan.Settings{Image: "my-repo/kvstore", ProgressDeadline: time.Minute}
		first := plan.Decide(snapshot, settings, time.Now())
		snapshot.Service, snapshot.StatefulSet = first.Service, first.StatefulSet
		for _, object := range []client.Object{snapshot.Service, snapshot.StatefulSet} {
			Expect(admin.Create(ctx, object)).To(Succeed())
			DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, object)).To(Succeed()) })
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		}
		second := plan.Decide(snapshot, settings, time.Now())
		Expect(second.Service).To(BeNil())
		Expect(second.StatefulSet).To(BeNil())
	})
})
