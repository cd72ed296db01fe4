package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/podops-dev/podops/test/managerprocess"
)

// fate is how a write of the operator ends.
type fate int

const (
	answered   fate = iota // the operator gets the answer of the API server
	killBefore             // the operator is killed, and the API server does not get the write
	killAfter              // the API server has carried out the write, and the operator is killed before it has the answer
)

// killer is a proxy of the API server that kills the operator with SIGKILL at writes, and starts another at
// once. It passes one write at a time.
type killer struct {
	show  *show
	proxy http.Handler

	mu       sync.Mutex // guards the fields below
	operator *managerprocess.Process
	process  int // number of the operator that runs
	own      int // writes of it since its start
	decide   func(own, total int) fate
	writes   []string // since arm
	kills    int
	err      error
}

// processKey is the key of the number of the operator that opened a connection.
type processKey struct{}

// newKiller puts a killer between the API server and the operators that start from now on.
func newKiller(t *testing.T, s *show) *killer {
	t.Helper()
	config := s.stage.Config()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	// The rights are those of the token of the operator.
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	k := &killer{show: s, proxy: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1,
		ErrorLog: log.New(io.Discard, "", 0), // watches of operators that were killed
	}}
	k.disarm()
	server := httptest.NewUnstartedServer(k)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		k.mu.Lock()
		defer k.mu.Unlock()
		return context.WithValue(ctx, processKey{}, k.process)
	}
	server.StartTLS()
	t.Cleanup(func() {
		// Watches do not end, and an operator that still runs would connect again.
		_ = server.Listener.Close()
		server.CloseClientConnections()
		server.Close()
	})
	through(t, s.kubeconfig, server.URL, server.Certificate())
	return k
}

// through changes a kubeconfig to another address of the API server.
func through(t *testing.T, kubeconfig, address string, certificate *x509.Certificate) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.CertificateAuthority = address, ""
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
	}
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
}

// ServeHTTP passes reads, and decides on writes.
func (k *killer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		k.proxy.ServeHTTP(w, r)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.Context().Value(processKey{}) != k.process {
		panic(http.ErrAbortHandler) // its operator was killed at another write
	}
	k.own++
	k.writes = append(k.writes, nameOf(r))
	switch k.decide(k.own, len(k.writes)) {
	case killBefore:
		k.replace()
		panic(http.ErrAbortHandler)
	case killAfter:
		k.proxy.ServeHTTP(httptest.NewRecorder(), r)
		k.replace()
		panic(http.ErrAbortHandler)
	default:
		k.proxy.ServeHTTP(w, r)
	}
}

// nameOf returns the method and the object of a write.
func nameOf(r *http.Request) string {
	_, object, found := strings.Cut(r.URL.Path, "/namespaces/")
	if !found {
		return r.Method + " " + r.URL.Path
	}
	_, object, _ = strings.Cut(object, "/")
	return r.Method + " " + object
}

// replace kills the operator and starts another.
func (k *killer) replace() {
	k.kills++
	k.restart()
}

func (k *killer) restart() {
	if k.operator != nil {
		k.operator.Kill()
	}
	k.process++
	k.own = 0
	if err := k.show.launchOperator(); err != nil {
		k.err = err
		return
	}
	k.operator = k.show.operator
}

// start starts an operator in place of the last.
func (k *killer) start(ctx context.Context, t *testing.T) {
	t.Helper()
	k.mu.Lock()
	k.restart()
	operator, err := k.operator, k.err
	k.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := operator.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

// arm decides on every write from now on.
func (k *killer) arm(decide func(own, total int) fate) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.decide, k.writes, k.kills = decide, nil, 0
}

// disarm passes every write from now on.
func (k *killer) disarm() { k.arm(func(int, int) fate { return answered }) }

// count returns how many writes and kills there were since arm.
func (k *killer) count() (writes []string, kills int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.operator.HasEnded() {
		return k.writes, k.kills, k.operator.Err()
	}
	return k.writes, k.kills, k.err
}
