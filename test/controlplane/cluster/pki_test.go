package cluster

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestClientCertificateNamesUserAndGroups(t *testing.T) {
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	id, err := ca.client("system:node:node-1", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	certificate := parseCertificate(t, id.certificate)
	if certificate.Subject.CommonName != "system:node:node-1" {
		t.Errorf("user: %s", certificate.Subject.CommonName)
	}
	if diff := cmp.Diff([]string{"system:nodes"}, certificate.Subject.Organization); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: pool(t, ca), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("not a client of the authority: %v", err)
	}
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: pool(t, ca), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("a client certificate is accepted as a server's")
	}
}

func TestServerCertificateHoldsNamesAndAddresses(t *testing.T) {
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	id, err := ca.server("kube-apiserver", []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	certificate := parseCertificate(t, id.certificate)
	for host, wanted := range map[string]bool{"localhost": true, "127.0.0.1": true, "example.com": false, "127.0.0.2": false} {
		_, err := certificate.Verify(x509.VerifyOptions{Roots: pool(t, ca), DNSName: host})
		if (err == nil) != wanted {
			t.Errorf("%s: want %t, got %v", host, wanted, err)
		}
	}
}

// TestKubeconfigGivesTheCertificateBack checks that the certificate in the kubeconfig,
// which status and up use, can be parsed.
func TestKubeconfigGivesTheCertificateBack(t *testing.T) {
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	id, err := ca.client(adminUser, "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	got, err := clientCertificate(kubeconfig("https://127.0.0.1:1", ca.pem, adminUser, id))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(parseCertificate(t, id.certificate).Raw, got.Certificate[0]); diff != "" {
		t.Errorf("certificate (-written +read):\n%s", diff)
	}
	if _, err := clientCertificate([]byte("apiVersion: v1")); err == nil {
		t.Error("a kubeconfig without a certificate returns one")
	}
}

func parseCertificate(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("not PEM: %s", data)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func pool(t *testing.T, ca *authority) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca.pem) {
		t.Fatal("the authority has no certificate")
	}
	return pool
}
