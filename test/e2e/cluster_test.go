package e2e_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/audit"
)

// cluster is a local control plane with the manifests applied.
type cluster struct {
	dir        string // logs and kubeconfigs of this run
	kubeconfig string // the administrator's
	config     *rest.Config
	scheme     *runtime.Scheme
	admin      client.WithWatch
	clientset  *kubernetes.Clientset
	audit      *audit.Log
}

// startCluster starts a cluster that ends with the suite, or with the container whose
// BeforeAll starts it, or with this process. flags are added to `controlplane up`.
func startCluster(ctx context.Context, flags ...string) *cluster {
	GinkgoHelper()
	dir, err := os.MkdirTemp("", "podops-e2e-")
	Expect(err).NotTo(HaveOccurred())
	state := filepath.Join(dir, "cluster")
	c := &cluster{dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig"), scheme: runtime.NewScheme()}
	DeferCleanup(func() {
		if failed || CurrentSpecReport().Failed() {
			// The logs of every component, and the audit log, are kept for debugging.
			run(context.Background(), "controlplane", "down", "--keep", "--dir", state)
			GinkgoWriter.Println("logs are kept in", dir)
			return
		}
		run(context.Background(), "controlplane", "down", "--dir", state)
		Expect(os.RemoveAll(dir)).To(Succeed())
	})
	requireProgram("kubectl")
	// A node has room for 110 pods. The largest scenario has 500.
	run(ctx, "controlplane", append([]string{"up", "--bin", controlPlaneFolder(), "--dir", state, "--kubeconfig", c.kubeconfig,
		"--nodes", "6", "--parent-pid", strconv.Itoa(os.Getpid())}, flags...)...)

	Expect(clientgoscheme.AddToScheme(c.scheme)).To(Succeed())
	Expect(appsv1alpha1.AddToScheme(c.scheme)).To(Succeed())
	c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	c.config.QPS = -1
	c.admin = c.repeating()
	c.clientset, err = kubernetes.NewForConfig(c.config)
	Expect(err).NotTo(HaveOccurred())
	c.audit, err = audit.Open(filepath.Join(state, "audit.log"))
	Expect(err).NotTo(HaveOccurred())

	_, complaints := c.kubectl(ctx, "apply", "--server-side", "-k", filepath.Join("..", "..", "config", "local"))
	Expect(complaints).To(BeEmpty(), "the manifests must apply without warnings")
	return c
}

// run runs one of the repository's programs and returns its output.
func run(ctx context.Context, program string, args ...string) (stdout, stderr string) {
	GinkgoHelper()
	var out, complaints bytes.Buffer
	command := exec.CommandContext(ctx, requireProgram(program), args...)
	command.Stdout, command.Stderr = &out, &complaints
	Expect(command.Run()).To(Succeed(), "%s %v\n%s%s", program, args, &out, &complaints)
	return out.String(), complaints.String()
}

// kubectl runs kubectl as the administrator.
func (c *cluster) kubectl(ctx context.Context, args ...string) (stdout, stderr string) {
	GinkgoHelper()
	return run(ctx, "kubectl", append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
}

// as returns a client that acts as a user, or as the administrator when that is empty.
func (c *cluster) as(user string, groups []string) client.WithWatch {
	GinkgoHelper()
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	acting, err := client.NewWithWatch(config, client.Options{Scheme: c.scheme})
	Expect(err).NotTo(HaveOccurred())
	return acting
}

// repeating returns a client of the administrator that repeats requests to which a webhook did not answer in time.
func (c *cluster) repeating() client.WithWatch {
	GinkgoHelper()
	config := rest.CopyConfig(c.config)
	config.Wrap(func(base http.RoundTripper) http.RoundTripper { return repeatingTransport{base: base} })
	admin, err := client.NewWithWatch(config, client.Options{Scheme: c.scheme})
	Expect(err).NotTo(HaveOccurred())
	return admin
}

// asServiceAccount returns a client that acts as a ServiceAccount.
func (c *cluster) asServiceAccount(namespace, name string) client.WithWatch {
	GinkgoHelper()
	return c.as("system:serviceaccount:"+namespace+":"+name,
		[]string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"})
}

// asReplicaSetController returns a client that acts as the user whose deletes are deferred.
func (c *cluster) asReplicaSetController() client.WithWatch {
	GinkgoHelper()
	return c.asServiceAccount("kube-system", "replicaset-controller")
}

// repeatingTransport repeats requests that the API server refused because a webhook did not
// answer in time, as clients of Kubernetes do: on a busy machine that happens to any webhook.
// The API server did not carry them out.
type repeatingTransport struct {
	base http.RoundTripper
}

// webhookAttempts bounds how often a request is made.
const webhookAttempts = 5

// RoundTrip implements [http.RoundTripper].
func (t repeatingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		response, err := t.base.RoundTrip(request)
		if err != nil || response.StatusCode != http.StatusInternalServerError {
			return response, err
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			return nil, err
		}
		response.Body = io.NopCloser(bytes.NewReader(body))
		late := bytes.Contains(body, []byte("failed calling webhook")) && bytes.Contains(body, []byte("context deadline exceeded"))
		if !late || attempt == webhookAttempts || request.GetBody == nil {
			return response, nil
		}
		GinkgoWriter.Printf("%s %s: repeated, since a webhook did not answer in time: %s\n", request.Method, request.URL.Path, body)
		request = request.Clone(request.Context())
		if request.Body, err = request.GetBody(); err != nil {
			return nil, err
		}
	}
}
