package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podops-dev/podops/pkg/view/rolloutview"
)

const (
	terminalColumns = 80
	terminalRows    = 24
)

// rollingOut is a view of the demo's Deployment, with so many old pods that wait for a rule.
func rollingOut(seconds, waiting, requests int) rolloutview.View {
	highest := 3
	old := rolloutview.Revision{Name: "web-1", Number: "1"}
	for i := range waiting {
		name := fmt.Sprintf("web-1-%d", i)
		old.Pods = append(old.Pods, rolloutview.Pod{
			Name: name, UID: name, Phase: rolloutview.PhasePreCheck,
			Withheld: &rolloutview.Withheld{Rule: "web/availability", Reason: "NoRoom", Message: strings.Repeat("a long reason ", 20)},
		})
	}
	return rolloutview.View{
		Kind: "Deployment", Name: "web", Namespace: namespace, Time: metav1.NewTime(at(seconds)), Desired: replicas, Available: 9, Unavailable: 3,
		Highest: &highest, Requests: &rolloutview.Requests{Sent: requests}, Revisions: []rolloutview.Revision{old, {Name: "web-2", Number: "2", Current: true}},
	}
}

// TestFramesFitIntoASmallTerminal shows that requests and failures are on the screen together with any
// number of pods.
func TestFramesFitIntoASmallTerminal(t *testing.T) {
	for _, pods := range []int{0, 1, replicas, 3 * replicas} {
		var out bytes.Buffer
		v := newView(&out, terminalColumns, terminalRows)
		v.colors = false
		v.show(rollingOut(0, pods, 1934))
		lines := strings.Split(out.String(), "\n")
		if len(lines) > terminalRows {
			t.Errorf("a frame with %d pods has %d lines, which do not fit into %d", pods, len(lines), terminalRows)
		}
		for _, l := range lines {
			if columns := rolloutview.Width(l); columns > terminalColumns {
				t.Errorf("line has %d columns, which do not fit into %d: %s", columns, terminalColumns, l)
			}
		}
		if !strings.Contains(out.String(), "requests 1,934, failed 0") {
			t.Errorf("the frame with %d pods has no requests:\n%s", pods, out.String())
		}
	}
}

func TestViewPrintsEachChangeOnceOffATerminal(t *testing.T) {
	var out bytes.Buffer
	v := newView(&out, 0, 0)
	v.show(rollingOut(10, 1, 1))
	v.show(rollingOut(10, 1, 2))
	if got := strings.Count(out.String(), "web-1-0"); got != 1 {
		t.Errorf("an unchanged pod is printed %d times, want once", got)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("escape sequences in a file: %q", out.String())
	}
	if got := strings.Count(out.String(), "requests"); got != 1 {
		t.Errorf("totals are printed %d times in a second, want once", got)
	}
	v.show(rollingOut(11, 1, 3))
	if !strings.Contains(out.String(), "requests 3, failed 0") {
		t.Errorf("totals of the next second are missing:\n%s", out.String())
	}
}

func TestViewRedrawsOnATerminal(t *testing.T) {
	var out bytes.Buffer
	v := newView(&out, 60, terminalRows)
	v.show(rollingOut(0, 2, 1))
	lines := strings.Count(out.String(), "\n")
	out.Reset()
	v.show(rollingOut(0, 1, 1))
	if want := fmt.Sprintf("\x1b[%dA\x1b[J", lines); !strings.HasPrefix(out.String(), want) {
		t.Errorf("the second frame does not erase the first, which has %d lines: %q", lines, out.String())
	}
}
