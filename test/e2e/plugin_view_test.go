package e2e_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"

	"github.com/podops-dev/podops/pkg/view/rolloutview"
	"github.com/podops-dev/podops/pkg/view/timeline"
	"github.com/podops-dev/podops/test/expect"
)

var _ = Describe("kubectl podops during a rollout", func() {
	It("shows withheld pods, follows them to the end, and records their phases", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, approved())
		p.deployment(ctx, 3, nil)
		before := p.list(ctx)
		Eventually(ctx, p.list).Should(And(HaveLen(3), HaveEach(expect.BeAvailable())))
		Eventually(ctx, p.view).Should(HaveField("State", rolloutview.StateComplete), "once the controllers have observed the Deployment")

		By("naming the rule that withholds the old pods")
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
		Eventually(ctx, p.view).Should(And(
			HaveField("State", rolloutview.StateWithheld),
			HaveField("Available", 4), // maxSurge
			HaveField("Rules", ContainElement(And(HaveField("Name", "web/approved"), HaveField("Reason", "LabelMismatch")))),
		))
		text, _ := p.plugin(ctx, "get", "deploy/web")
		Expect(text).To(And(ContainSubstring("Deployment/web: "), ContainSubstring("PreCheck"), ContainSubstring("is missing"),
			ContainSubstring("revision 1, old"), Not(ContainSubstring("\x1b"))))

		By("serving no page to a user who may not list pods")
		refused := p.startPlugin("dashboard", "--as", "a-user-without-rights")
		Eventually(ctx, refused).Should(gexec.Exit(1))
		Expect(string(refused.Out.Contents())).To(BeEmpty())
		Expect(string(refused.Err.Contents())).To(ContainSubstring("pods is forbidden"))

		By("watching until the rollout is complete")
		page := filepath.Join(GinkgoT().TempDir(), "rollout.html")
		changes := p.startPlugin("get", "deploy/web", "--watch", "--until-done")
		recording := p.startPlugin("timeline", "deploy/web", "--record", "--html", page, "-o", "json")
		Eventually(ctx, changes.Out).Should(gbytes.Say("PreCheck"))
		Eventually(ctx, recording.Err).Should(gbytes.Say("Recording 4 pods until the rollout is complete"))
		stop := approveOneByOne(p, before)
		defer stop()
		Eventually(ctx, changes).WithTimeout(3 * patience).Should(gexec.Exit(0))
		for _, pod := range before {
			for _, phases := range []string{"PreCheck → Preparing", "Preparing → Operating", "Operating → Terminating", "Terminating → Gone"} {
				Expect(string(changes.Out.Contents())).To(ContainSubstring(pod.Name + "  " + phases))
			}
		}
		Expect(p.view(ctx).State).To(Equal(rolloutview.StateComplete))

		By("having the phases of every pod with their times")
		Eventually(ctx, recording).WithTimeout(patience).Should(gexec.Exit(0))
		var recorded timeline.Timeline
		Expect(json.Unmarshal(recording.Out.Contents(), &recorded)).To(Succeed())
		Expect(recorded.Pods).To(HaveLen(6))
		gone := map[string]timeline.Pod{}
		for _, pod := range recorded.Pods {
			if pod.Gone {
				gone[pod.UID] = pod
			}
		}
		exact := func(phase rolloutview.Phase) OmegaMatcher {
			return And(HaveField("Phase", phase), HaveField("Precision", timeline.Exact))
		}
		for _, pod := range before {
			Expect(gone).To(HaveKeyWithValue(string(pod.UID), HaveField("Spans", ContainElements(
				exact(rolloutview.PhasePreCheck), exact(rolloutview.PhasePreparing),
				exact(rolloutview.PhaseOperating), HaveField("Phase", rolloutview.PhaseTerminating),
			))))
		}
		Expect(os.ReadFile(page)).To(And(ContainSubstring("<svg"), ContainSubstring(before[0].Name)))
	})
})

var _ = Describe("kubectl podops dashboard", func() {
	It("shows workloads of a namespace that is created while it serves all namespaces", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, approved())
		served := p.startPlugin("dashboard", "--all-namespaces")
		Eventually(ctx, served.Out).WithTimeout(patience).Should(gbytes.Say(`http://\S+\n`))
		page, err := url.Parse(strings.TrimSpace(string(served.Out.Contents())))
		Expect(err).NotTo(HaveOccurred())

		later := newScenario(ctx)
		later.rule(ctx, approved())
		later.deployment(ctx, 1, nil)
		states := gbytes.NewBuffer()
		go readStates(ctx, page, states)
		// The dashboard lists the namespaces every 15 s, and then the objects in all of them, which other scenarios make and delete.
		Eventually(ctx, states).WithTimeout(4 * patience).Should(gbytes.Say(later.namespace))
	})
})

// readStates writes the states that a dashboard sends into a buffer, until ctx or the dashboard ends.
func readStates(ctx context.Context, page *url.URL, into *gbytes.Buffer) {
	defer GinkgoRecover()
	jar, err := cookiejar.New(nil)
	Expect(err).NotTo(HaveOccurred())
	browser := &http.Client{Jar: jar} // the page sets the cookie that its streams need
	for _, address := range []string{page.String(), page.JoinPath("events").String()} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		Expect(err).NotTo(HaveOccurred())
		response, err := browser.Do(request)
		Expect(err).NotTo(HaveOccurred())
		_, _ = io.Copy(into, response.Body) // the stream ends with the test
		_ = response.Body.Close()
	}
}

// plugin runs kubectl podops in the namespace of the scenario.
func (p scenario) plugin(ctx context.Context, args ...string) (stdout, stderr string) {
	GinkgoHelper()
	return run(ctx, "kubectl-podops", append(args, "--kubeconfig", p.kubeconfig, "--namespace", p.namespace)...)
}

// startPlugin starts kubectl podops in the namespace of the scenario. It is killed at the end of the scenario.
func (p scenario) startPlugin(args ...string) *gexec.Session {
	GinkgoHelper()
	command := exec.Command(requireProgram("kubectl-podops"), append(args, "--kubeconfig", p.kubeconfig, "--namespace", p.namespace)...)
	session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { session.Kill().Wait() })
	return session
}

// view returns the Deployment web as kubectl podops get prints it.
func (p scenario) view(ctx context.Context) rolloutview.View {
	GinkgoHelper()
	text, _ := p.plugin(ctx, "get", "deploy/web", "-o", "json")
	var view rolloutview.View
	Expect(json.Unmarshal([]byte(text), &view)).To(Succeed())
	return view
}
