package browser_test

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// browserPage is the dashboard in a browser.
type browserPage struct {
	t   *testing.T
	ctx context.Context

	// screenshots is the folder of the screenshots.
	screenshots string
}

// stepTimeout bounds the wait for each change of the page.
const stepTimeout = 2 * time.Minute

// open starts Chromium and loads an address. Uncaught errors of scripts fail the test.
func open(t *testing.T, chromium, screenshots, address string) *browserPage {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium), chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.WindowSize(1280, 900), chromedp.WSURLReadTimeout(time.Minute))
	allocated, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, leave := chromedp.NewContext(allocated)
	t.Cleanup(leave)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("starting %s: %v", chromium, err)
	}
	messages := chromedp.Console(ctx)
	go func() {
		for message, err := range messages {
			if err != nil {
				return // the browser ended
			}
			if message.IsException() || message.Type == "error" {
				t.Errorf("the console of the page has: %s", message)
			}
		}
	}()
	p := &browserPage{t: t, ctx: ctx, screenshots: screenshots}
	run(p, chromedp.Navigate(address))
	return p
}

// run runs an action in the page and returns its value.
func run[T any](p *browserPage, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p.ctx, stepTimeout)
	defer stop()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		p.t.Fatalf("driving the browser: %v", err)
	}
	return value
}

// await waits until a JavaScript condition holds.
func (p *browserPage) await(what, condition string) {
	p.t.Helper()
	ctx, stop := context.WithTimeout(p.ctx, stepTimeout)
	defer stop()
	poll := chromedp.Poll[chromedp.Void](condition, chromedp.WithPollingInterval(100*time.Millisecond), chromedp.WithPollingTimeout(stepTimeout))
	if _, err := chromedp.Run(ctx, poll); err != nil {
		p.t.Fatalf("waiting until %s: %v; the page reads:\n%s", what, err, p.text("body"))
	}
}

// recordMost keeps the largest value of an expression in a variable of the page, at each change of an element: polling
// may miss a value that the page shows for a moment.
func (p *browserPage) recordMost(variable, selector, expression string) {
	p.t.Helper()
	run(p, chromedp.Evaluate[bool](fmt.Sprintf(`(() => {
		window.%[1]s = 0;
		new MutationObserver(() => { window.%[1]s = Math.max(window.%[1]s, %[3]s); })
			.observe(document.querySelector(%[2]q), {attributes: true, childList: true, subtree: true});
		return true;
	})()`, variable, selector, expression)))
}

// awaitText waits until an element has a text.
func (p *browserPage) awaitText(selector, text string) {
	p.t.Helper()
	p.await(fmt.Sprintf("%s reads %q", selector, text),
		fmt.Sprintf("(document.querySelector(%q)?.innerText || '').includes(%q)", selector, text))
}

// text returns the visible text of an element.
func (p *browserPage) text(selector string) string {
	p.t.Helper()
	return run(p, chromedp.Evaluate[string](fmt.Sprintf("document.querySelector(%q)?.innerText || ''", selector)))
}

// press types keys at the element that has the focus.
func (p *browserPage) press(keys string) {
	p.t.Helper()
	run(p, chromedp.KeyEvent(keys))
}

// focus moves the focus to an element.
func (p *browserPage) focus(selector string) {
	p.t.Helper()
	run(p, chromedp.Focus(selector))
}

// theme shows the page in light or dark colors, for either preference of the machine.
func (p *browserPage) theme(name string) {
	p.t.Helper()
	for range 3 {
		if p.text("#theme") == "Theme: "+name {
			return
		}
		p.press("t")
	}
	p.t.Fatalf("the key t does not lead to the theme %q", name)
}

// moment checks that a person can read the page as it is, and takes its pictures in both themes.
func (p *browserPage) moment(name string) {
	p.t.Helper()
	for _, theme := range []string{"dark", "light"} {
		p.theme(theme)
		if problems := p.unreadable(); len(problems) > 0 {
			p.t.Errorf("%s, %s: texts with a contrast below WCAG AA:\n%s", name, theme, strings.Join(problems, "\n"))
		}
		picture := run(p, chromedp.FullScreenshot(100))
		file := filepath.Join(p.screenshots, fmt.Sprintf("%s-%s.png", name, theme))
		if err := os.WriteFile(file, picture, 0o644); err != nil {
			p.t.Fatal(err)
		}
		p.t.Logf("picture: %s", file)
	}
	if problems := p.unnamed(); len(problems) > 0 {
		p.t.Errorf("%s: elements without a name for screen readers:\n%s", name, strings.Join(problems, "\n"))
	}
}

//go:embed testdata/contrast.js
var contrast string

// unreadable returns the texts of the page whose contrast is too low.
func (p *browserPage) unreadable() []string {
	p.t.Helper()
	return run(p, chromedp.Evaluate[[]string](contrast))
}

//go:embed testdata/names.js
var names string

// unnamed returns elements that a screen reader cannot name.
func (p *browserPage) unnamed() []string {
	p.t.Helper()
	return run(p, chromedp.Evaluate[[]string](names))
}

// narrow shows the page as wide as on a phone.
func (p *browserPage) narrow() {
	p.t.Helper()
	run(p, chromedp.EmulateViewport(390, 844))
}

// focused returns the id, or else the text, of the element that has the focus.
func (p *browserPage) focused() string {
	p.t.Helper()
	return run(p, chromedp.Evaluate[string]("document.activeElement.id || document.activeElement.innerText || document.activeElement.tagName"))
}
