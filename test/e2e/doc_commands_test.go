package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/docpage"
)

// unrunCommands are beginnings of commands in the documentation that another test runs, or that need what a local control
// plane has not.
var unrunCommands = map[string]string{
	"kubectl podops install":                          "test/integration/install",
	"kubectl podops uninstall":                        "uninstall_test.go, and plugin_removal_test.go",
	"kubectl apply --server-side -k config/default":   "test/integration/manifests, and test/upgrade",
	"kubectl apply --server-side --force-conflicts":   "test/integration/manifests, and test/upgrade",
	"kubectl -n podops-system rollout status":         "test/upgrade",
	"kubectl apply --server-side -k examples/kvstore": "examples/kvstore/demo, with operator-local",
	"kubectl apply -k examples/kvstore/config/sample": "examples/kvstore/demo",
	"kubectl annotate kvs":                            "examples/kvstore/demo",
	"kubectl apply -f rights.yaml":                    "traffic_adapter_test.go",
	"kubectl podops replay":                           "replay.txtar of cmd/kubectl-podops",
	"kubectl podops test rules":                       "test.txtar of cmd/kubectl-podops",
	"kubectl podops test absent":                      "test.txtar of cmd/kubectl-podops",
	"kubectl podops verify doubtful.yaml":             "verify.txtar of cmd/kubectl-podops",
	"kubectl -n podops-system top":                    "there is no metrics server",
	"kubectl -n podops-system logs":                   "the manager is not a pod",
	"kubectl exec":                                    "pods have no processes",
	"bin/kubectl label pod -l app=web demo":           "make demo",
}

// ownPages are pages whose commands another test runs, in their order.
var ownPages = map[string]bool{filepath.Join("docs", "first-policy.md"): true}

// freshPages are pages whose commands create the objects that the other pages have.
var freshPages = map[string]bool{filepath.Join("docs", "resourceconsist.md"): true}

// preparations are what a page has before its commands.
var preparations = map[string]string{
	"docs/kubectl-podops/unstick.md": stuckPod,
	"docs/letting-go.md":             stuckPod,
	"docs/disruption-budgets.md":     "kubectl create poddisruptionbudget web --selector=app=web --max-unavailable=1",
	"docs/podoperation.md": `kubectl apply -f - <<-'END'
	{apiVersion: apps.kusionstack.io/v1alpha1, kind: PodOperation, metadata: {name: restart-web},
	spec: {target: {owner: {kind: Deployment, name: web}}, action: {type: Restart}}}
	END`,
}

// stuckPod creates a pod that waits for a controller that does not exist.
const stuckPod = `kubectl apply -f - <<-'END'
	{apiVersion: v1, kind: Pod, metadata: {name: web-6d4f, labels: {kusionstack.io/control: "true"}, finalizers: [prot.podopslifecycle.kusionstack.io/gone]},
	spec: {containers: [{name: web, image: web}]}}
	END
	kubectl wait pod/web-6d4f --for=condition=Ready
	kubectl label pod web-6d4f collaset.kusionstack.io/to-delete=true
	until kubectl podops unstick pod/web-6d4f; do sleep 1; done`

// followCommands matches commands that end by a signal only.
var followCommands = regexp.MustCompile(`podops dashboard| (-w|--watch)( |$)`)

var _ = Describe("The documentation", func() {
	It("has commands that can be run", func(ctx context.Context) {
		d := newDocumentation(ctx)
		var failures []string
		unrun := map[string]bool{}
		for _, page := range d.pages() {
			commands, err := docpage.Commands(filepath.Join(d.root, page))
			Expect(err).NotTo(HaveOccurred())
			if ownPages[page] {
				continue
			}
			assignments, place := "", d
			if freshPages[page] {
				place = d.fresh(ctx)
			}
			d.prepare(ctx, page)
			for _, command := range commands {
				if assignment.MatchString(command) {
					assignments += command + "\n"
				}
				if !kubectlCommand.MatchString(command) || isUnrun(command, unrun) {
					continue
				}
				GinkgoWriter.Println(page, command)
				output, err := place.run(ctx, assignments, command)
				for began := time.Now(); isHeld(output) && time.Since(began) < patience; {
					output, err = place.run(ctx, assignments, command) // as the page has it
				}
				if err != nil {
					failures = append(failures, fmt.Sprintf("%s: %s\n%v: %s", page, command, err, output))
				}
			}
		}
		Expect(failures).To(BeEmpty(), strings.Join(failures, "\n"))
		Expect(unrun).To(HaveLen(len(unrunCommands)), "every exception is in a page")
	})
})

var (
	// assignment matches an assignment of a variable that no test sets.
	assignment = regexp.MustCompile(`^[A-Z]+=\S+$`)

	// kubectlCommand matches a command that runs kubectl.
	kubectlCommand = regexp.MustCompile(`(^|[ /(])kubectl( |-podops )`)
)

// isHeld returns whether rules withhold the pod of a command, which is repeated then.
func isHeld(output string) bool { return strings.Contains(output, "PodOps holds this") }

// isUnrun returns whether a command is an exception, and notes which.
func isUnrun(command string, unrun map[string]bool) bool {
	for prefix := range unrunCommands {
		if strings.HasPrefix(command, prefix) {
			unrun[prefix] = true
			return true
		}
	}
	return false
}

// documentation is a namespace with the objects that the pages name, and a folder with the files.
type documentation struct {
	scenario

	root, folder string
}

// removeOtherRules removes the rules of stories that have ended, whose namespaces may not be deleted yet: some commands read all namespaces.
func (d documentation) removeOtherRules(ctx context.Context) {
	GinkgoHelper()
	rules := &appsv1alpha1.PodTransitionRuleList{}
	Expect(d.admin.List(ctx, rules)).To(Succeed())
	for i := range rules.Items {
		Expect(client.IgnoreNotFound(d.admin.Delete(ctx, &rules.Items[i]))).To(Succeed())
	}
}

// newDocumentation creates the objects and the files.
func newDocumentation(ctx context.Context) documentation {
	GinkgoHelper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	Expect(err).NotTo(HaveOccurred())
	d := documentation{scenario: newScenario(ctx), root: root, folder: GinkgoT().TempDir()}
	d.removeOtherRules(ctx)
	d.deployment(ctx, 6, nil)
	d.rule(ctx, maxUnavailable("25%"))
	d.service(ctx, "web")
	for _, name := range []string{"web-0", "web-1", "cart-0", "cart-x", "db-0", "db-1"} {
		d.pod(ctx, name, nil)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-of-pages", Labels: map[string]string{"pool": "blue"}}}
	Expect(d.admin.Create(ctx, node)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(d.admin.Delete(ctx, node)).To(Succeed())
		d.kubectl(ctx, "annotate", "namespace", "--all", appsv1alpha1.BreakGlassAnnotationKey+"-", appsv1alpha1.FreezeAnnotationKey+"-")
	})

	d.enter(ctx)
	for _, file := range []string{
		"kubectl get pods -o yaml > pods.yaml", "kubectl get ptr web -o yaml | sed /resourceVersion/d > rule.yaml", "mkdir rules", "cp rule.yaml rules",
	} {
		output, err := d.run(ctx, "", file)
		Expect(err).NotTo(HaveOccurred(), output)
	}
	return d
}

// prepare writes the files of a page and creates its objects, and makes the rule what it was.
func (d documentation) prepare(ctx context.Context, page string) {
	GinkgoHelper()
	steps, err := docpage.Read(filepath.Join(d.root, page))
	Expect(err).NotTo(HaveOccurred())
	for _, step := range steps {
		if step.File != "" {
			Expect(os.WriteFile(filepath.Join(d.folder, step.File), []byte(step.Text), 0o600)).To(Succeed())
		}
	}
	output, err := d.run(ctx, "", `kubectl patch ptr web --type=merge --patch '{"spec":{"rules":[{"name":"availability","availablePolicy":{"maxUnavailableValue":"25%"}}]}}'`+"\n"+preparations[page])
	Expect(err).NotTo(HaveOccurred(), output)
}

// fresh returns a namespace without objects, and a folder without files.
func (d documentation) fresh(ctx context.Context) documentation {
	GinkgoHelper()
	d.scenario, d.folder = newScenario(ctx), GinkgoT().TempDir()
	d.enter(ctx)
	return d
}

// enter makes the namespace that of the context in the folder.
func (d documentation) enter(ctx context.Context) {
	GinkgoHelper()
	for _, name := range []string{"bin", "config", "examples", "policies", "charts"} {
		Expect(os.Symlink(filepath.Join(d.root, name), filepath.Join(d.folder, name))).To(Succeed())
	}
	kubeconfig, err := os.ReadFile(d.kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(d.folder, "kubeconfig"), kubeconfig, 0o600)).To(Succeed())
	output, err := d.run(ctx, "", "kubectl config set-context --current --namespace="+d.namespace)
	Expect(err).NotTo(HaveOccurred(), output)
}

// pages returns the paths of all pages, relative to the repository.
func (d documentation) pages() []string {
	GinkgoHelper()
	pages := []string{"README.md"}
	Expect(filepath.WalkDir(filepath.Join(d.root, "docs"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(entry.Name()) == ".md" {
			path, err = filepath.Rel(d.root, path)
			pages = append(pages, path)
		}
		return err
	})).To(Succeed())
	return pages
}

// run runs a command after assignments of variables, with the names in the pages replaced by those in the scenario. A command that
// follows objects is ended after its first output.
func (d documentation) run(ctx context.Context, assignments, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	before, _, _ := strings.Cut(command, "| jq ") // which a machine may not have
	shell := exec.CommandContext(ctx, "sh", "-ec", assignments+d.named(ctx, before))
	shell.Dir = d.folder
	shell.Env = append(os.Environ(), "KUBECONFIG=kubeconfig", "PATH="+filepath.Dir(requireProgram("kubectl-podops"))+":"+os.Getenv("PATH"))
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	if !followCommands.MatchString(command) {
		output, err := shell.CombinedOutput()
		if ended := (*exec.ExitError)(nil); strings.Contains(command, "podops doctor") && errors.As(err, &ended) && ended.ExitCode() == 2 {
			return string(output), nil // it has found the faults of another scenario
		}
		return string(output), err
	}
	output, err := shell.StdoutPipe()
	if err != nil {
		return "", err
	}
	var complaints bytes.Buffer
	shell.Stderr = &complaints
	if err := shell.Start(); err != nil {
		return "", err
	}
	_, unread := output.Read(make([]byte, 1))
	cancel()
	_ = shell.Wait() // it was killed
	return complaints.String(), unread
}

// named replaces names of the pages in a command.
func (d documentation) named(ctx context.Context, command string) string {
	var pods []string
	for _, pod := range d.list(ctx) {
		if len(pod.OwnerReferences) > 0 && pod.DeletionTimestamp == nil {
			pods = append(pods, pod.Name)
		}
	}
	if len(pods) < 3 {
		pods = []string{"missing", "missing", "missing"} // in a fresh namespace
	}
	for _, name := range []struct{ page, cluster string }{
		{`\bweb-(6d4f-a|00|\.\.\.|7b9d8e6f5c-2xk9p|5d9c-x7k2p)`, pods[0]}, {`\bPOD\b`, pods[0]},
		{`\bweb-(6d4f-b|01)`, pods[1]}, {`\bweb-6d4f-c`, pods[2]},
		{`-n shop\b`, "-n " + d.namespace}, {`\bnamespace shop\b`, "namespace " + d.namespace}, {`\bNAMESPACE\b`, d.namespace},
		{` --revision 3fa9c1d2e4b5\b`, " --revision="}, {`\bsts/db\b`, "deploy/web"}, {`\b(RULE|NAME)\b`, "web"}, {`\bnode-1\b`, "node-of-pages"},
	} {
		command = regexp.MustCompile(name.page).ReplaceAllLiteralString(command, name.cluster)
	}
	return command
}
