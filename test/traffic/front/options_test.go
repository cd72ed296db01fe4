package front

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestInvalidOptions(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, tc := range map[string]struct {
		options Options
		want    string
	}{
		"a wildcard address":    {Options{Address: "0.0.0.0:80"}, "use a loopback address"},
		"no address at all":     {Options{Address: "here"}, "use a loopback address"},
		"an address in use":     {Options{Address: taken.Addr().String()}, "in use"},
		"a backend with a line": {Options{Backend: "web\nglobal"}, "use 1 to 100 letters"},
		"a long path":           {Options{Dir: strings.Repeat("/folder", 20)}, "use a shorter path"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.options.Dir == "" {
				tc.options.Dir = folder(t)
			}
			_, embedded := StartEmbedded(tc.options)
			_, haproxy := StartHAProxy(context.Background(), tc.options)
			for kind, err := range map[string]error{"embedded": embedded, "haproxy": haproxy} {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: got %v, want an error with %q", kind, err, tc.want)
				}
			}
		})
	}
}

func TestTheErrorOfHAProxyHasItsOutput(t *testing.T) {
	dir := folder(t)
	program := filepath.Join(dir, "haproxy")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho cannot do it >&2\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := StartHAProxy(context.Background(), Options{Dir: dir, Program: program})
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "cannot do it") {
		t.Errorf("got %v, want its exit status and its output", err)
	}
}
