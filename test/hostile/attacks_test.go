package hostile_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

var _ = Describe("The neighbour of a hostile namespace keeps operating", Ordered, ContinueOnFailure, func() {
	BeforeEach(func(ctx context.Context) { attacked.restart(ctx) })

	It("while modules are sent for inspection, none of which is stored", func(ctx context.Context) {
		attacked.survives(ctx, "modules", attacked.namespace(ctx, "modules"))
	})

	It("while 100 pods wait for 15 x 64 rules", func(ctx context.Context) {
		attacked.survives(ctx, "waiting-pods", attacked.namespace(ctx, "events"))
	})

	It("while objects are sent whose selectors have 150,000 values", func(ctx context.Context) {
		// The API server reads such objects of any kind before it rejects them. The cost
		// of PodOps is the difference to as many values in objects without a webhook of
		// PodOps.
		attacked.installBlobs(ctx)
		namespaces := []string{attacked.namespace(ctx, "selectors")}
		var blobs, selectors times
		var sent []string
		for range 2 {
			sent = append(sent, attacked.during(ctx, order{Attack: "large-blobs", Namespaces: namespaces}, &blobs))
			sent = append(sent, attacked.during(ctx, order{Attack: "large-selectors", Namespaces: namespaces}, &selectors))
		}
		attacked.expectAlive()
		attacked.remove(ctx, namespaces...)
		attacked.undisturbed = attacked.quiet.work(ctx, quietTime)
		attacked.compare("large-selectors", fmt.Sprintf("%s and %s (against %s and %s)", sent[1], sent[3], sent[0], sent[2]), blobs, selectors)
	})

	It("while twelve namespaces have slow, legal modules", func(ctx context.Context) {
		var namespaces []string
		for i := range 12 {
			namespaces = append(namespaces, attacked.namespace(ctx, fmt.Sprintf("slow-%d", i)))
		}
		setUp := &attacker{order: order{Namespaces: namespaces}, admin: attacked.admin}
		Expect(setUp.storeSlowModules(ctx)).To(Succeed())
		for _, namespace := range namespaces {
			Eventually(ctx, func() []string { return attacked.deniedBy(ctx, namespace, "slow") }).
				ShouldNot(BeEmpty(), "the modules of %s must be evaluated", namespace)
		}
		attacked.withstands(ctx, "slow-modules", func() string {
			for _, namespace := range namespaces {
				Expect(attacked.deniedBy(ctx, namespace, "slow")).NotTo(BeEmpty(), "the modules of %s must still be evaluated", namespace)
			}
			return "no"
		}, namespaces...)
		Expect(attacked.gaveWay(ctx)).To(BeNumerically(">", 0), "rounds must end early: the modules must be slow enough")
	})

	It("while modules use up the stack and the memory of their worker", func(ctx context.Context) {
		namespaces := []string{attacked.namespace(ctx, "engine"), attacked.namespace(ctx, "honest")}
		setUp := &attacker{order: order{Namespaces: namespaces}, admin: attacked.admin}
		Expect(setUp.storeDeadlyModules(ctx)).To(Succeed())
		attacked.withstands(ctx, "deadly-modules", func() string {
			for i, namespace := range namespaces {
				for j := range 3 {
					name := fmt.Sprintf("honest-%d-%d", i, j)
					Expect(setUp.waitingPod(ctx, namespace, name, honest)).To(Succeed())
					Eventually(ctx, func(g Gomega) {
						pod := &corev1.Pod{}
						g.Expect(attacked.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod)).To(Succeed())
						g.Expect(has(pod, appsv1alpha1.PreCheckedLabelPrefix)).To(BeTrue())
					}).Should(Succeed(), "a permit of a rule that is honest, in namespace %s", namespace)
				}
			}
			Eventually(ctx, func(g Gomega) {
				object := &appsv1alpha1.PodTransitionRule{}
				g.Expect(attacked.admin.Get(ctx, client.ObjectKey{Namespace: namespaces[0], Name: "deadly"}, object)).To(Succeed())
				for _, status := range object.Status.Rules {
					g.Expect(status.Quarantined).NotTo(BeNil(), "rule %s", status.Name)
				}
			}).Should(Succeed())
			return "no"
		}, namespaces...)
		peak, err := attacked.group.Peak()
		Expect(err).NotTo(HaveOccurred())
		Expect(peak).To(BeNumerically("<", memoryLimit))
	})

	It("while large objects of other kinds are stored, and when it starts with them", func(ctx context.Context) {
		namespace := attacked.namespace(ctx, "objects")
		wait := attacked.start(ctx, order{Attack: "large-objects", Namespaces: []string{namespace}})
		attacked.withstands(ctx, "large-objects", func() string {
			sent := wait()
			stored, err := strconv.Atoi(sent)
			Expect(err).NotTo(HaveOccurred())
			Expect(attacked.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "large-0"}, &corev1.Service{})).
				To(Succeed(), "the API server must store them")
			attacked.restart(ctx)
			// As a whole, a Service takes 3 MiB, and a PodOperation a quarter.
			peak, err := attacked.group.Peak()
			Expect(err).NotTo(HaveOccurred())
			Expect(peak>>20).To(BeNumerically("<", 256+stored/4), "MiB of memory for %d objects", stored)
			return sent
		}, namespace)
	})

	It("while names of rules are used only once", func(ctx context.Context) {
		attacked.survives(ctx, "names", attacked.namespace(ctx, "names"))
		Expect(len(attacked.scrape(ctx))).To(BeNumerically("<", 1<<20), "bytes of /metrics")
	})
})

// during runs an attack, adds the times of the neighbour meanwhile to all, and returns the number of requests that
// the attack sent.
func (f *target) during(ctx context.Context, o order, all *times) (sent string) {
	GinkgoHelper()
	wait := f.start(ctx, o)
	*all = all.and(f.quiet.work(ctx, attackTime))
	return wait()
}

// namespace creates a namespace for an attack.
func (f *target) namespace(ctx context.Context, name string) string {
	GinkgoHelper()
	Expect(f.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	return name
}

// deniedBy returns the pods that a PodTransitionRule blocks because a module was evaluated
// and did not pass them.
func (f *target) deniedBy(ctx context.Context, namespace, name string) []string {
	GinkgoHelper()
	object := &appsv1alpha1.PodTransitionRule{}
	Expect(f.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)).To(Succeed())
	var pods []string
	for _, blocked := range object.Status.Blocked {
		if blocked.Reason == string(rule.CodeNotAllowed) {
			pods = append(pods, blocked.Name)
		}
	}
	return pods
}

// gaveWay returns how many rounds ended before all rules were evaluated.
func (f *target) gaveWay(ctx context.Context) float64 {
	GinkgoHelper()
	total := 0.0
	for line := range strings.Lines(f.scrape(ctx)) {
		if strings.HasPrefix(line, "podops_rounds_gave_way_total{") {
			value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
			Expect(err).NotTo(HaveOccurred())
			total += value
		}
	}
	return total
}

// scrape reads the metrics of the manager.
func (f *target) scrape(ctx context.Context) string {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.metrics+"/metrics", nil)
	Expect(err).NotTo(HaveOccurred())
	answer, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// sendModules sends objects with unique modules for inspection.
func (a *attacker) sendModules(ctx context.Context) error {
	return a.inParallel(ctx, 8, func(ctx context.Context, n int) error {
		var rules []appsv1alpha1.TransitionRule
		for i := range 48 {
			rules = append(rules, appsv1alpha1.TransitionRule{
				Name: fmt.Sprintf("r%d", i), Rego: &appsv1alpha1.RegoRule{Module: largeModule(fmt.Sprintf("x%d_%d", n, i))},
			})
		}
		if err := a.expectDenialOrSuccess(a.admin.Create(ctx, ruleset(a.Namespaces[0], "many", rules...), client.DryRunAll)); err != nil {
			return err
		}
		// One object has at most this many.
		return a.expectDenialOrSuccess(a.admin.Create(ctx, ruleset(a.Namespaces[0], "some", rules[:8]...), client.DryRunAll))
	})
}

// makePodsWait makes 100 pods wait for 15 objects of 64 rules.
func (a *attacker) makePodsWait(ctx context.Context) error {
	for i := range 15 {
		var rules []appsv1alpha1.TransitionRule
		for j := range 64 {
			rules = append(rules, appsv1alpha1.TransitionRule{
				Name:       fmt.Sprintf("rule-%d", j),
				LabelCheck: &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{MatchLabels: map[string]string{fmt.Sprintf("missing-%d", j): "true"}}},
			})
		}
		if err := a.expectDenialOrSuccess(a.admin.Create(ctx, ruleset(a.Namespaces[0], fmt.Sprintf("rules-%d", i), rules...))); err != nil {
			return err
		}
	}
	for i := range 100 {
		if err := a.waitingPod(ctx, a.Namespaces[0], fmt.Sprintf("web-%d", i), "web"); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// largeObjects bounds the objects of each kind that storeLargeObjects stores.
const largeObjects = 250

// storeLargeObjects stores Services whose selectors have as many labels as fit into an object, and PodOperations with
// large annotations. The manager caches both.
func (a *attacker) storeLargeObjects(ctx context.Context) error {
	selector := map[string]string{}
	for i := range 40_000 {
		selector[fmt.Sprintf("l%d", i)] = ""
	}
	return a.inParallel(ctx, 4, func(ctx context.Context, n int) error {
		if n >= largeObjects {
			<-ctx.Done()
			return nil
		}
		meta := metav1.ObjectMeta{Namespace: a.Namespaces[0], Name: fmt.Sprintf("large-%d", n)}
		service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: selector, Ports: []corev1.ServicePort{{Port: 80}},
		}}
		if err := a.expectDenialOrSuccess(a.admin.Create(ctx, service)); err != nil {
			return err
		}
		meta.Annotations = map[string]string{"note": strings.Repeat("x", 250_000)}
		return a.expectDenialOrSuccess(a.admin.Create(ctx, &appsv1alpha1.PodOperation{ObjectMeta: meta, Spec: appsv1alpha1.PodOperationSpec{
			Target:  appsv1alpha1.PodOperationTarget{Names: []string{"web"}},
			Action:  appsv1alpha1.PodOperationAction{Type: appsv1alpha1.ActionRestart},
			Suspend: true,
		}}))
	})
}

// manyValues returns as many values as fit into a request.
func manyValues() []string {
	values := make([]string, 150_000)
	for i := range values {
		values[i] = fmt.Sprintf("v%d", i)
	}
	return values
}

// installBlobs installs a kind of which an object has at most ten values.
func (f *target) installBlobs(ctx context.Context) {
	GinkgoHelper()
	definition := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(blobs), &definition.Object)).To(Succeed())
	Expect(f.admin.Create(ctx, definition)).To(Succeed())
	Eventually(ctx, func() error {
		return f.admin.Create(ctx, blob("default", "probe", []string{"v"}), client.DryRunAll)
	}).Should(Succeed())
}

const blobs = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: blobs.hostile.example.com}
spec:
  group: hostile.example.com
  names: {kind: Blob, plural: blobs}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              values: {type: array, maxItems: 10, items: {type: string, maxLength: 63}}
`

func blob(namespace, name string, values []string) *unstructured.Unstructured {
	items := make([]any, len(values))
	for i, value := range values {
		items[i] = value
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "hostile.example.com/v1", "kind": "Blob",
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec":     map[string]any{"values": items},
	}}
}

// sendLargeBlobs sends as many values as sendLargeSelectors in objects that no webhook of
// PodOps reviews.
func (a *attacker) sendLargeBlobs(ctx context.Context) error {
	values := manyValues()
	return a.inParallel(ctx, 4, func(ctx context.Context, n int) error {
		err := a.admin.Create(ctx, blob(a.Namespaces[0], fmt.Sprintf("large-%d", n), values))
		if err == nil {
			return fmt.Errorf("a Blob is stored with %d values", len(values))
		}
		return a.expectDenialOrSuccess(err)
	})
}

// sendLargeSelectors sends selectors of 150,000 values.
func (a *attacker) sendLargeSelectors(ctx context.Context) error {
	values := manyValues()
	return a.inParallel(ctx, 4, func(ctx context.Context, n int) error {
		large := ruleset(a.Namespaces[0], fmt.Sprintf("large-%d", n), appsv1alpha1.TransitionRule{
			Name:       "r",
			LabelCheck: &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}},
		})
		large.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: values}}
		err := a.admin.Create(ctx, large)
		if err == nil {
			return fmt.Errorf("PodTransitionRule %s is stored with a selector of %d values", large.Name, len(values))
		}
		return a.expectDenialOrSuccess(err)
	})
}

// storeSlowModules makes ten pods of each namespace wait for eight slow modules.
func (a *attacker) storeSlowModules(ctx context.Context) error {
	for i, namespace := range a.Namespaces {
		var rules []appsv1alpha1.TransitionRule
		for j := range 8 {
			rules = append(rules, appsv1alpha1.TransitionRule{
				Name: fmt.Sprintf("slow-%d", j), Rego: &appsv1alpha1.RegoRule{Module: slowModule(fmt.Sprintf("%d_%d", i, j))},
			})
		}
		// Admission has a budget for modules, so a rejected module is sent again.
		err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (bool, error) {
			err := a.admin.Create(ctx, ruleset(namespace, "slow", rules...))
			return err == nil, a.expectDenialOrSuccess(err)
		})
		if err != nil {
			return fmt.Errorf("storing the modules of %s: %w", namespace, err)
		}
		for j := range 10 {
			if err := a.waitingPod(ctx, namespace, fmt.Sprintf("web-%d", j), "web"); err != nil {
				return err
			}
		}
	}
	return nil
}

// honest is the label app of pods to which only an honest module applies.
const honest = "honest"

// deadlyModules pass every check of their text. Both end a process that does not stop them: the first by its stack,
// the second by its memory.
func deadlyModules() map[string]string {
	return map[string]string{
		"stack": `package rule
xs := numbers.range(1, 2000)
ys := [i | some i in xs]
a1 := [xs | some i in xs]
b1 := [ys | some i in xs]
cs := [a1 | some i in xs]
ds := [b1 | some i in xs]
allow if cs == ds
`,
		"memory": `package rule
path := concat("/", ["a" | some i in numbers.range(1, 9999)])
allow if json.remove({"b": 1}, [path | some i in numbers.range(1, 5000)]) == {}
`,
	}
}

// storeDeadlyModules makes a pod of the first namespace wait for modules that end their worker. An honest module
// applies to other pods of all namespaces.
func (a *attacker) storeDeadlyModules(ctx context.Context) error {
	for _, namespace := range a.Namespaces {
		module := "package rule\n\nallow if input.pod.labels.app == \"honest\"\n"
		object := ruleset(namespace, honest, appsv1alpha1.TransitionRule{Name: honest, Rego: &appsv1alpha1.RegoRule{Module: module}})
		object.Spec.Selector.MatchLabels["app"] = honest
		if err := a.admin.Create(ctx, object); err != nil {
			return err
		}
	}
	var rules []appsv1alpha1.TransitionRule
	for name, module := range deadlyModules() {
		for i := range 4 {
			rules = append(rules, appsv1alpha1.TransitionRule{
				Name: fmt.Sprintf("%s-%d", name, i), Rego: &appsv1alpha1.RegoRule{Module: fmt.Sprintf("# %d\n%s", i, module)},
			})
		}
	}
	if err := a.admin.Create(ctx, ruleset(a.Namespaces[0], "deadly", rules...)); err != nil {
		return err
	}
	return a.waitingPod(ctx, a.Namespaces[0], "web", "web")
}

// useNamesOnce creates and deletes objects whose rules have unique names.
func (a *attacker) useNamesOnce(ctx context.Context) error {
	if err := a.waitingPod(ctx, a.Namespaces[0], "web", "web"); err != nil {
		return err
	}
	return a.inParallel(ctx, 2, func(ctx context.Context, n int) error {
		var rules []appsv1alpha1.TransitionRule
		for j := range 32 {
			rules = append(rules, appsv1alpha1.TransitionRule{
				Name:       fmt.Sprintf("rule-%d-%d", n, j),
				LabelCheck: &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{MatchLabels: map[string]string{"missing": "true"}}},
			})
		}
		object := ruleset(a.Namespaces[0], fmt.Sprintf("names-%d", n), rules...)
		if err := a.expectDenialOrSuccess(a.admin.Create(ctx, object)); err != nil {
			return err
		}
		return a.expectDenialOrSuccess(client.IgnoreNotFound(a.admin.Delete(ctx, object)))
	})
}

// waitingPod creates a pod of an app that requests an operation.
func (a *attacker) waitingPod(ctx context.Context, namespace, name, app string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: podLabels()}, Spec: podSpec()}
	pod.Labels["app"] = app
	if err := a.admin.Create(ctx, pod); err != nil {
		return a.expectDenialOrSuccess(err)
	}
	before := pod.DeepCopy()
	pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+operationID] = "1"
	pod.Labels[appsv1alpha1.OperationTypeLabelPrefix+"/"+operationID] = "update"
	return a.expectDenialOrSuccess(a.admin.Patch(ctx, pod, client.MergeFrom(before)))
}

// largeModule returns a unique legal module of just under 16 KiB.
func largeModule(name string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "package rule\n\nallow if %s_0\n", name)
	for i := 0; ; i++ {
		line := fmt.Sprintf("\n%s_%d if {\n\tinput.pod.labels.a%d == \"%s\"\n\tinput.pod.labels.b == \"%d\"\n}\n", name, i, i, name, i)
		if text.Len()+len(line) > 16<<10-16 || i == 190 {
			return text.String()
		}
		text.WriteString(line)
	}
}

// slowModule returns a legal module that uses most of the time limit of a module. It reads
// the time, so that no verdict is cached.
func slowModule(name string) string {
	return fmt.Sprintf(`package rule

allow if {
	input.pod.name == "none_%s"
}

allow if {
	input.now > 0
	count([1 | some x in numbers.range(1, 250); some y in numbers.range(1, 100); x + y == 7]) > 100000
}
`, name)
}
