package webhookserver

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
)

// ClientAuth verifies that clients are API servers. The file is read again when it has
// changed. During a rotation of the CA it contains both CAs.
type ClientAuth struct {
	file  string
	names []string

	mu   sync.Mutex
	read []byte
	pool *x509.CertPool
}

// NewClientAuth returns an error when the file has no certificate. Clients send a
// certificate for client authentication that a CA in the file has issued. names are the
// allowed common names; empty: all names, for a CA that issues certificates for API
// servers only.
func NewClientAuth(file string, names []string) (*ClientAuth, error) {
	a := &ClientAuth{file: file, names: names}
	if _, err := a.roots(); err != nil {
		return nil, err
	}
	return a, nil
}

// roots returns the CAs in the file.
func (a *ClientAuth) roots() (*x509.CertPool, error) {
	text, err := os.ReadFile(a.file)
	if err != nil {
		return nil, fmt.Errorf("reading the CA of webhook clients: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pool != nil && bytes.Equal(text, a.read) {
		return a.pool, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no PEM certificate of a CA", a.file)
	}
	a.read, a.pool = text, pool
	return pool, nil
}

// configure makes every handshake verify the client's certificate.
func (a *ClientAuth) configure(config *tls.Config) {
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.VerifyConnection = a.verify
	base := config.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool, err := a.roots()
		if err != nil {
			return nil, err
		}
		verifying := base.Clone()
		verifying.ClientCAs = pool
		return verifying, nil
	}
}

// verify checks the name in the certificate. It runs for resumed sessions too.
func (a *ClientAuth) verify(state tls.ConnectionState) error {
	if len(state.VerifiedChains) == 0 {
		return errors.New("the client sent no certificate")
	}
	name := state.PeerCertificates[0].Subject.CommonName
	if len(a.names) > 0 && !slices.Contains(a.names, name) {
		return fmt.Errorf("the client's certificate is for %q", name)
	}
	return nil
}
