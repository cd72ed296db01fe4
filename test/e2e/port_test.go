package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podwebhook "github.com/podops-dev/podops/pkg/webhooks/pod"
	"github.com/podops-dev/podops/test/expect"
	"github.com/podops-dev/podops/test/managerprocess"
)

var _ = Describe("The webhook port", func() {
	It("reveals nothing of a namespace to a review that anyone may have forged", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, approved())
		p.replicaSet(ctx, 2)
		answer := forge(ctx, managers.leaders()[0], podwebhook.DeletePath, deletion(p.list(ctx)[0]))
		Expect(answer.Allowed).To(BeFalse())
		Expect(answer.Result.Message).To(HaveSuffix("Why: kubectl get podtransitionrule -n " + p.namespace + " -o wide"))
	})

	It("serves only the API server, with names in its answers, when that sends a client certificate", func(ctx context.Context) {
		managers.stopAll()
		DeferCleanup(func(ctx context.Context) {
			managers.stopAll()
			managers.start(ctx)
		})
		m := managers.launch("--webhook-client-ca", filepath.Join(suiteCluster.dir, "cluster", "ca.crt"), "--webhook-client-names", "kube-apiserver-webhook-client")
		Eventually(ctx, m.Ready).Should(Succeed())

		p := newScenario(ctx)
		p.rule(ctx, minAvailable("4"))
		set := p.replicaSet(ctx, 4)
		controller := p.asReplicaSetController()
		p.scale(ctx, set, 3)
		var waiting *corev1.Pod
		Eventually(ctx, p.list).Should(ContainElement(expect.BeWaiting(podDelete), &waiting))
		Eventually(ctx, func(ctx context.Context) error { return controller.Delete(ctx, waiting) }).
			Should(expect.BeRefused(429, "kubectl get podtransitionrule web -n "+p.namespace))

		By("serving no other client")
		_, err := send(ctx, m, podwebhook.DeletePath, deletion(waiting))
		Expect(err).To(HaveOccurred())
		Eventually(m.Log).Should(ContainSubstring("client didn't provide a certificate"))
	})
})

var _ = Describe("Metrics", func() {
	It("are served to the ServiceMonitor, and to no user without its rights", func(ctx context.Context) {
		m := managers.launch("--metrics-secure=true")
		DeferCleanup(func() {
			m.stop()
			Eventually(m.Ended()).Should(BeClosed())
		})
		p := newScenario(ctx)
		stranger := p.token(ctx, "stranger")

		By("reading the token and the CA as the ServiceMonitor does")
		rights := filepath.Join("..", "..", "config", "components", "service-monitor", "reader.yaml")
		p.kubectl(ctx, "apply", "--server-side", "-f", rights)
		DeferCleanup(func(ctx context.Context) { p.kubectl(ctx, "delete", "--ignore-not-found", "-f", rights) })
		data := func(name, key string) []byte {
			GinkgoHelper()
			var secret corev1.Secret
			Eventually(ctx, func(ctx context.Context) ([]byte, error) {
				err := p.admin.Get(ctx, client.ObjectKey{Namespace: managerprocess.Namespace, Name: name}, &secret)
				return secret.Data[key], err
			}).ShouldNot(BeEmpty(), name)
			return secret.Data[key]
		}
		reader, roots := string(data("podops-metrics-reader", "token")), x509.NewCertPool()
		Expect(roots.AppendCertsFromPEM(data("podops-webhook-certs", "ca.crt"))).To(BeTrue())
		prometheus := &http.Client{Timeout: patience, Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "podops-webhook"},
		}}

		get := func(token string) func() (int, error) {
			return func() (int, error) {
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+m.metric+"/metrics", nil)
				Expect(err).NotTo(HaveOccurred())
				if token != "" {
					request.Header.Set("Authorization", "Bearer "+token)
				}
				answer, err := prometheus.Do(request)
				if err != nil {
					return 0, err
				}
				defer answer.Body.Close()
				return answer.StatusCode, nil
			}
		}
		Eventually(get("")).Should(Equal(http.StatusUnauthorized))
		Eventually(get(stranger)).Should(Equal(http.StatusForbidden))
		Eventually(get(reader)).Should(Equal(http.StatusOK))
	})
})

// anyServer returns a client that trusts every certificate, and has none.
func anyServer() *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
}

// deletion returns a review of a DELETE by the ReplicaSet controller.
func deletion(pod *corev1.Pod) *admissionv1.AdmissionReview {
	GinkgoHelper()
	raw, err := json.Marshal(pod)
	Expect(err).NotTo(HaveOccurred())
	dryRun := true
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "forged", Operation: admissionv1.Delete, Namespace: pod.Namespace, Name: pod.Name, DryRun: &dryRun,
			Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			UserInfo:  authenticationv1.UserInfo{Username: "system:serviceaccount:kube-system:replicaset-controller"},
			OldObject: runtime.RawExtension{Raw: raw},
		},
	}
}

// send sends a review to the port of a manager, as any pod can.
func send(ctx context.Context, m *manager, path string, review *admissionv1.AdmissionReview) (*http.Response, error) {
	GinkgoHelper()
	body, err := json.Marshal(review)
	Expect(err).NotTo(HaveOccurred())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+m.webhook+path, bytes.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/json")
	return anyServer().Do(request)
}

// forge returns the answer to a forged review.
func forge(ctx context.Context, m *manager, path string, review *admissionv1.AdmissionReview) *admissionv1.AdmissionResponse {
	GinkgoHelper()
	answer, err := send(ctx, m, path, review)
	Expect(err).NotTo(HaveOccurred())
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	Expect(err).NotTo(HaveOccurred())
	got := &admissionv1.AdmissionReview{}
	Expect(json.Unmarshal(text, got)).To(Succeed(), string(text))
	return got.Response
}
