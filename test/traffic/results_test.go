package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/test/traffic/load"
)

func reported(requests, failed int) *load.Report {
	r := &load.Report{Took: 12 * time.Second, Totals: load.Totals{Requests: requests, Failed: failed}}
	if failed > 0 {
		r.Causes = map[string]int{"status 503": failed}
	}
	return r
}

func TestVerdict(t *testing.T) {
	for name, tc := range map[string]struct {
		results results
		want    error // nil: well
	}{
		"nothing lost with, some without": {
			results: results{{"a", withPodOps, reported(10, 0)}, {"a", withoutPodOps, reported(10, 3)}},
		},
		"lost with": {
			results: results{{"a", withPodOps, reported(10, 1)}, {"a", withoutPodOps, reported(10, 3)}}, want: errLost,
		},
		"lost with, later": {
			results: results{{"a", withPodOps, reported(10, 0)}, {"b", withPodOps, reported(10, 1)}}, want: errLost,
		},
		"no request at all with":  {results: results{{"a", withPodOps, reported(0, 0)}}, want: errLost},
		"nothing lost without":    {results: results{{"a", withPodOps, reported(10, 0)}, {"a", withoutPodOps, reported(10, 0)}}, want: errNothingLost},
		"one side alone":          {results: results{{"a", withPodOps, reported(10, 0)}}},
		"lost in one run without": {results: results{{"a", withoutPodOps, reported(10, 0)}, {"b", withoutPodOps, reported(10, 1)}}},
		"nothing was run":         {want: errNoRuns},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.results.verdict(); !errors.Is(got, tc.want) || (got == nil) != (tc.want == nil) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestResultsReadAsATable(t *testing.T) {
	var out bytes.Buffer
	if err := (results{{"restart", withPodOps, reported(1000, 0)}, {"restart", withoutPodOps, reported(1000, 7)}}).print(&out); err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{"scenario", "PodOps", "requests", "failed", "p50", "p99", "duration"},
		{"restart", "with", "1000", "0", "0s", "0s", "12s"},
		{"restart", "without", "1000", "7", "0s", "0s", "12s"},
		{"restart,", "without", "PodOps:", "7", "status", "503"},
		{"requests:", "2000"},
	}
	var got [][]string
	for line := range strings.Lines(strings.TrimSpace(out.String())) {
		got = append(got, strings.Fields(line))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string // part of what is said; empty: they are good
	}{
		"none":                {},
		"one scenario":        {args: []string{"--only", "flaky"}},
		"an unknown scenario": {args: []string{"--only", "flaky,fire"}, want: `no scenario "fire"`},
		"one side":            {args: []string{"--sides", "without"}},
		"an unknown side":     {args: []string{"--sides", "beside"}, want: `not "beside"`},
		"too few requests":    {args: []string{"--requests", "0"}, want: "at least 1"},
		"no network":          {args: []string{"--cidr", "here"}, want: "such as 127.65.0.0/16"},
		"a foreign network":   {args: []string{"--cidr", "192.0.2.0/24"}, want: "loopback"},
		"an argument":         {args: []string{"flaky"}, want: "--help lists them"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(tc.args, &bytes.Buffer{})
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestHelpNamesEveryScenario(t *testing.T) {
	var out bytes.Buffer
	if code := run([]string{"--help"}, &out, &out); code != 0 {
		t.Errorf("--help ends with %d", code)
	}
	for _, s := range scenarios() {
		if !strings.Contains(out.String(), "\n  "+s.name+" ") {
			t.Errorf("--help does not name %s", s.name)
		}
	}
}

func TestDefaultsMakeAHundredThousandRequests(t *testing.T) {
	o, err := parse(nil, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if got := o.requests * len(o.scenarios) * len(o.sides); got < 100_000 {
		t.Errorf("%d requests, want at least 100,000", got)
	}
}

func TestManifestHasPodOpsOnItsSideOnly(t *testing.T) {
	for _, podOps := range []bool{true, false} {
		text, err := values{PodOps: podOps, Replicas: 20, Socket: "/run/x.sock", Backend: "web"}.manifest()
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{`kusionstack.io/control: "true"`, "kind: PodTransitionRule", `podops.dev/haproxy-runtime: "unix:/run/x.sock"`} {
			if strings.Contains(text, part) != podOps {
				t.Errorf("PodOps %t: %q is there: %t", podOps, part, !podOps)
			}
		}
	}
}
