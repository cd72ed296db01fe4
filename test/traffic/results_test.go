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

func played(name string, on side, report *load.Report, operation time.Duration) result {
	return result{scenario: name, side: on, report: report, operation: operation}
}

func TestVerdict(t *testing.T) {
	for name, tc := range map[string]struct {
		results results
		want    error // nil: passed
	}{
		"nothing lost with, some without": {
			results: results{played("a", withPodOps, reported(10, 0), 10*time.Second), played("a", withoutPodOps, reported(10, 3), 10*time.Second)},
		},
		"lost with": {
			results: results{played("a", withPodOps, reported(10, 1), 10*time.Second), played("a", withoutPodOps, reported(10, 3), 10*time.Second)}, want: errLost,
		},
		"lost with, later": {
			results: results{played("a", withPodOps, reported(10, 0), 10*time.Second), played("b", withPodOps, reported(10, 1), 10*time.Second)}, want: errLost,
		},
		"no request at all with": {results: results{played("a", withPodOps, reported(0, 0), 10*time.Second)}, want: errLost},
		"nothing lost without":   {results: results{played("a", withPodOps, reported(10, 0), 10*time.Second), played("a", withoutPodOps, reported(10, 0), 10*time.Second)}, want: errNothingLost},
		"nothing lost without an operation": {results: results{{
			scenario: "port", side: withoutPodOps, harmless: true, report: reported(10, 0), operation: time.Second,
		}}},
		"one side alone":          {results: results{played("a", withPodOps, reported(10, 0), 10*time.Second)}},
		"lost in one run without": {results: results{played("a", withoutPodOps, reported(10, 0), 10*time.Second), played("b", withoutPodOps, reported(10, 1), 10*time.Second)}},
		"twice as long when flaky": {results: results{
			played("restart", withPodOps, reported(10, 0), 10*time.Second), played("flaky", withPodOps, reported(10, 0), 20*time.Second),
		}},
		"slower when flaky": {results: results{
			played("restart", withPodOps, reported(10, 0), 10*time.Second), played("flaky", withPodOps, reported(10, 0), 21*time.Second),
		}, want: errSlow},
		"slower when flaky without PodOps": {results: results{
			played("restart", withoutPodOps, reported(10, 1), 10*time.Second), played("flaky", withoutPodOps, reported(10, 1), 21*time.Second),
		}},
		"nothing was run": {want: errNoRuns},
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
	if err := (results{played("restart", withPodOps, reported(1000, 0), 10*time.Second), played("restart", withoutPodOps, reported(1000, 7), 10*time.Second)}).print(&out); err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{"scenario", "PodOps", "requests", "failed", "p50", "p99", "most", "pods", "operation", "duration"},
		{"restart", "with", "1000", "0", "0s", "0s", "0", "10s", "12s"},
		{"restart", "without", "1000", "7", "0s", "0s", "0", "10s", "12s"},
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
		want string // part of the message; empty: valid
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
