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
// delayed. A manager that uses it is in the state of a manager that was suspended right before such a write. The events of
// watches can be delayed, too.
type slowPath struct {
	kubeconfig string // of the ServiceAccount of the manager
	prefix     string // of the paths of the pods of the scenario
	proxy      http.Handler

	// delayed are the pods whose patches were delayed, and answers the answers to these patches.
	delayed chan string
	answers chan answered

	mu   sync.Mutex
	gate chan struct{} // nil: nothing is delayed

	// late has the watched resources whose events wait until the channel is closed.
	late map[string]chan struct{}
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
		s.releaseWatches()
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

// delayWatches delays every event of a resource, such as replicasets, from now on.
func (s *slowPath) delayWatches(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late == nil {
		s.late = map[string]chan struct{}{}
	}
	s.late[resource] = make(chan struct{})
}

// releaseWatches sends the delayed events, and delays none from now on.
func (s *slowPath) releaseWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, gate := range s.late {
		close(gate)
	}
	s.late = nil
}

// lateness returns a channel that is closed once the events of a resource may be sent; nil if they may.
func (s *slowPath) lateness(resource string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late[resource]
}

// ServeHTTP implements http.Handler.
func (s *slowPath) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "" {
		w = &lateWriter{ResponseWriter: w, resource: path.Base(r.URL.Path), path: s, ended: r.Context().Done()}
	}
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

// lateWriter writes the events of a watch once they may be sent.
type lateWriter struct {
	http.ResponseWriter
	path     *slowPath
	resource string
	ended    <-chan struct{} // the watch
}

// Write implements http.ResponseWriter.
func (w *lateWriter) Write(events []byte) (int, error) {
	if gate := w.path.lateness(w.resource); gate != nil {
		select {
		case <-gate:
		case <-w.ended:
		}
	}
	return w.ResponseWriter.Write(events)
}

// Unwrap has http.ResponseController flush the events.
func (w *lateWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
