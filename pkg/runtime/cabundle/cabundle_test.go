package cabundle_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	"github.com/podops-dev/podops/pkg/runtime/cabundle"
)

func TestParse(t *testing.T) {
	one := certificate(t)
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}))
	garbage := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}))
	encoded := base64.StdEncoding.EncodeToString([]byte(one))
	for name, tc := range map[string]struct {
		bundle string
		count  int
		err    string
	}{
		"nothing":                  {},
		"white space":              {bundle: " \n\t"},
		"a line break in base64":   {bundle: "Cg=="},
		"PEM":                      {bundle: one, count: 1},
		"PEM with text around it":  {bundle: "# internal\n" + one, count: 1},
		"two in PEM":               {bundle: one + "\n" + one, count: 2},
		"PEM in base64":            {bundle: encoded, count: 1},
		"base64 in lines":          {bundle: encoded[:40] + "\r\n  " + encoded[40:] + "\n", count: 1},
		"neither":                  {bundle: "a bundle!", err: "neither PEM nor PEM in base64"},
		"base64 of something else": {bundle: "aGVsbG8=", err: "no certificate"},
		"PEM that does not end":    {bundle: one[:100], err: "no certificate"},
		"a malformed certificate":  {bundle: one + garbage, err: "certificate 2 cannot be read"},
		"a key":                    {bundle: one + key, err: "never a key"},
		"too large":                {bundle: strings.Repeat(" ", cabundle.MaxBytes+1), err: "at most 65536"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := cabundle.Parse(tc.bundle)
			if len(found) != tc.count {
				t.Errorf("got %d certificates, want %d", len(found), tc.count)
			}
			switch {
			case tc.err == "" && err != nil:
				t.Error(err)
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("got %v, want %q", err, tc.err)
			}
		})
	}
}

func certificate(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
