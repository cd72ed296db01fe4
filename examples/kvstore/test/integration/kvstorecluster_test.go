// Package kvstore_test tests which KVStoreClusters a real API server accepts, and that its defaults cause no
// writes of the operator.
package kvstore_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/test/expect"
)

func TestKVStore(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "KVStoreCluster")
}

// admin is the administrator's client.
var admin client.Client

var _ = BeforeSuite(func() {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	Expect(assets).NotTo(BeEmpty(), "KUBEBUILDER_ASSETS must name the folder with kube-apiserver and etcd; `make test-integration` sets it")
	ctrl.SetLogger(GinkgoLogr)
	environment := &envtest.Environment{
		BinaryAssetsDirectory:    assets,
		CRDDirectoryPaths:        []string{filepath.Join("..", "..", "config", "operator", "crd")},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: 2 * time.Minute,
		ControlPlaneStopTimeout:  time.Minute,
	}
	config, err := environment.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(environment.Stop)
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(kvstorev1.AddToScheme(scheme)).To(Succeed())
	admin, err = client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
})

// cluster returns a cluster whose spec has the fields of a valid spec, changed by a merge patch; null removes a
// field.
func cluster(name, change string) *unstructured.Unstructured {
	GinkgoHelper()
	spec := map[string]any{}
	for _, text := range []string{`{version: 1.0.0, replicas: 3, storage: {className: standard, size: 10Gi}}`, change} {
		fields := map[string]any{}
		Expect(yaml.Unmarshal([]byte(text), &fields)).To(Succeed())
		for key, value := range fields {
			spec[key] = value
			if value == nil {
				delete(spec, key)
			}
		}
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(kvstorev1.GroupVersion().WithKind("KVStoreCluster"))
	object.SetNamespace(metav1.NamespaceDefault)
	object.SetName(name)
	return object
}

var _ = Describe("A KVStoreCluster", func() {
	DescribeTable("is accepted", func(ctx context.Context, change string) {
		Expect(admin.Create(ctx, cluster("db", change), client.DryRunAll)).To(Succeed())
	},
		Entry("without a strategy", `{}`),
		Entry("with the strategy Canary", `{upgradeStrategy: Canary}`),
		Entry("with one replica", `{replicas: 1}`),
		Entry("with 9 replicas", `{replicas: 9}`),
		Entry("with a tag of 128 characters", `{version: "`+strings.Repeat("v", 128)+`"}`),
		Entry("with a size without a unit", `{storage: {className: standard, size: "1000000"}}`),
	)

	DescribeTable("is rejected", func(ctx context.Context, change string, texts ...string) {
		Expect(admin.Create(ctx, cluster("db", change), client.DryRunAll)).To(expect.BeRefused(422, texts...))
	},
		Entry("without a version", `{version: null}`, "spec.version", "Required value"),
		Entry("with an empty version", `{version: ""}`, "spec.version", "at least 1"),
		Entry("with a version that is no tag", `{version: "1.0+build"}`, "spec.version", "should match"),
		Entry("with a version that begins with a dot", `{version: .1}`, "spec.version"),
		Entry("with a version of 129 characters", `{version: "`+strings.Repeat("v", 129)+`"}`, "spec.version", "128"),
		Entry("without replicas", `{replicas: null}`, "spec.replicas", "Required value"),
		Entry("with no replica", `{replicas: 0}`, "spec.replicas", "greater than or equal to 1"),
		Entry("with 10 replicas", `{replicas: 10}`, "spec.replicas", "less than or equal to 9"),
		Entry("without storage", `{storage: null}`, "spec.storage", "Required value"),
		Entry("without a class", `{storage: {size: 1Gi}}`, "spec.storage.className", "Required value"),
		Entry("with a long class", `{storage: {className: `+strings.Repeat("c", 254)+`, size: 1Gi}}`, "spec.storage.className", "253"),
		Entry("without a size", `{storage: {className: standard}}`, "spec.storage.size", "Required value"),
		Entry("with a size that is no quantity", `{storage: {className: standard, size: large}}`, "spec.storage.size", "size must be a quantity above 0"),
		Entry("with a size of 0", `{storage: {className: standard, size: "0"}}`, "spec.storage.size", "size must be a quantity above 0"),
		Entry("with a negative size", `{storage: {className: standard, size: -1Gi}}`, "spec.storage.size", "size must be a quantity above 0"),
		Entry("with an unknown strategy", `{upgradeStrategy: BlueGreen}`, "spec.upgradeStrategy", "RollingUpdate", "Canary"),
	)

	DescribeTable("is rejected by its name", func(ctx context.Context, name string) {
		Expect(admin.Create(ctx, cluster(name, `{}`), client.DryRunAll)).To(expect.BeRefused(422, "the name must be a DNS label of at most 40 characters"))
	},
		Entry("of 41 characters", strings.Repeat("n", 41)),
		Entry("with a dot", "my.cluster"),
		Entry("that begins with a digit", "1st"),
	)

	It("may change its version, replicas and strategy, and keeps its storage", func(ctx context.Context) {
		object := cluster("changes", `{}`)
		Expect(admin.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, object)).To(Succeed()) })
		strategy, _, err := unstructured.NestedString(object.Object, "spec", "upgradeStrategy")
		Expect(err).NotTo(HaveOccurred())
		Expect(strategy).To(Equal("RollingUpdate"), "the default")
		patch := func(spec string) error {
			return admin.Patch(ctx, object.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":`+spec+`}`)))
		}
		Expect(patch(`{"version":"2.0.0","replicas":5,"upgradeStrategy":"Canary"}`)).To(Succeed())
		for _, storage := range []string{`{"size":"20Gi"}`, `{"className":"fast"}`} {
			Expect(patch(`{"storage":` + storage + `}`)).To(expect.BeRefused(422, "spec.storage", "storage cannot be changed"))
		}
	})
})
