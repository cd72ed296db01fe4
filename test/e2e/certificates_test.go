package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/operator/certificates"
	"github.com/podops-dev/podops/test/managerprocess"
	"github.com/podops-dev/podops/test/observed"
)

// repairTime is how long webhooks may fail after the loss of their certificate.
const repairTime = time.Minute

var _ = Describe("The certificate of the webhooks", func() {
	DescribeTable("is issued again within a minute, and trusted",
		func(ctx context.Context, damage func(context.Context, *corev1.Secret)) {
			p := newScenario(ctx)
			before := servingSecret(ctx)
			damage(ctx, before.DeepCopy())

			Eventually(ctx, trusted).WithTimeout(repairTime).Should(Succeed())
			Expect(servingSecret(ctx).ResourceVersion).NotTo(Equal(before.ResourceVersion), "the damage was done")
			for _, m := range managers.running() {
				Eventually(ctx, m.Ready).Should(Succeed())
			}
			Expect(observed.WebhookConfigurations(ctx, suiteCluster.admin)).To(Succeed())
			Eventually(ctx, func(ctx context.Context) error {
				return p.admin.Create(ctx, &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "web", Labels: labels()}, Spec: template().Spec,
				})
			}).WithTimeout(repairTime).Should(Succeed())
			p.awaitAvailable(ctx, 1)
		},
		Entry("when the secret is deleted", func(ctx context.Context, secret *corev1.Secret) {
			Expect(suiteCluster.admin.Delete(ctx, secret)).To(Succeed())
		}),
		Entry("when the secret is garbage", func(ctx context.Context, secret *corev1.Secret) {
			for key := range secret.Data {
				secret.Data[key] = []byte("garbage")
			}
			Expect(suiteCluster.admin.Update(ctx, secret)).To(Succeed())
		}),
		Entry("when only the key of the serving certificate is missing", func(ctx context.Context, secret *corev1.Secret) {
			delete(secret.Data, "tls.key")
			Expect(suiteCluster.admin.Update(ctx, secret)).To(Succeed())
		}),
	)

	It("is trusted again after the CA was removed from a configuration", func(ctx context.Context) {
		configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: certificates.ValidatingConfigurationName}}
		remove := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`))
		Expect(suiteCluster.admin.Patch(ctx, configuration, remove)).To(Succeed())
		Expect(configuration.Webhooks[0].ClientConfig.CABundle).To(BeEmpty())
		Eventually(ctx, trusted).WithTimeout(repairTime).Should(Succeed())
		Expect(observed.WebhookConfigurations(ctx, suiteCluster.admin)).To(Succeed())
	})

	It("keeps a manager unready until the webhook configurations point to it", func(ctx context.Context) {
		managers.stopAll()
		Expect(suiteCluster.admin.Delete(ctx, servingSecret(ctx))).To(Succeed())
		configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
		Expect(suiteCluster.admin.Get(ctx, client.ObjectKey{Name: certificates.MutatingConfigurationName}, configuration)).To(Succeed())
		Expect(suiteCluster.admin.Delete(ctx, configuration)).To(Succeed())
		configuration.ResourceVersion, configuration.UID = "", ""
		m := managers.launch()
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreAlreadyExists(suiteCluster.admin.Create(ctx, configuration))).To(Succeed())
			Eventually(ctx, m.Ready).WithTimeout(repairTime).Should(Succeed())
		})
		Eventually(ctx, m.Ready).Should(MatchError(ContainSubstring("500")))
		Consistently(ctx, m.Ready).ShouldNot(Succeed())

		By("restoring the configuration, with the old CA")
		Expect(suiteCluster.admin.Create(ctx, configuration.DeepCopy())).To(Succeed())
		Eventually(ctx, m.Ready).WithTimeout(repairTime).Should(Succeed())
		Eventually(ctx, trusted).WithTimeout(repairTime).Should(Succeed())
		Expect(observed.WebhookConfigurations(ctx, suiteCluster.admin)).To(Succeed())
	})
})

// servingSecret returns the secret with the certificates of the managers.
func servingSecret(ctx context.Context) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(suiteCluster.admin.Get(ctx, client.ObjectKey{Namespace: managerprocess.Namespace, Name: certificates.SecretName}, secret)).To(Succeed())
	return secret
}

// trusted returns an error that names a webhook without the CA of a complete secret.
func trusted(ctx context.Context) error {
	secret := &corev1.Secret{}
	if err := suiteCluster.admin.Get(ctx, client.ObjectKey{Namespace: managerprocess.Namespace, Name: certificates.SecretName}, secret); err != nil {
		return err
	}
	for _, key := range []string{"ca.crt", "ca.key", "tls.crt", "tls.key"} {
		if !bytes.HasPrefix(secret.Data[key], []byte("-----BEGIN ")) {
			return fmt.Errorf("%s of the secret is not PEM", key)
		}
	}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := suiteCluster.admin.Get(ctx, client.ObjectKey{Name: certificates.MutatingConfigurationName}, mutating); err != nil {
		return err
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := suiteCluster.admin.Get(ctx, client.ObjectKey{Name: certificates.ValidatingConfigurationName}, validating); err != nil {
		return err
	}
	bundles := map[string][]byte{}
	for _, webhook := range mutating.Webhooks {
		bundles["mutating "+webhook.Name] = webhook.ClientConfig.CABundle
	}
	for _, webhook := range validating.Webhooks {
		bundles["validating "+webhook.Name] = webhook.ClientConfig.CABundle
	}
	for name, bundle := range bundles {
		if !bytes.Contains(bundle, bytes.TrimSpace(secret.Data["ca.crt"])) {
			return fmt.Errorf("webhook %s does not have the CA", name)
		}
	}
	return nil
}
