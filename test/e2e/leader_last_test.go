package e2e_test

import (
	"bytes"
	"context"
	"os/exec"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

// deleteCommand is the command with which explain lets another pod go first.
var deleteCommand = regexp.MustCompile(`kubectl podops delete pod \S+ -n \S+`)

// The shipped policy leader-last on workloads whose controllers remove the leader first.
var _ = Describe("The policy leader-last", func() {
	var p scenario

	BeforeEach(func(ctx context.Context) {
		p = newScenario(ctx)
		p.kubectl(ctx, "apply", "-n", p.namespace, "-f", "../../config/samples/policies/leader-last.yaml")
		DeferCleanup(func(ctx context.Context) {
			Expect(p.admin.DeleteAllOf(ctx, &appsv1alpha1.PodTransitionRule{}, client.InNamespace(p.namespace))).To(Succeed())
			policy := &appsv1alpha1.PodTransitionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "leader-last"}}
			Eventually(ctx, func(ctx context.Context) error { return client.IgnoreNotFound(p.admin.Delete(ctx, policy)) }).Should(Succeed())
		})
	})

	// selected returns a pod template that the sample rule selects.
	selected := func() (*metav1.LabelSelector, corev1.PodTemplateSpec) {
		template := template()
		template.Labels["app"] = "db"
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, template
	}

	It("lets the other pods of a Deployment go before the leader, which its ReplicaSet names first", func(ctx context.Context) {
		selector, template := selected()
		deployment := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "db"},
			Spec:       appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: selector, Template: template},
		}
		Expect(p.admin.Create(ctx, deployment)).To(Succeed())
		p.awaitAvailable(ctx, 3)
		leader := p.list(ctx)[0]
		p.patch(ctx, leader, `{"metadata":{"labels":{"role":"primary"},"annotations":{"`+corev1.PodDeletionCost+`":"-1"}}}`)
		p.patch(ctx, deployment, `{"spec":{"template":{"metadata":{"annotations":{"rolled":"1"}}}}}`)
		Eventually(ctx, p.list).WithTimeout(2 * patience).Should(And(HaveLen(3), expect.All(And(expect.BeAvailable(), HaveField("Annotations", HaveKey("rolled"))))))
	})

	It("has explain name the command that lets the pods of a StatefulSet go before a leader of the highest ordinal", func(ctx context.Context) {
		selector, template := selected()
		set := &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "db"},
			Spec:       appsv1.StatefulSetSpec{Replicas: new(int32(3)), Selector: selector, Template: template},
		}
		Expect(p.admin.Create(ctx, set)).To(Succeed())
		p.awaitAvailable(ctx, 3)
		p.label(ctx, p.get(ctx, "db-2"), "role", "primary")
		p.patch(ctx, set, `{"spec":{"template":{"metadata":{"annotations":{"rolled":"1"}}}}}`)

		for _, lower := range []string{"db-0", "db-1"} {
			var command string
			Eventually(ctx, func(ctx context.Context) string {
				out, _ := run(ctx, "kubectl-podops", "explain", "pod/db-2", "--kubeconfig", p.kubeconfig, "-n", p.namespace)
				command = deleteCommand.FindString(out)
				return command
			}).Should(ContainSubstring(" " + lower + " "))
			arguments := strings.Fields(strings.TrimPrefix(command, "kubectl podops "))
			deletion := exec.CommandContext(ctx, requireProgram("kubectl-podops"), append(arguments, "--kubeconfig", p.kubeconfig)...)
			var out bytes.Buffer
			deletion.Stdout, deletion.Stderr = &out, &out
			Expect(deletion.Run()).To(Succeed(), out.String())
			Eventually(ctx, p.seeing(lower)).Should(And(expect.BeAvailable(), HaveField("Annotations", HaveKey("rolled"))))
		}
		Eventually(ctx, p.list).Should(And(HaveLen(3), expect.All(And(expect.BeAvailable(), HaveField("Annotations", HaveKey("rolled"))))))
	})
})
