package manifests_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/operator/certificates"
	"github.com/podops-dev/podops/test/observed"
)

// All steps use the rights of the manager.
var _ = Describe("The serving certificate", Serial, func() {
	secret := func() *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "podops-system", Name: certificates.SecretName}}
	}
	// made waits for a certificate other than the old one that the API server trusts, in every
	// webhook.
	made := func(ctx context.Context, old []byte) {
		GinkgoHelper()
		namespace := newNamespace(ctx)
		Eventually(func(g Gomega) {
			current := secret()
			g.Expect(server.admin.Get(ctx, client.ObjectKeyFromObject(current), current)).To(Succeed())
			g.Expect(current.Data["tls.crt"]).NotTo(Equal(old))
			g.Expect(bundles(ctx)).To(HaveEach(ContainSubstring(strings.TrimSpace(string(current.Data["ca.crt"])))))
			g.Expect(server.admin.Create(ctx, newPod(namespace))).To(Succeed())
			g.Expect(manager.certificates.Ready(nil)).To(Succeed())
		}).Should(Succeed())
		Expect(observed.WebhookConfigurations(ctx, server.admin)).To(Succeed())
	}
	current := func(ctx context.Context) *corev1.Secret {
		GinkgoHelper()
		s := secret()
		Expect(server.admin.Get(ctx, client.ObjectKeyFromObject(s), s)).To(Succeed())
		return s
	}

	It("is issued again when the secret is deleted", func(ctx context.Context) {
		old := current(ctx)
		Expect(server.admin.Delete(ctx, secret())).To(Succeed())
		made(ctx, old.Data["tls.crt"])
	})

	It("is issued again when the secret is garbage", func(ctx context.Context) {
		// The manager may write the object between the two requests.
		Eventually(func() error {
			s := current(ctx)
			s.Data = map[string][]byte{"ca.crt": []byte("x"), "tls.crt": []byte("y")}
			return server.admin.Update(ctx, s)
		}).Should(Succeed())
		made(ctx, []byte("y"))
	})

	It("is trusted again when a webhook configuration lost its CA", func(ctx context.Context) {
		Eventually(func() error {
			configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
			if err := server.admin.Get(ctx, client.ObjectKey{Name: certificates.ValidatingConfigurationName}, configuration); err != nil {
				return err
			}
			for i := range configuration.Webhooks {
				configuration.Webhooks[i].ClientConfig.CABundle = nil
			}
			return server.admin.Update(ctx, configuration)
		}).Should(Succeed())
		made(ctx, nil)
	})
})

// bundles returns the CA bundle of every webhook.
func bundles(ctx context.Context) []string {
	GinkgoHelper()
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	Expect(server.admin.Get(ctx, client.ObjectKey{Name: certificates.ValidatingConfigurationName}, validating)).To(Succeed())
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	Expect(server.admin.Get(ctx, client.ObjectKey{Name: certificates.MutatingConfigurationName}, mutating)).To(Succeed())
	var found []string
	for _, webhook := range validating.Webhooks {
		found = append(found, string(webhook.ClientConfig.CABundle))
	}
	for _, webhook := range mutating.Webhooks {
		found = append(found, string(webhook.ClientConfig.CABundle))
	}
	return found
}
