package webhookclient

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// quiet is the log of servers whose clients are expected to fail.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         string
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{certificate: certificate, key: key, pem: inPEM("CERTIFICATE", der)}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func inPEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// sign returns a certificate and its key in PEM. An empty name is 127.0.0.1.
func (a authority) sign(t *testing.T, name string, until time.Time) (certificate, key []byte) {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leaf"}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if name == "" {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	} else {
		template.DNSNames = []string{name}
	}
	own := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, own.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(inPEM("CERTIFICATE", der)), []byte(inPEM("EC PRIVATE KEY", private))
}

// secure serves with a certificate.
func secure(t *testing.T, certificate, key []byte, change func(*tls.Config), handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	if change != nil {
		change(server.TLS)
	}
	server.Config.ErrorLog = quiet()
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func TestTheCABundleIsTheOnlyTrust(t *testing.T) {
	own := newAuthority(t, "own")
	certificate, key := own.sign(t, "", time.Now().Add(time.Hour))
	server := secure(t, certificate, key, nil, answer(`{"success":true}`))
	encoded := base64.StdEncoding.EncodeToString([]byte(own.pem))
	for name, bundle := range map[string]string{
		"PEM":                     own.pem,
		"PEM in base64":           encoded,
		"base64 with line breaks": encoded[:20] + "\n" + encoded[20:] + "\n",
		"two authorities":         newAuthority(t, "other").pem + own.pem,
	} {
		if got, err := post(t, Timeouts{}, Endpoint{URL: server.URL, CABundle: bundle}); err != nil || !got.Success {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, bundle := range map[string]string{"empty": "", "a lone line break in base64": "Cg==", "white space": " \n"} {
		_, err := post(t, Timeouts{}, Endpoint{URL: server.URL, CABundle: bundle})
		if failure := AsFailure(err); failure == nil || failure.Class != ClassTLSUntrusted {
			t.Errorf("%s: %v, want the roots of the system to reject it", name, err)
		}
	}
}

func TestCABundlesThatCannotBeUsed(t *testing.T) {
	_, key := newAuthority(t, "own").sign(t, "", time.Now())
	for name, bundle := range map[string]string{
		"neither":         "!!!",
		"base64 of text":  base64.StdEncoding.EncodeToString([]byte("hello")),
		"a key":           string(key),
		"no certificate":  inPEM("CERTIFICATE", []byte("hello")),
		"PEM that is cut": "-----BEGIN CERTIFICATE-----\nMIIB",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := post(t, Timeouts{}, Endpoint{URL: "https://127.0.0.1:1", CABundle: bundle})
			if failure := wantFailure(t, err, ClassConfiguration); !strings.Contains(failure.Message, "caBundle") {
				t.Errorf("message %q does not name caBundle", failure.Message)
			}
		})
	}
}

func TestCertificatesThatAreNotTrusted(t *testing.T) {
	own, other := newAuthority(t, "own"), newAuthority(t, "other")
	in := func(d time.Duration) time.Time { return time.Now().Add(d) }
	for name, tc := range map[string]struct {
		signer authority
		host   string
		until  time.Time
		class  Class
	}{
		"signed by another authority": {other, "", in(time.Hour), ClassTLSUntrusted},
		"expired":                     {own, "", in(-time.Minute), ClassTLSExpired},
		"for another name":            {own, "approvals.example", in(time.Hour), ClassTLSNameMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			certificate, key := tc.signer.sign(t, tc.host, tc.until)
			var handshakes atomic.Int32
			server := secure(t, certificate, key, func(config *tls.Config) {
				config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
					handshakes.Add(1)
					return nil, nil
				}
			}, answer(`{"success":true}`))
			_, err := post(t, Timeouts{}, Endpoint{URL: server.URL, CABundle: own.pem})
			if failure := wantFailure(t, err, tc.class); failure.Sent {
				t.Error("the failure counts as sent")
			}
			if handshakes.Load() != 1 {
				t.Errorf("%d handshakes, want 1: a wrong certificate is not better at once", handshakes.Load())
			}
		})
	}
}

func TestOldTLSIsRejected(t *testing.T) {
	own := newAuthority(t, "own")
	certificate, key := own.sign(t, "", time.Now().Add(time.Hour))
	server := secure(t, certificate, key, func(config *tls.Config) { config.MaxVersion = tls.VersionTLS11; config.MinVersion = tls.VersionTLS10 },
		answer(`{"success":true}`))
	_, err := post(t, Timeouts{}, Endpoint{URL: server.URL, CABundle: own.pem})
	wantClass(t, err, ClassTLS)
}

func TestHTTPBehindHTTPS(t *testing.T) {
	s := serve(t, answer(`{"success":true}`))
	_, err := post(t, Timeouts{}, Endpoint{URL: strings.Replace(s.URL, "http:", "https:", 1)})
	wantClass(t, err, ClassTLS)
}

func TestCredentialsAreSentOverHTTPSOnly(t *testing.T) {
	own := newAuthority(t, "own")
	certificate, key := own.sign(t, "", time.Now().Add(time.Hour))
	identity, identityKey := own.sign(t, "podops", time.Now().Add(time.Hour))
	clients := x509.NewCertPool()
	clients.AddCert(own.certificate)
	server := secure(t, certificate, key, func(config *tls.Config) { config.ClientCAs = clients; config.ClientAuth = tls.VerifyClientCertIfGiven },
		func(w http.ResponseWriter, r *http.Request) {
			name := ""
			if len(r.TLS.PeerCertificates) > 0 {
				name = r.TLS.PeerCertificates[0].DNSNames[0]
			}
			answer(`{"success":true,"message":"`+r.Header.Get("Authorization")+"/"+name+`"}`)(w, r)
		})
	plain := serve(t, answer(`{"success":true}`))
	for name, tc := range map[string]struct {
		endpoint Endpoint
		message  string
	}{
		"no credentials": {Endpoint{}, "/"},
		"a token":        {Endpoint{Token: "s3cr3t-token\n"}, "Bearer [redacted]/"},
		"a certificate":  {Endpoint{ClientCert: identity, ClientKey: identityKey}, "/podops"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.endpoint.URL, tc.endpoint.CABundle = server.URL, own.pem
			got, err := post(t, Timeouts{}, tc.endpoint)
			if err != nil || got.Message != tc.message {
				t.Errorf("message %q, %v, want %q", got.Message, err, tc.message)
			}
			tc.endpoint.URL = plain.URL
			_, err = post(t, Timeouts{}, tc.endpoint)
			if name == "no credentials" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantClass(t, err, ClassSecret)
		})
	}
	if plain.posts("trace-1") != 1 {
		t.Errorf("%d POSTs over http, want the one without credentials", plain.posts("trace-1"))
	}
}

func TestSecretsThatCannotBeUsed(t *testing.T) {
	identity, key := newAuthority(t, "own").sign(t, "podops", time.Now().Add(time.Hour))
	for name, endpoint := range map[string]Endpoint{
		"a token of two lines":         {Token: "secret\r\nX-Admin: yes"},
		"a token that is too long":     {Token: strings.Repeat("secret", 4000)},
		"a certificate without a key":  {ClientCert: identity},
		"a key without a certificate":  {ClientKey: key},
		"a certificate that is no PEM": {ClientCert: []byte("secret"), ClientKey: key},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint.URL = "https://127.0.0.1:1"
			_, err := post(t, Timeouts{}, endpoint)
			if failure := wantFailure(t, err, ClassSecret); strings.Contains(strings.ReplaceAll(failure.Message, "the secret", ""), "secret") {
				t.Errorf("message repeats the secret: %s", failure.Message)
			}
		})
	}
}

func TestFailuresDoNotRepeatTheToken(t *testing.T) {
	own := newAuthority(t, "own")
	certificate, key := own.sign(t, "", time.Now().Add(time.Hour))
	server := secure(t, certificate, key, nil, func(w http.ResponseWriter, r *http.Request) {
		answer(`{"success":true,"`+r.Header.Get("Authorization")[7:]+`":1,"`+r.Header.Get("Authorization")[7:]+`":2}`)(w, r)
	})
	_, err := post(t, Timeouts{}, Endpoint{URL: server.URL, CABundle: own.pem, Token: "s3cr3t"})
	if failure := wantFailure(t, err, ClassBadResponse); strings.Contains(failure.Error(), "s3cr3t") || !strings.Contains(failure.Message, "[redacted]") {
		t.Errorf("message %q", failure.Message)
	}
}
