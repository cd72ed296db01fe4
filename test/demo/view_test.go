package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/golden"
)

const (
	terminalColumns = 80
	terminalRows    = 24
)

// longReason is a message that does not fit into a line.
const longReason = `label demo.podops.dev/approved is missing, "true" is required`

// frames are states of the demo.
func frames() map[string]frame {
	return map[string]frame{
		"held": {
			rolling: true, limit: 3, requests: 934,
			old: row{waiting: 12}, new: row{starting: 6},
			waits: []held{{rule: "web/approved", pods: 10, message: longReason}},
		},
		"rolling": {
			rolling: true, unavailable: 3, worst: 3, limit: 3, requests: 1934,
			old: row{serving: 1, waiting: 4, off: 3, gone: 4}, new: row{serving: 4, starting: 8},
			waits: []held{
				{rule: "person/approval", pods: 1, message: `pending: "1 pod"`},
				{rule: "web/availability", pods: 3, message: "9 of 12 pods are available; at least 9 must be (maxUnavailable 25%, at most 3 of 12 desired away)"},
			},
		},
		"done":   {rolling: true, worst: 3, limit: 3, requests: 3390, old: row{gone: 12}, new: row{serving: 12}},
		"lost":   {rolling: true, worst: 4, limit: 3, requests: 1234567, failed: 1234, old: row{gone: 12}, new: row{serving: 12}},
		"before": {limit: 3, old: row{starting: 12}, unavailable: 12},
	}
}

func TestFrame(t *testing.T) {
	for name, f := range frames() {
		t.Run(name, func(t *testing.T) {
			lines := f.lines(terminalColumns)
			got := strings.Join(lines, "\n") + "\n"
			golden.Check(t, filepath.Join("testdata", "frame-"+name+".txt"), got)
			if len(lines) >= terminalRows {
				t.Errorf("frame has %d lines, which do not fit into %d", len(lines), terminalRows)
			}
			for _, l := range lines {
				if columns := utf8.RuneCountInString(l); columns > terminalColumns {
					t.Errorf("line has %d columns, which do not fit into %d: %s", columns, terminalColumns, l)
				}
			}
		})
	}
}

func TestFrameCutsReasonsWithAnEllipsis(t *testing.T) {
	for columns, want := range map[int]string{7: "reason:", 6: "reaso…", 1: "…", 80: "reason:"} {
		if got := cut("reason:", columns); got != want {
			t.Errorf("cut to %d columns = %q, want %q", columns, got, want)
		}
	}
	if got := cut("a reason", 3); got != "a…" {
		t.Errorf("cut after a blank = %q, want no blank before the ellipsis", got)
	}
}

func TestFrameCountsPodsOfBothRevisions(t *testing.T) {
	r := newRecord(2)
	r.set(serving("a"), at(0))
	r.set(serving("b"), at(0))
	r.set(serving("c"), at(0))
	r.startRollout()
	r.set(podIn("a", true, appsv1alpha1.ServiceAvailableLabelKey, appsv1alpha1.PreCheckLabelPrefix+"/pod-delete"), at(1))
	r.set(prepared("b"), at(1))
	r.remove("c", at(1))
	r.set(podIn("new", false), at(1))
	rule := &appsv1alpha1.PodTransitionRule{}
	rule.Name = "web"
	rule.Status.Blocked = []appsv1alpha1.BlockedPod{{Name: "a", Rule: "web/approved", Message: "why"}}
	r.explain(rule)
	want := frame{
		rolling: true, unavailable: 1, worst: 1, limit: 3,
		old: row{waiting: 1, off: 1, gone: 1}, new: row{starting: 1},
		waits: []held{{rule: "web/approved", pods: 1, message: "why"}},
	}
	if diff := cmp.Diff(want, r.frame(3), cmp.AllowUnexported(frame{}, row{}, held{})); diff != "" {
		t.Errorf("frame (-want +got):\n%s", diff)
	}
}

func TestViewPrintsEachChangeOnceOffATerminal(t *testing.T) {
	var out bytes.Buffer
	v := newView(&out, 0)
	pods := []line{{name: "web-0", phase: waiting, why: "because"}}
	v.show(pods, frame{requests: 1}, at(10))
	v.show(pods, frame{requests: 2}, at(10))
	if got := strings.Count(out.String(), "web-0"); got != 1 {
		t.Errorf("an unchanged pod is printed %d times, want once", got)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("escape sequences in a file: %q", out.String())
	}
	if got := strings.Count(out.String(), "requests"); got != 1 {
		t.Errorf("totals are printed %d times in a second, want once", got)
	}
	v.show(pods, frame{requests: 3}, at(11))
	if !strings.Contains(out.String(), "requests 3, failed 0") {
		t.Errorf("totals of the next second are missing:\n%s", out.String())
	}
}

func TestViewRedrawsOnATerminal(t *testing.T) {
	var out bytes.Buffer
	v := newView(&out, 60)
	waits := []held{{rule: "web/approved", pods: 1, message: strings.Repeat("x", 100)}}
	v.show(nil, frame{rolling: true, waits: waits}, at(0))
	v.show(nil, frame{rolling: true}, at(0))
	if !strings.Contains(out.String(), "\x1b[5A\x1b[J") {
		t.Error("the second frame does not erase the first, which has five lines")
	}
	if strings.Contains(out.String(), strings.Repeat("x", 60)) {
		t.Error("a reason is longer than the terminal is wide")
	}
}
