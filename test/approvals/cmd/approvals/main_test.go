package main

import (
	"bufio"
	"context"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podops-dev/podops/test/await"
)

func TestServesUntilTheContextEnds(t *testing.T) {
	folder := t.TempDir()
	o, err := parse([]string{
		"--http-bind-address", "127.0.0.1:0", "--https-bind-address", "127.0.0.1:0", "--hosts", "approvals.example.com",
		"--ca-file", filepath.Join(folder, "ca.pem"), "--log", filepath.Join(folder, "log"),
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	printed, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := serve(ctx, o, out)
		_ = out.CloseWithError(err) // so that no line is awaited
		ended <- err
	}()

	lines := bufio.NewScanner(printed)
	values := map[string]string{}
	for range 4 {
		lines.Scan()
		key, value, _ := strings.Cut(lines.Text(), ":")
		values[key] = strings.TrimSpace(value)
	}
	pem, err := os.ReadFile(values["CA"])
	if err != nil || !x509.NewCertPool().AppendCertsFromPEM(pem) {
		t.Errorf("the CA that was printed, %q, cannot be read: %v", values["CA"], err)
	}
	body := `{"traceId": "t1", "stage": "PreCheck", "ruleName": "ok", "resources": [{"apiVersion": "v1", "kind": "Pod", "name": "a"}]}`
	answer, err := http.Post(values["HTTP"]+"approve", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	stop()
	if err := await.Receive(t, "the service ends", ended); err != nil {
		t.Error(err)
	}
	log, err := os.ReadFile(filepath.Join(folder, "log"))
	if err != nil || strings.Count(string(log), "\n") != 1 || !strings.Contains(string(log), `"traceId":"t1"`) {
		t.Errorf("the log is %q, %v", log, err)
	}
}

func TestUsage(t *testing.T) {
	var help strings.Builder
	if code := run([]string{"--help"}, io.Discard, &help); code != 0 || !strings.Contains(help.String(), "/manual") {
		t.Errorf("--help exits with %d and prints\n%s", code, &help)
	}
	for _, args := range [][]string{{"--no-such-flag"}, {"serve"}} {
		if code := run(args, io.Discard, io.Discard); code != 2 {
			t.Errorf("%v exits with %d", args, code)
		}
	}
	var complaints strings.Builder
	if code := run([]string{"--http-bind-address", "nowhere:x", "--ca-file", filepath.Join(t.TempDir(), "ca")}, io.Discard, &complaints); code != 1 ||
		!strings.Contains(complaints.String(), "nowhere:x") {
		t.Errorf("an invalid address exits with %d and prints %s", code, &complaints)
	}
}
