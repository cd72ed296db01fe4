package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/evaluation/offline"
)

// parityCase is a rule about a fleet of its own.
type parityCase struct {
	name string
	rule appsv1alpha1.TransitionRule

	// pods is how many pods the fleet has. The first of them is approved if approved is set, and the last skips
	// the rule if skips is set.
	pods            int
	approved, skips bool
}

// parityRules returns rules of the kinds availablePolicy, labelCheck and rego, by name.
func parityRules() map[string]appsv1alpha1.TransitionRule {
	rules := map[string]appsv1alpha1.TransitionRule{}
	for _, value := range []string{"1", "2", "50%", "100%"} {
		name := strings.TrimSuffix(value, "%")
		rules["max-"+name], rules["min-"+name] = maxUnavailable(value), minAvailable(value)
	}
	both := maxUnavailable("2")
	both.AvailablePolicy.MinAvailableValue = intOrString("2")
	rules["max-and-min"] = both
	for operator, values := range map[metav1.LabelSelectorOperator][]string{
		metav1.LabelSelectorOpIn: {"true", "yes"}, metav1.LabelSelectorOpNotIn: {"true"},
		metav1.LabelSelectorOpExists: nil, metav1.LabelSelectorOpDoesNotExist: nil,
	} {
		rules["label-"+strings.ToLower(string(operator))] = appsv1alpha1.TransitionRule{LabelCheck: &appsv1alpha1.LabelCheck{
			Requires: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: approvedLabel, Operator: operator, Values: values}}},
		}}
	}
	rules["label-equal"] = approved()
	for name, text := range map[string]string{
		"allow":        `allow if input.pod.labels["` + approvedLabel + `"] == "true"`,
		"reason":       "allow if endswith(input.pod.name, \"-9\")\n\nreason := sprintf(\"pod %s is no tenth pod\", [input.pod.name])",
		"never":        "allow := false\n\nreason := \"never\"",
		"always":       "allow := true",
		"undefined":    `allow if input.pod.annotations.missing == "x"`,
		"deny":         "deny contains \"first\"\n\ndeny contains \"second\" if input.operation.type != \"\"",
		"details":      `deny contains {"message": "later", "retry_after_seconds": 240, "details": {"stage": input.stage}}`,
		"one-at-once":  "allow if every other in input.pods { other.permitted == false }",
		"counted":      "allow if input.counts.available - input.counts.reserved > 1",
		"namespace":    `allow if input.namespace.labels.team == "parity"`,
		"restarts":     `allow if input.operation.type == "restart"`,
		"conflict":     "allow if _value == 1\n\n_value := 1 if input.pod.name != \"\"\n\n_value := 2 if input.pod.name != \"\"",
		"parameters":   "allow if input.pod.name in input.parameters.names\n\nreason := sprintf(\"not in %v\", [input.parameters.names])",
		"since":        "allow if input.operation.since > input.now",
		"node":         `allow if input.node.conditions.Ready == "True"`,
		"no-node":      "allow if input.node.name == \"\"\n\nreason := sprintf(\"cordoned: %v\", [input.node.unschedulable])",
		"requester":    "allow if \"system:masters\" in input.operation.request.groups",
		"no-owner":     `allow if input.pod.owner.kind == ""`,
		"builtin-fail": `allow if to_number(input.pod.name) > 1`,
	} {
		rules["rego-"+name] = appsv1alpha1.TransitionRule{Rego: &appsv1alpha1.RegoRule{Module: "package rule\n\n" + text + "\n"}}
	}
	withParameters := policyRule("", "", `{"names":["someone"]}`)
	withParameters.Rego.PolicyRef, withParameters.Rego.Module = nil, rules["rego-parameters"].Rego.Module
	rules["rego-parameters"] = withParameters
	return rules
}

// parityCases returns the rules with each enforcement, in and out of their scope, about several fleets.
// An availablePolicy that is not enforced sees other pods leave one by one, and has one pod.
func parityCases() []parityCase {
	var cases []parityCase
	add := func(name string, rule appsv1alpha1.TransitionRule, pods int, approved, skips bool) {
		rule.Name = "parity"
		cases = append(cases, parityCase{name: name, rule: rule, pods: pods, approved: approved, skips: skips})
	}
	rules := parityRules()
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		rule := rules[name]
		if rule.AvailablePolicy != nil {
			add(name+"-fleet", rule, 3, false, false)
		} else {
			add(name+"-fleet", rule, 2, true, false)
		}
		add(name+"-single", rule, 1, false, false)
		add(name+"-skipped", rule, 1, false, true)
		for _, enforcement := range []appsv1alpha1.Enforcement{appsv1alpha1.EnforcementDryRun, appsv1alpha1.EnforcementWarn} {
			softer := *rule.DeepCopy()
			softer.Enforcement = enforcement
			add(name+"-"+strings.ToLower(string(enforcement)), softer, 1, false, false)
		}
		scoped := *rule.DeepCopy()
		scoped.Conditions = []string{"update"}
		add(name+"-update", scoped, 1, false, false)
		filtered := *rule.DeepCopy()
		filtered.Filter = &appsv1alpha1.TransitionRuleFilter{LabelSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: approvedLabel, Operator: metav1.LabelSelectorOpDoesNotExist}},
		}}
		if rule.AvailablePolicy == nil {
			add(name+"-filtered", filtered, 2, true, false)
		}
	}
	return cases
}

// paritySpace is a namespace in which every pod waits for one operation in one stage.
type paritySpace struct {
	scenario
	operation string
	stage     appsv1alpha1.TransitionStage
	cases     []parityCase

	// predicted are the verdicts of kubectl podops eval before the operations begin, by pod.
	predicted map[string]offline.Verdict
}

// parityID is the id of the operations, and parityUser the administrator, who begins them.
const parityID, parityUser = "updater", "podops-admin"

// parityGroups returns the groups of the administrator.
func parityGroups() []string { return []string{"system:authenticated", "system:masters"} }

// examplePrefix begins the names of the cases of the worked policies.
const examplePrefix = "example-"

// someAtOnce calls a function for each index, some at a time.
func someAtOnce(ctx context.Context, count int, call func(i int)) {
	GinkgoHelper()
	workqueue.ParallelizeUntil(ctx, 12, count, func(i int) {
		defer GinkgoRecover()
		call(i)
	})
}

// create creates the rules and the pods of the cases.
func (s *paritySpace) create(ctx context.Context) {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	s.patch(ctx, namespace, `{"metadata":{"labels":{"team":"parity"}}}`)
	someAtOnce(ctx, len(s.cases), func(i int) {
		c := s.cases[i]
		for n := range c.pods {
			s.pod(ctx, fmt.Sprintf("%s-%d", c.name, n), func(pod *corev1.Pod) {
				pod.Labels[caseLabel] = c.name
				if c.approved && n == 0 {
					pod.Labels[approvedLabel] = "true"
				}
				if c.skips && n == c.pods-1 {
					pod.Annotations = map[string]string{appsv1alpha1.SkipRulesAnnotationKey: `{"skipRules":["parity"]}`}
				}
			})
		}
	})
	s.awaitAvailable(ctx, s.count()) // a new pod has PostCheck rules, too
	someAtOnce(ctx, len(s.cases), func(i int) {
		rule := s.cases[i].rule
		rule.Stage = s.stage
		s.ruleFor(ctx, s.cases[i].name, map[string]string{caseLabel: s.cases[i].name}, rule)
	})
}

func (s *paritySpace) count() int {
	pods := 0
	for _, c := range s.cases {
		pods += c.pods
	}
	return pods
}

// eval runs kubectl podops eval against the namespace, and returns the verdicts by pod.
func (s *paritySpace) eval(ctx context.Context, flags ...string) map[string]offline.Verdict {
	GinkgoHelper()
	out, _ := run(ctx, "kubectl-podops", append([]string{"eval", "--kubeconfig", s.kubeconfig, "-n", s.namespace, "-o", "json"}, flags...)...)
	read := struct{ Verdicts []offline.Verdict }{}
	Expect(json.Unmarshal([]byte(out), &read)).To(Succeed())
	verdicts := map[string]offline.Verdict{}
	for _, verdict := range read.Verdicts {
		verdicts[verdict.Pod] = verdict
	}
	return verdicts
}

// beginOperations begins the operation of every pod, in the order of their names in each fleet, and brings them to
// the stage.
func (s *paritySpace) beginOperations(ctx context.Context) {
	GinkgoHelper()
	someAtOnce(ctx, len(s.cases), func(i int) {
		for n := range s.cases[i].pods {
			s.begin(ctx, s.get(ctx, fmt.Sprintf("%s-%d", s.cases[i].name, n)), parityID, s.operation)
		}
	})
	if s.stage == appsv1alpha1.StagePreCheck {
		return
	}
	Eventually(ctx, func(ctx context.Context) []string {
		var waiting []string
		for _, pod := range s.list(ctx) {
			if pod.Labels[appsv1alpha1.OperateLabelPrefix+"/"+parityID] == "" {
				waiting = append(waiting, pod.Name)
			}
		}
		return waiting
	}).Should(BeEmpty())
	pods := s.list(ctx)
	someAtOnce(ctx, len(pods), func(i int) { s.setLabels(ctx, pods[i], map[string]any{operating + parityID: nil}) })
}

// withheldBy returns the enforced rule that withholds the pod, with code and message; empty without one.
func withheldBy(verdict offline.Verdict, withMessage bool) string {
	for _, found := range verdict.Rules {
		if found.State == evaluation.VerdictWithheld {
			text := found.Rule + " " + string(found.Code)
			if withMessage {
				text += " " + found.Message
			}
			return text
		}
	}
	return ""
}

// summaries returns the state of each pod, with the rule that withholds it.
func summaries(verdicts map[string]offline.Verdict) map[string]string {
	made := map[string]string{}
	for name, verdict := range verdicts {
		made[name] = string(verdict.State) + " " + withheldBy(verdict, true)
	}
	return made
}

// live returns the rule that withholds each pod in the status of its PodTransitionRule, in the same form.
func (s *paritySpace) live(ctx context.Context, withMessage bool) map[string]string {
	GinkgoHelper()
	withheld := map[string]string{}
	for _, rule := range s.listRules(ctx) {
		for _, blocked := range rule.Status.Blocked {
			text := blocked.Rule + " " + blocked.Reason
			if withMessage {
				text += " " + blocked.Message
			}
			withheld[blocked.Name] = text
		}
	}
	return withheld
}

// hasPassed reports whether a pod got the permit of the stage.
func (s *paritySpace) hasPassed(pod *corev1.Pod) bool {
	prefix := appsv1alpha1.PreCheckLabelPrefix
	if s.stage == appsv1alpha1.StagePostCheck {
		prefix = appsv1alpha1.PostCheckLabelPrefix
	}
	_, waits := pod.Labels[prefix+"/"+parityID]
	return !waits
}

// differences returns the cases whose verdicts differ between the command and the manager.
func (s *paritySpace) differences(ctx context.Context) map[string]string {
	GinkgoHelper()
	differing := map[string]string{}
	codes, wouldCounts := s.live(ctx, false), map[string]int64{}
	for _, rule := range s.listRules(ctx) {
		for _, status := range rule.Status.Rules {
			wouldCounts[rule.Name] += status.WouldWithhold
		}
	}
	would := map[string]int64{}
	for _, pod := range s.list(ctx) {
		predicted, name := s.predicted[pod.Name], pod.Labels[caseLabel]
		if passed := s.hasPassed(pod); passed != (predicted.State == offline.Permitted) {
			differing[name] += fmt.Sprintf("%s: predicted %s, permitted is %t; ", pod.Name, predicted.State, passed)
		}
		if got, want := codes[pod.Name], withheldBy(predicted, false); got != want {
			differing[name] += fmt.Sprintf("%s: predicted %q, is %q; ", pod.Name, want, got)
		}
		for _, found := range predicted.Rules {
			if found.State == evaluation.VerdictWouldWithhold {
				would[name]++
			}
		}
	}
	for _, c := range s.cases {
		if would[c.name] != wouldCounts[c.name] {
			differing[c.name] += fmt.Sprintf("predicted %d that would be withheld, are %d; ", would[c.name], wouldCounts[c.name])
		}
	}
	// The settled state, word for word.
	messages, settled := s.live(ctx, true), s.eval(ctx)
	for name, verdict := range settled {
		if verdict.State == offline.NotWaiting {
			continue
		}
		if got, want := messages[name], withheldBy(verdict, true); got != want {
			differing[name[:strings.LastIndex(name, "-")]] += fmt.Sprintf("%s: eval has %q, the status %q; ", name, want, got)
		}
	}
	return differing
}

// examples returns a case for each worked policy, with its PodTransitionPolicy created under another name.
func (s *paritySpace) examples(ctx context.Context) []parityCase {
	GinkgoHelper()
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "samples", "policies", "*.yaml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(files).NotTo(BeEmpty())
	decoder := serializer.NewCodecFactory(s.scheme).UniversalDeserializer()
	var cases []parityCase
	for _, file := range files {
		content, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		for _, document := range bytes.Split(content, []byte("\n---\n")) {
			object, _, err := decoder.Decode(document, nil, nil)
			Expect(err).NotTo(HaveOccurred())
			switch given := object.(type) {
			case *appsv1alpha1.PodTransitionPolicy:
				given.Name = s.namespace + "-" + given.Name
				Expect(s.admin.Create(ctx, given)).To(Succeed())
				DeferCleanup(func(ctx context.Context) {
					Expect(s.admin.DeleteAllOf(ctx, &appsv1alpha1.PodTransitionRule{}, client.InNamespace(s.namespace))).To(Succeed())
					Eventually(ctx, func(ctx context.Context) error { return client.IgnoreNotFound(s.admin.Delete(ctx, given)) }).Should(Succeed())
				})
			case *appsv1alpha1.PodTransitionRule:
				for _, rule := range given.Spec.Rules {
					if rule.Rego == nil || rule.Rego.PolicyRef == nil {
						continue
					}
					rule.Rego.PolicyRef.Name = s.namespace + "-" + rule.Rego.PolicyRef.Name
					rule.Name, rule.Enforcement, rule.Conditions = "parity", appsv1alpha1.EnforcementEnforce, nil
					cases = append(cases, parityCase{name: examplePrefix + strings.TrimSuffix(filepath.Base(file), ".yaml"), rule: rule, pods: 2})
				}
			}
		}
	}
	return cases
}

var _ = Describe("kubectl podops eval", func() {
	It("gives the verdicts and reasons of a live manager", Label(longStories), func(ctx context.Context) {
		// A rule that is not enforced and that a round does not reach lets the pod pass without a verdict.
		managers.stopAll()
		managers.start(ctx, "--round-budget", "1m")
		DeferCleanup(func(ctx context.Context) {
			managers.stopAll()
			managers.start(ctx)
		})
		var spaces []*paritySpace
		for _, operation := range []string{"update", "restart"} {
			spaces = append(spaces, &paritySpace{scenario: newScenario(ctx), operation: operation, stage: appsv1alpha1.StagePreCheck})
		}
		after := &paritySpace{scenario: newScenario(ctx), operation: "update", stage: appsv1alpha1.StagePostCheck}
		for i, c := range parityCases() {
			// Each fleet is in one of the first two namespaces; the third has fleets of the rules that read no other
			// pods: a pod that passes PostCheck is available soon after, and the others are evaluated again.
			spaces[i%2].cases = append(spaces[i%2].cases, c)
			if c.rule.AvailablePolicy == nil && c.rule.Enforcement == "" && c.pods == 2 && !strings.HasPrefix(c.name, "rego-one-at-once") {
				after.cases = append(after.cases, c)
			}
		}
		spaces[0].cases = append(spaces[0].cases, spaces[0].examples(ctx)...)
		spaces = append(spaces, after)

		By("creating rules and pods")
		total := 0
		for _, s := range spaces {
			s.create(ctx)
			total += len(s.cases)
		}

		By("predicting the verdicts, also from files, and running suites with the same pods")
		suites := 0
		for _, s := range spaces {
			began := []string{"--operation", s.operation, "--stage", string(s.stage)}
			s.predicted = s.eval(ctx, began...)
			Expect(summaries(s.evalDump(ctx, began...))).To(Equal(summaries(s.predicted)))
			dir, written := s.writeSuites(ctx, time.Now())
			run(ctx, "kubectl-podops", "test", dir)
			suites += written
		}
		Expect(suites).To(Equal(total))

		By("beginning the operations")
		for _, s := range spaces {
			s.beginOperations(ctx)
		}

		By("comparing them with those of the manager")
		differing := map[string]string{}
		Eventually(ctx, func(ctx context.Context) map[string]string {
			differing = map[string]string{}
			for _, s := range spaces {
				for name, text := range s.differences(ctx) {
					differing[s.operation+"/"+string(s.stage)+"/"+name] = text
				}
			}
			return differing
		}).WithTimeout(3 * patience).Should(BeEmpty())
		Expect(total).To(BeNumerically(">=", 200))
		line := fmt.Sprintf("parity: %d cases, %d equal; %d suites", total, total-len(differing), suites)
		AddReportEntry("parity", line)
		GinkgoWriter.Println(line)
		_, _ = fmt.Fprintln(os.Stdout, "\n"+line)
	})
})
