package hosts

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLookup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte("# comment\n127.0.0.1 kv-0.kv kv # kv-9.kv\n\n127.0.0.2\tkv-1.kv kv\n127.0.0.3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := Resolver{File: file}
	for host, want := range map[string][]string{
		"kv": {"127.0.0.1", "127.0.0.2"}, "kv-1.kv": {"127.0.0.2"}, "10.1.2.3": {"10.1.2.3"},
	} {
		got, err := r.Lookup(t.Context(), host)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", host, err, diff)
		}
	}
	for _, host := range []string{"kv-9.kv", "127", "", "localhost"} {
		if got, err := r.Lookup(t.Context(), host); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %v, %v; want ErrUnknown", host, got, err)
		}
	}
}

// TestLookupReadsTheFileEachTime matters because the address of a host changes with its pod.
func TestLookupReadsTheFileEachTime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	r := Resolver{File: file}
	if _, err := r.Lookup(t.Context(), "kv"); !errors.Is(err, ErrUnknown) {
		t.Errorf("without a file: %v, want ErrUnknown", err)
	}
	for _, address := range []string{"127.0.0.1", "127.0.0.2"} {
		if err := os.WriteFile(file, []byte(address+" kv\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := r.Lookup(t.Context(), "kv"); err != nil || got[0] != address {
			t.Errorf("got %v, %v; want %s", got, err, address)
		}
	}
}
