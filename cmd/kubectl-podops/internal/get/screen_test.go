package get

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/podops-dev/podops/pkg/view/rolloutview"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
)

// series is a source of views, one after the other. After the last one it returns an error.
type series struct {
	views       []rolloutview.View
	before, now rolloutview.View
	end         error
}

func (s *series) View(ctx context.Context) (rolloutview.View, error) { return s.Next(ctx) }

func (s *series) Changes() (changes []rolloutview.Change, complete bool) {
	changes = rolloutview.Changes(s.before, s.now)
	return changes, true
}

func (s *series) Next(context.Context) (rolloutview.View, error) {
	if len(s.views) == 0 {
		return rolloutview.View{}, s.end
	}
	s.before, s.now = s.now, s.views[0]
	s.views = s.views[1:]
	return s.now, nil
}

// viewOf returns a view of a Deployment with one pod.
func viewOf(phase rolloutview.Phase, state rolloutview.State, seconds int) rolloutview.View {
	now := time.Date(2026, 1, 1, 0, 0, seconds, 0, time.UTC)
	return rolloutview.View{
		Kind: "Deployment", Namespace: "demo", Name: "web", Time: metav1.NewTime(now), State: state,
		Revisions: []rolloutview.Revision{{Name: "web-1", Current: true, Pods: []rolloutview.Pod{{Name: "web-1-a", UID: "a", Phase: phase}}}},
	}
}

func rollout() []rolloutview.View {
	return []rolloutview.View{
		viewOf(rolloutview.PhasePreCheck, rolloutview.StateWithheld, 1), viewOf(rolloutview.PhaseOperating, rolloutview.StateProgressing, 2),
		viewOf(rolloutview.PhaseAvailable, rolloutview.StateComplete, 3),
	}
}

func newVerb(untilDone bool, output string) (*verb, *strings.Builder) {
	var out strings.Builder
	env := command.NewEnvironment(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	return &verb{env: env, untilDone: untilDone, output: output}, &out
}

// TestChangesEndWithTheRollout shows that without a terminal each change is a line, and that --until-done
// ends the watch.
func TestChangesEndWithTheRollout(t *testing.T) {
	v, out := newVerb(true, "")
	if err := v.printChanges(t.Context(), &series{views: rollout(), end: errors.New("read beyond the end of the rollout")}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"00:00:01  web-1-a  PreCheck\n", "00:00:02  web-1-a  PreCheck → Operating\n", "00:00:03  web-1-a  Operating → Available\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("escape sequences in a pipe: %q", out.String())
	}
}

func TestChangesAsJSONAreLines(t *testing.T) {
	v, out := newVerb(false, "json")
	end := errors.New("the end")
	if err := v.printChanges(t.Context(), &series{views: rollout(), end: end}); !errors.Is(err, end) {
		t.Fatalf("got %v, want the error of the watch", err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[1], `"from":"PreCheck","to":"Operating"`) {
		t.Errorf("got %q, want a JSON object for each of 3 changes", lines)
	}
}

// run runs the model of a screen as bubbletea does, until it quits, and returns it.
func run(t *testing.T, s screen, messages ...tea.Msg) screen {
	t.Helper()
	for _, message := range messages {
		next, _ := s.Update(message)
		s = next.(screen)
	}
	return s
}

func newScreen() screen {
	return screen{ctx: context.Background(), views: &series{}, now: time.Now, width: 80, height: 24, view: rollout()[0]}
}

func TestScreenEndsByKeys(t *testing.T) {
	for _, key := range []tea.KeyPressMsg{{Code: 'q', Text: "q"}, {Code: tea.KeyEscape}, {Code: 'c', Mod: tea.ModCtrl}} {
		next, quit := newScreen().Update(key)
		if !next.(screen).ended || quit == nil {
			t.Errorf("%s does not end the screen", key)
		}
	}
	if s := run(t, newScreen(), tea.KeyPressMsg{Code: 'x', Text: "x"}); s.ended {
		t.Error("x ends the screen")
	}
}

func TestScreenFollowsTheTerminal(t *testing.T) {
	s := run(t, newScreen(), tea.WindowSizeMsg{Width: 30, Height: 10}, viewRead{view: rollout()[1]})
	content := s.View().Content
	for _, line := range strings.Split(content, "\n") {
		if rolloutview.Width(line) > 30 {
			t.Errorf("a line is wider than the terminal: %q", line)
		}
	}
	if !strings.Contains(content, "Operating") || !strings.HasSuffix(content, "q to quit") {
		t.Errorf("got\n%s\nwant the last view", content)
	}
}

func TestScreenEndsWithTheRolloutOrAnError(t *testing.T) {
	s := newScreen()
	s.untilDone = true
	if s = run(t, s, viewRead{view: rollout()[2]}); !s.ended || s.err != nil {
		t.Errorf("ended %t with error %v, want the end of the rollout", s.ended, s.err)
	}
	broken := errors.New("no more")
	if s = run(t, newScreen(), viewRead{err: broken}); !s.ended || !errors.Is(s.err, broken) {
		t.Errorf("ended %t with error %v, want the error of the watch", s.ended, s.err)
	}
}

// TestScreenIsDrawnByBubbletea runs the program until the rollout is complete.
func TestScreenIsDrawnByBubbletea(t *testing.T) {
	v, out := newVerb(true, "")
	if err := v.draw(t.Context(), &series{views: rollout(), end: errors.New("read beyond the end of the rollout")}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "Available") {
		t.Errorf("the last frame is missing: %q", out.String())
	}
}

// TestALostWatchIsShown matters because pods of the last answer look like pods that do not change.
func TestALostWatchIsShown(t *testing.T) {
	views := rollout()
	views[1].Stale = "no changes since 00:00:02: the API server does not answer the watch: connection refused"
	s := run(t, newScreen(), viewRead{view: views[1]})
	if content := s.View().Content; !strings.HasPrefix(content, "no changes since 00:00:02: the API server does not answer") {
		t.Errorf("got\n%s\nwant the error in the first line", content)
	}

	v, out := newVerb(true, "")
	if err := v.printChanges(t.Context(), &series{views: views}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"00:00:02  no changes since 00:00:02", "00:00:03  the API server answers again"} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("got\n%s\nwant %q once", out.String(), want)
		}
	}
}
