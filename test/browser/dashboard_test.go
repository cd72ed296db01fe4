package browser_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/podops-dev/podops/test/stage"
)

const namespace = "demo"

// TestDashboard follows a rollout of 12 pods on the page: at rest, withheld by a rule, in motion, and complete. Each
// moment leaves a picture in bin/dashboard.
func TestDashboard(t *testing.T) {
	bin := required(t, "PODOPS_BIN")
	chromium := required(t, "CHROMIUM")
	screenshots := filepath.Join(bin, "dashboard")
	if err := os.MkdirAll(screenshots, 0o755); err != nil {
		t.Fatal(err)
	}
	// Manifests are paths in the repository.
	t.Chdir("../..")
	cluster := stage.New(stage.Options{Bin: bin, Dir: filepath.Join(bin, "dashboard.d"), Out: t.Output()})
	t.Cleanup(func() {
		if err := cluster.Down(); err != nil {
			t.Error(err)
		}
	})
	if err := cluster.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	kubectl := func(arguments ...string) {
		t.Helper()
		if err := cluster.Kubectl(t.Context(), append([]string{"-n", namespace}, arguments...)...); err != nil {
			t.Fatal(err)
		}
	}
	if err := cluster.Kubectl(t.Context(), "create", "namespace", namespace); err != nil {
		t.Fatal(err)
	}
	kubectl("apply", "-k", "test/demo/manifests")

	shown := open(t, chromium, screenshots, serve(t, bin, cluster.Kubeconfig()))

	// The token is not in the address any more.
	shown.await("the address has no token", "location.search === ''")

	shown.awaitText("#state", "Complete")
	shown.awaitText("#summary", "12 of 12 desired pods available")
	shown.awaitText("#phase-legend", "Available 12")
	shown.awaitText("#rules", "web/availability")
	shown.awaitText("#traffic-empty", "No Service and no load balancer selects these pods.")
	shown.awaitText("#blocked-empty", "No pod waits: the workload is complete.")
	shown.awaitText("#connection", "live")
	shown.moment("1-at-rest")

	kubectl("rollout", "restart", "deployment/web")
	shown.awaitText("#state", "Withheld")
	shown.awaitText("#blocked", "by web/approved")
	shown.awaitText("#blocked", "kubectl podops explain pod/web-")
	shown.awaitText("#rules", "withholds")
	shown.awaitText("#workloads", "Withheld")
	shown.moment("2-withheld")

	// The rollout goes on for the pods of now; new pods get the label with the next step.
	shown.recordMost("unavailable", "#budgets", `document.querySelector("#budgets meter")?.value ?? 0`)
	kubectl("label", "pod", "-l", "app=web", "demo.podops.dev/approved=true")
	shown.await("pods have been unavailable", "window.unavailable > 0")
	shown.await("the timeline has phases that ended", `document.querySelectorAll("#timeline .track span").length > 12`)
	shown.awaitText("#timeline-legend", "PreCheck")
	shown.moment("3-in-motion")

	shown.awaitText("#state", "Complete")
	shown.awaitText("#summary", "12 of 12 desired pods available.")
	shown.moment("4-complete")

	checkKeys(t, shown)

	shown.narrow()
	shown.await("the page fits a narrow screen", "document.documentElement.scrollWidth <= innerWidth")
	shown.await("the header is small on a narrow screen", "document.querySelector('header').offsetHeight <= innerHeight / 6")
	shown.moment("5-narrow")
}

// checkKeys uses the page without a mouse.
func checkKeys(t *testing.T, shown *browserPage) {
	t.Helper()
	shown.press("/")
	if focused := shown.focused(); focused != "filter" {
		t.Errorf("after / the focus is at %q, want filter", focused)
	}
	shown.press("nosuchworkload")
	shown.awaitText("#workloads-empty", "No workload matches the filter.")
	shown.press("\x1b")
	shown.awaitText("#workloads", "web")
	shown.await("a workload is selected that the filter hides", `(page.selected = "another", true)`)
	shown.focus("#filter")
	shown.press("web\r")
	shown.awaitText("#workloads [aria-current=true]", "web")
	if focused := shown.focused(); focused != "workload" {
		t.Errorf("after Enter in the filter the focus is at %q, want workload", focused)
	}
	shown.press("?")
	shown.await("the keys are shown", `document.getElementById("keys").open`)
	shown.press("\x1b")
	shown.await("the keys are hidden", `!document.getElementById("keys").open`)
}

// serve starts the dashboard and returns the address that it prints.
func serve(t *testing.T, bin, kubeconfig string) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	command := exec.CommandContext(ctx, filepath.Join(bin, "kubectl-podops"), "dashboard", "--kubeconfig", kubeconfig, "--namespace", namespace)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	command.Stderr = t.Output()
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "http://127.0.0.1:") {
		t.Fatalf("the dashboard printed %q, error %v; want its address", lines.Text(), lines.Err())
	}
	t.Cleanup(func() {
		stop()
		// Ctrl-C ends the dashboard without an error, while a page is open.
		if err := command.Wait(); command.ProcessState.ExitCode() != 0 {
			t.Errorf("the dashboard ended with %v", err)
		}
	})
	return lines.Text()
}

func required(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set: run make test-browser", name)
	}
	return value
}
