package certificates

import (
	"bytes"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
)

func TestParseIsTheInverseOfData(t *testing.T) {
	fresh := issued(t, State{}, time.Time{}, epoch)
	rotating := issued(t, fresh, time.Time{}, epoch.Add(245*day))
	rotated := issued(t, rotating, epoch.Add(245*day), epoch.Add(246*day))

	for name, state := range map[string]State{"nothing": {}, "fresh": fresh, "rotating": rotating, "rotated": rotated} {
		t.Run(name, func(t *testing.T) {
			data, err := state.Data()
			if err != nil {
				t.Fatal(err)
			}
			again, err := Parse(data).Data()
			if err != nil {
				t.Fatal(err)
			}
			if !maps.EqualFunc(data, again, slices.Equal) {
				t.Errorf("want %q, got %q", data, again)
			}
		})
	}
}

func TestParseDropsInvalidValues(t *testing.T) {
	fresh := issued(t, State{}, time.Time{}, epoch)
	other := issued(t, State{}, time.Time{}, epoch)
	data, err := fresh.Data()
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := other.Data()
	if err != nil {
		t.Fatal(err)
	}

	cases := map[string]struct {
		change      func(map[string][]byte)
		wantCurrent bool // the certificate
		wantSigns   bool
		wantServing bool
	}{
		"untouched":                        {func(map[string][]byte) {}, true, true, true},
		"no data":                          {func(d map[string][]byte) { clear(d) }, false, false, false},
		"CA is garbage":                    {func(d map[string][]byte) { d["ca.crt"] = []byte("?") }, false, false, true},
		"CA key is garbage":                {func(d map[string][]byte) { d["ca.key"] = []byte("?") }, true, false, true},
		"CA key of another CA":             {func(d map[string][]byte) { d["ca.key"] = foreign["ca.key"] }, true, false, true},
		"CA is no CA":                      {func(d map[string][]byte) { d["ca.crt"], d["ca.key"] = d["tls.crt"], d["tls.key"] }, false, false, true},
		"serving certificate is cut short": {func(d map[string][]byte) { d["tls.crt"] = d["tls.crt"][:200] }, true, true, false},
		"serving key is missing":           {func(d map[string][]byte) { delete(d, "tls.key") }, true, true, false},
		"serving key of another":           {func(d map[string][]byte) { d["tls.key"] = foreign["tls.key"] }, true, true, false},
		"next CA without key":              {func(d map[string][]byte) { d["next-ca.crt"] = foreign["ca.crt"] }, true, true, true},
		"previous CAs are garbage":         {func(d map[string][]byte) { d["previous-ca.crt"] = bytes.Repeat([]byte("x"), 1<<20) }, true, true, true},
		"previous CA is no CA":             {func(d map[string][]byte) { d["previous-ca.crt"] = foreign["tls.crt"] }, true, true, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			changed := maps.Clone(data)
			tc.change(changed)
			got := Parse(changed)
			if (got.Current.Cert != nil) != tc.wantCurrent || got.Current.whole() != tc.wantSigns {
				t.Errorf("current CA: want certificate %v, signing %v, got %+v", tc.wantCurrent, tc.wantSigns, got.Current)
			}
			if got.Serving.whole() != tc.wantServing {
				t.Errorf("serving: want %v, got %+v", tc.wantServing, got.Serving)
			}
			if got.Next.Cert != nil || len(got.Previous) != 0 {
				t.Errorf("want no other CA, got next %v, previous %v", got.Next, got.Previous)
			}
		})
	}
}

func TestBundleListsEveryCA(t *testing.T) {
	fresh := issued(t, State{}, time.Time{}, epoch)
	rotating := issued(t, fresh, time.Time{}, epoch.Add(245*day))
	rotated := issued(t, rotating, epoch.Add(245*day), epoch.Add(246*day))

	for name, tc := range map[string]struct {
		state State
		want  int
	}{
		"fresh":    {fresh, 1},
		"rotating": {rotating, 2},
		"rotated":  {rotated, 2},
	} {
		t.Run(name, func(t *testing.T) {
			certs, err := cert.ParseCertsPEM(tc.state.Bundle())
			if err != nil || len(certs) != tc.want {
				t.Errorf("want %d CAs, got %d, %v", tc.want, len(certs), err)
			}
		})
	}
}
