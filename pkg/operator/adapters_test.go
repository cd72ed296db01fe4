package operator

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNoAdapterRunsUnlessNamed(t *testing.T) {
	for list, want := range map[string][]string{
		"":                     nil,
		"demo":                 {"demo"},
		" haproxy,demo,,demo ": {"demo", "haproxy"},
	} {
		options := parsed(t, "--enable-adapters", list, "--haproxy-allow", "unix:/run/haproxy/")
		if err := options.Validate(); err != nil {
			t.Errorf("--enable-adapters=%q: %v", list, err)
		}
		got, err := options.enabledAdapters()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("--enable-adapters=%q, %v (-want +got):\n%s", list, err, diff)
		}
	}
}

func TestWrongFlagsOfAdaptersAreNamed(t *testing.T) {
	for sentence, tc := range map[string]struct {
		args []string
		want []string
	}{
		"an unknown adapter":           {[]string{"--enable-adapters", "nginx"}, []string{"--enable-adapters", "nginx", "demo, haproxy"}},
		"HAProxy without allowed APIs": {[]string{"--enable-adapters", "haproxy"}, []string{"--haproxy-allow"}},
		"a malformed list":             {[]string{"--haproxy-allow", "somewhere"}, []string{"--haproxy-allow", "somewhere"}},
	} {
		options := parsed(t, tc.args...)
		err := options.Validate()
		for _, want := range tc.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in it", sentence, err, want)
			}
		}
	}
}
