package e2e_test

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// slowPath is a way to the API server on which the permits of a scenario, which are patches of pods/status, can be
// delayed. A manager that uses it is in the state of a manager that was suspended right before such a write.
type slowPath struct {
	kubeconfig string // of the ServiceAccount of the manager
	prefix     string // of the paths of the pods of the scenario
	proxy      http.Handler

	// delayed are the pods whose patches were delayed, and answers the answers to these patches.
	delayed chan string
	answers chan answered

	mu   sync.Mutex
	gate chan struct{} // nil: nothing is delayed
}

// answered is a patch that was delayed, with its answer.
type answered struct {
	Pod  string
	Code int
}

// openSlowPath opens a slowPath that ends with the scenario.
func openSlowPath(p scenario) *slowPath {
	GinkgoHelper()
	target, err := url.Parse(p.config.Host)
	Expect(err).NotTo(HaveOccurred())
	// The token of the manager has the rights.
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(p.config))
	Expect(err).NotTo(HaveOccurred())
	quiet := log.New(io.Discard, "", 0) // watches end with their manager
	s := &slowPath{
		kubeconfig: filepath.Join(GinkgoT().TempDir(), "manager.kubeconfig"), prefix: "/api/v1/namespaces/" + p.namespace + "/pods/",
		delayed: make(chan string, 100), answers: make(chan answered, 100),
		proxy: &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1, ErrorLog: quiet,
		},
	}
	server := httptest.NewUnstartedServer(s)
	server.Config.ErrorLog = quiet
	server.StartTLS()
	DeferCleanup(func() {
		s.release()
		// Watches do not end, and a manager that still runs would connect again.
		_ = server.Listener.Close()
		server.CloseClientConnections()
		server.Close()
	})
	config, err := clientcmd.LoadFromFile(managers.kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.CertificateAuthority = server.URL, ""
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	}
	Expect(clientcmd.WriteToFile(*config, s.kubeconfig)).To(Succeed())
	return s
}

// delay delays permits from now on.
func (s *slowPath) delay() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan struct{})
}

// release carries out the delayed permits, and delays none from now on.
func (s *slowPath) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate != nil {
		close(s.gate)
		s.gate = nil
	}
}

// ServeHTTP implements http.Handler.
func (s *slowPath) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pod, isStatus := strings.CutSuffix(r.URL.Path, "/status")
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate == nil || r.Method != http.MethodPatch || !isStatus || !strings.HasPrefix(pod, s.prefix) {
		s.proxy.ServeHTTP(w, r)
		return
	}
	s.delayed <- path.Base(pod)
	select {
	case <-gate:
	case <-r.Context().Done():
		return
	}
	answer := &codeWriter{ResponseWriter: w}
	s.proxy.ServeHTTP(answer, r)
	s.answers <- answered{path.Base(pod), answer.code}
}

// codeWriter keeps the status code of an answer.
type codeWriter struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (w *codeWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}
