package get

import (
	"context"
	"errors"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/podops-dev/podops/pkg/view/rolloutview"
)

// ageInterval is the time after which ages are drawn again although nothing changed.
const ageInterval = time.Second

// screen is the bubbletea model of a view on a terminal.
type screen struct {
	ctx           context.Context //nolint:containedctx // Commands of bubbletea have no parameter for it.
	views         source
	now           func() time.Time
	colors        bool
	untilDone     bool
	width, height int
	view          rolloutview.View
	err           error
	ended         bool
}

// The messages of a screen.
type (
	viewRead struct {
		view rolloutview.View
		err  error
	}
	ticked struct{}
)

// draw shows the view on the terminal until the user ends it.
func (v *verb) draw(ctx context.Context, views source) error {
	view, err := views.View(ctx)
	if err != nil {
		return err
	}
	width, height, terminal := v.env.Terminal()
	if !terminal {
		width, height = 80, 24
	}
	first := screen{
		ctx: ctx, views: views, now: v.env.Now, colors: v.env.Colors(), untilDone: v.untilDone, width: width, height: height, view: view,
	}
	options := []tea.ProgramOption{
		tea.WithContext(ctx), tea.WithInput(v.env.In), tea.WithOutput(v.env.Out), tea.WithWindowSize(width, height), tea.WithoutSignalHandler(),
	}
	if !first.colors {
		options = append(options, tea.WithColorProfile(colorprofile.Ascii))
	}
	last, err := tea.NewProgram(first, options...).Run()
	if err != nil && !errors.Is(err, tea.ErrInterrupted) && ctx.Err() == nil {
		return fmt.Errorf("drawing on the terminal: %w", err)
	}
	if ended, ok := last.(screen); ok {
		return ended.err
	}
	return nil
}

// Init begins to wait for changes.
func (s screen) Init() tea.Cmd {
	if s.untilDone && s.view.Done() {
		return tea.Quit
	}
	return tea.Batch(s.next, tick())
}

func (s screen) next() tea.Msg {
	view, err := s.views.Next(s.ctx)
	return viewRead{view, err}
}

func tick() tea.Cmd { return tea.Tick(ageInterval, func(time.Time) tea.Msg { return ticked{} }) }

// Update takes a change of the cluster, of the terminal, or a key.
func (s screen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = message.Width, message.Height
	case tea.KeyPressMsg:
		switch message.String() {
		case "q", "esc", "ctrl+c":
			s.ended = true
			return s, tea.Quit
		}
	case ticked:
		s.view = s.view.At(s.now())
		return s, tick()
	case viewRead:
		if message.err != nil {
			s.err, s.ended = message.err, true
			return s, tea.Quit
		}
		s.view = message.view
		if s.untilDone && s.view.Done() {
			s.ended = true
			return s, tea.Quit
		}
		return s, s.next
	}
	return s, nil
}

// View draws the frame. It leaves the last line of the terminal to the cursor, so that nothing scrolls.
func (s screen) View() tea.View {
	frame := s.view.Frame(s.width, max(1, s.height-2))
	content := text(frame, s.colors)
	if !s.ended {
		content += "q to quit"
	}
	return tea.NewView(content)
}
