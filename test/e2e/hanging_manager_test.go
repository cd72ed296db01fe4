package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// delayed is a request while the manager hangs.
type delayed struct {
	name  string
	row   string // the first column of its row in docs/security.md
	send  func(context.Context) error
	fails bool
}

// documentedBounds returns the request timeouts by table row in docs/security.md.
func documentedBounds() map[string]time.Duration {
	GinkgoHelper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "security.md"))
	Expect(err).NotTo(HaveOccurred())
	bounds := map[string]time.Duration{}
	for _, row := range regexp.MustCompile(`(?m)^\| (.+?) \| (none|\d+ s) \| [\d.]+ `).FindAllStringSubmatch(string(page), -1) {
		bound := time.Duration(0)
		if row[2] != "none" {
			bound, err = time.ParseDuration(strings.ReplaceAll(row[2], " ", ""))
			Expect(err).NotTo(HaveOccurred())
		}
		bounds[strings.Trim(row[1], "*")] = bound
	}
	return bounds
}

var _ = Describe("A manager that hangs", func() {
	It("delays requests for no longer than the documentation has", func(ctx context.Context) {
		bounds := documentedBounds()
		p, other, excluded := newScenario(ctx), newScenario(ctx), newScenario(ctx)
		for _, name := range []string{"updated", "deleted", "evicted"} {
			other.pod(ctx, name, func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "other"} })
		}
		plain := &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: other.namespace, Name: "plain"},
			Spec: appsv1.ReplicaSetSpec{
				Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "plain"}}, Template: template(),
			},
		}
		plain.Spec.Template.Labels = map[string]string{"app": "plain"}
		Expect(p.admin.Create(ctx, plain)).To(Succeed())
		excluded.patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: excluded.namespace}}, `{"metadata":{"labels":{"kusionstack.io/control":"false"}}}`)
		excluded.pod(ctx, "excluded", nil)
		p.pods(ctx, 3, nil)

		p, other, excluded = p.once(), other.once(), excluded.once()

		By("stopping the processes of the manager")
		for _, m := range managers.running() {
			Expect(m.Signal(syscall.SIGSTOP)).To(Succeed())
		}
		DeferCleanup(func(ctx context.Context) {
			for _, m := range managers.running() {
				m.Kill()
			}
			managers.start(ctx)
		})

		patch := func(object client.Object, patch string) func(context.Context) error {
			return func(ctx context.Context) error {
				return p.admin.Patch(ctx, object.DeepCopyObject().(client.Object), client.RawPatch(types.StrategicMergePatchType, []byte(patch)))
			}
		}
		scaled := func(object client.Object) func(context.Context) error {
			return func(ctx context.Context) error {
				return p.admin.SubResource("scale").Patch(ctx, object.DeepCopyObject().(client.Object),
					client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`)))
			}
		}
		const image = `{"spec":{"containers":[{"name":"web","image":"registry.example.com/web:v2"}]}}`
		created := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: other.namespace, Name: "created"}, Spec: template().Spec}
		controlled := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "created", Labels: labels()}, Spec: template().Spec}
		rule := &appsv1alpha1.PodTransitionRule{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "web"},
			Spec: appsv1alpha1.PodTransitionRuleSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels()}, Rules: []appsv1alpha1.TransitionRule{approved()},
			},
		}
		const (
			outsideRow       = "create, label, set the image of, or delete a pod without the label"
			setRow           = "update or scale a ReplicaSet of such pods"
			outsideEvictRow  = "evict a pod without the label"
			excludedEvictRow = "evict a pod in a namespace with `kusionstack.io/control: \"false\"`"
			imageRow         = "set the image of a pod under PodOps"
			changedRow       = "create a pod under PodOps, or change labels or finalizers of it"
			removedRow       = "delete or evict a pod under PodOps"
			rulesRow         = "create a PodTransitionRule"
		)
		var took []string
		for _, request := range []delayed{
			{name: "pod outside: create", row: outsideRow, send: func(ctx context.Context) error { return p.admin.Create(ctx, created) }},
			{name: "pod outside: label", row: outsideRow, send: patch(other.get(ctx, "updated"), `{"metadata":{"labels":{"note":"x"}}}`)},
			{name: "pod outside: image", row: outsideRow, send: patch(other.get(ctx, "updated"), image)},
			{name: "pod outside: delete", row: outsideRow, send: func(ctx context.Context) error { return p.admin.Delete(ctx, other.get(ctx, "deleted")) }},
			{name: "pod outside: evict", row: outsideEvictRow, send: func(ctx context.Context) error { return other.evict(ctx, other.get(ctx, "evicted")) }},
			{name: "pod of an excluded namespace: evict", row: excludedEvictRow, send: func(ctx context.Context) error { return excluded.evict(ctx, excluded.get(ctx, "excluded")) }},
			{name: "ReplicaSet outside: update", row: setRow, send: patch(plain, `{"metadata":{"labels":{"note":"x"}}}`)},
			{name: "ReplicaSet outside: scale", row: setRow, send: scaled(plain)},
			{name: "pod under PodOps: image", row: imageRow, send: patch(p.get(ctx, "web-00"), image)},
			{name: "pod under PodOps: create", row: changedRow, send: func(ctx context.Context) error { return p.admin.Create(ctx, controlled) }, fails: true},
			{name: "pod under PodOps: label", row: changedRow, send: patch(p.get(ctx, "web-00"), `{"metadata":{"labels":{"note":"x"}}}`), fails: true},
			{name: "pod under PodOps: delete", row: removedRow, send: func(ctx context.Context) error { return p.admin.Delete(ctx, p.get(ctx, "web-01")) }},
			{name: "pod under PodOps: evict", row: removedRow, send: func(ctx context.Context) error { return p.evict(ctx, p.get(ctx, "web-02")) }},
			{name: "PodTransitionRule: create", row: rulesRow, send: func(ctx context.Context) error { return p.admin.Create(ctx, rule) }, fails: true},
		} {
			start := time.Now()
			err := request.send(ctx)
			duration := time.Since(start)
			took = append(took, fmt.Sprintf("%s: %.2f s, %v", request.name, duration.Seconds(), err))
			Expect(err != nil).To(Equal(request.fails), "%s: %v", request.name, err)
			Expect(bounds).To(HaveKey(request.row))
			// The machine may have other load.
			Expect(duration).To(BeNumerically("<", bounds[request.row]+1500*time.Millisecond), request.name)
		}
		for _, line := range took {
			GinkgoWriter.Println(line)
		}
		AddReportEntry("times while the manager hangs", took)
	})
})
