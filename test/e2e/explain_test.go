package e2e_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/test/expect"
)

// explained is one situation that kubectl podops explain explains: how it comes about, and the object.
type explained struct {
	// name of the golden file, which begins with the situation that the output must name.
	name    string
	prepare func(context.Context, scenario)
	object  string
	flags   func(scenario) []string

	// repeat sends a request again that lapses otherwise; nil for others.
	repeat func(context.Context, scenario) error
}

// situation returns the name of the section of docs/explain.md.
func (e explained) situation() string { name, _, _ := strings.Cut(e.name, "."); return name }

const explainID = "upgrade"

// requested returns a preparation: rules, pods that are available, and an operation on the first.
func requested(pods int, rules ...appsv1alpha1.TransitionRule) func(context.Context, scenario) {
	return func(ctx context.Context, p scenario) {
		if len(rules) > 0 {
			p.rule(ctx, rules...)
		}
		p.pods(ctx, pods, nil)
		p.begin(ctx, p.get(ctx, "web-00"), explainID, explainID)
	}
}

// started does the same and waits until the operation may run.
func started(rules ...appsv1alpha1.TransitionRule) func(context.Context, scenario) {
	return func(ctx context.Context, p scenario) {
		requested(1, rules...)(ctx, p)
		Eventually(ctx, p.seeing("web-00")).Should(expect.BeOperable(explainID))
	}
}

func withEnforcement(rule appsv1alpha1.TransitionRule, enforcement appsv1alpha1.Enforcement) appsv1alpha1.TransitionRule {
	rule.Enforcement = enforcement
	return rule
}

// situationsOfRules returns the situations in which rules and budgets withhold pods.
func situationsOfRules() []explained {
	return []explained{
		{name: "label-mismatch", prepare: requested(1, approved())},
		{name: "label-mismatch.two-rules", prepare: requested(1, approved(), appsv1alpha1.TransitionRule{
			Name: "ticket", LabelCheck: &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{MatchLabels: map[string]string{"ticket": "INC-1"}}},
		})},
		{name: "no-room", prepare: func(ctx context.Context, p scenario) {
			p.rule(ctx, maxUnavailable("1"))
			p.pods(ctx, 3, nil)
			p.begin(ctx, p.get(ctx, "web-01"), explainID, explainID)
			Eventually(ctx, p.seeing("web-01")).Should(expect.BeOperable(explainID))
			p.begin(ctx, p.get(ctx, "web-00"), explainID, explainID)
		}},
		{name: "never-passes", prepare: requested(1, minAvailable("100%"))},
		{name: "passes-with-surge", prepare: func(ctx context.Context, p scenario) {
			p.rule(ctx, minAvailable("100%"))
			p.deployment(ctx, 1, nil)
			p.begin(ctx, p.list(ctx)[0], explainID, explainID)
		}, object: "deploy/web"},
		{name: "not-approved", prepare: func(ctx context.Context, p scenario) {
			p.rule(ctx, approvalRule(2))
			p.roll(ctx, p.deployment(ctx, 1, nil), "carol", "v2")
			p.plugin(ctx, "approve", "deploy/web", "--as", "alice", "--as-group", "system:masters")
		}, object: "deploy/web"},
		{name: "revision-denied", prepare: func(ctx context.Context, p scenario) {
			p.rule(ctx, approvalRule(1))
			p.roll(ctx, p.deployment(ctx, 1, nil), "carol", "v2")
			p.plugin(ctx, "deny", "deploy/web", "--reason", "not on Friday", "--as", "dan", "--as-group", "system:masters")
		}, object: "deploy/web"},
		{name: "not-allowed", prepare: requested(1, regoRule("tested", "allow if input.pod.labels.tested == \"true\"\n\n"+
			`reason := sprintf("%s has not been tested", [input.pod.name])`))},
		{name: "denied", prepare: requested(1, regoRule("tested", `deny contains "it is not tested" if not input.pod.labels.tested`))},
		{name: "quarantined", prepare: requested(1, regoRule("loops", `allow if {
	some i in numbers.range(1, 5000)
	some j in numbers.range(1, 5000)
	some k in numbers.range(1, 5000)
	i * j * k < 0
}`))},
		{name: "webhook-unresolvable", prepare: requested(1, webhookRule("http://approvals.invalid/"))},
		{name: "webhook-secret", prepare: func(ctx context.Context, p scenario) {
			rule := webhookRule("https://127.0.0.1:1/")
			rule.Webhook.ClientConfig.SecretRef = &appsv1alpha1.SecretReference{Name: "credentials"}
			requested(1, rule)(ctx, p)
		}},
		{name: "disruption-budget", prepare: func(ctx context.Context, p scenario) {
			p.rule(ctx, maxUnavailable("2"))
			p.replicaSet(ctx, 2)
			p.disruptionBudget(ctx, "web", "1")
			pods := p.list(ctx)
			p.begin(ctx, pods[0], explainID, explainID)
			Eventually(ctx, p.seeing(pods[0].Name)).Should(expect.BeOperable(explainID))
			p.begin(ctx, pods[1], explainID, explainID)
			p.label(ctx, pods[1], "explained", "true")
		}, object: "-lexplained=true"},
		{name: "label-mismatch.post-check", prepare: func(ctx context.Context, p scenario) {
			started(inPostCheck(approved()))(ctx, p)
			p.setLabels(ctx, p.get(ctx, "web-00"), map[string]any{operating + explainID: nil})
		}},
		{name: "label-mismatch.deployment", prepare: func(ctx context.Context, p scenario) {
			p.rule(ctx, approved())
			deployment := p.deployment(ctx, 3, nil)
			p.patch(ctx, deployment, `{"spec":{"template":{"metadata":{"annotations":{"rolled":"1"}}}}}`)
		}, object: "deploy/web"},
		{name: "label-mismatch.rule", prepare: requested(1, approved()), object: "ptr/web"},
		{name: "would-withhold", prepare: requested(1, withEnforcement(approved(), appsv1alpha1.EnforcementDryRun))},
		{name: "skips-rules", prepare: func(ctx context.Context, p scenario) {
			p.rule(ctx, approved(), minAvailable("100%"))
			p.pods(ctx, 1, func(pod *corev1.Pod) {
				pod.Annotations = map[string]string{appsv1alpha1.SkipRulesAnnotationKey: `{"skipRules":["approved"]}`}
			})
			p.begin(ctx, p.get(ctx, "web-00"), explainID, explainID)
		}},
		{name: "break-glass", prepare: func(ctx context.Context, p scenario) {
			requested(1, approved())(ctx, p)
			p.patch(ctx, p.get(ctx, "web-00"), `{"metadata":{"annotations":{%q:"INC-1, jane"}}}`, appsv1alpha1.BreakGlassAnnotationKey)
			Eventually(ctx, p.seeing("web-00")).Should(expect.BeOperable(explainID))
		}},
		{name: "break-glass-everywhere", prepare: func(ctx context.Context, p scenario) {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
			p.patch(ctx, namespace, `{"metadata":{"annotations":{%q:"INC-2, jane"}}}`, appsv1alpha1.BreakGlassAnnotationKey)
			started(approved())(ctx, p)
		}},
		{name: "selects-nothing", prepare: func(ctx context.Context, p scenario) { p.rule(ctx, approved()) }, object: "ptr/web"},
		{name: "never-finishes", prepare: func(ctx context.Context, p scenario) {
			p.deployment(ctx, 2, func(deployment *appsv1.Deployment) {
				deployment.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
			})
			p.rule(ctx, maxUnavailable("50%"))
		}, object: "ptr/web"},
	}
}

// situationsOfDeletes returns the situations of deletes, evictions and scale-downs that are held.
func situationsOfDeletes() []explained {
	again := func(ctx context.Context, p scenario) error { return p.admin.Delete(ctx, p.get(ctx, "web-00")) }
	deleted := func(spec string) func(context.Context, scenario) {
		return func(ctx context.Context, p scenario) {
			rule := p.rule(ctx, approved())
			p.patch(ctx, rule, `{"spec":{%s}}`, spec)
			p.pods(ctx, 1, nil)
			Expect(again(ctx, p)).To(expect.BeRefused(429))
		}
	}
	return []explained{
		{name: "delete-held", prepare: deleted(""), repeat: again},
		{name: "hold-bounded", prepare: deleted(`"maxHold":"30m","onMaxHold":"Release"`), repeat: again},
		{name: "hold-expired", prepare: deleted(`"maxHold":"1s"`)},
		{name: "eviction-held", prepare: func(ctx context.Context, p scenario) {
			p.rule(ctx, approved())
			p.pods(ctx, 1, nil)
		}, repeat: func(ctx context.Context, p scenario) error { return p.evict(ctx, p.get(ctx, "web-00")) }},
		{name: "scale-down-kept", prepare: func(ctx context.Context, p scenario) {
			p.rule(ctx, approved())
			set := p.replicaSet(ctx, 2)
			p.scale(ctx, set, 1)
		}, object: "rs/web"},
		{name: "rollout-paused", prepare: func(ctx context.Context, p scenario) {
			deployment := p.deployment(ctx, 1, nil)
			p.patch(ctx, deployment, `{"spec":{"paused":true}}`)
		}, object: "deploy/web"},
		{name: "terminating-finalizer", prepare: func(ctx context.Context, p scenario) {
			p.pods(ctx, 1, func(pod *corev1.Pod) { pod.Finalizers = []string{appsv1alpha1.ProtectionFinalizerPrefix + "/left"} })
			Expect(p.admin.Delete(ctx, p.get(ctx, "web-00"), forced)).To(Succeed())
		}},
	}
}

// situationsOfTraffic returns the situations of operations that are permitted, and of pods that do not serve.
func situationsOfTraffic() []explained {
	controller := serviceController{employer: "web"}
	served := func(service bool) func(context.Context, scenario) {
		return func(ctx context.Context, p scenario) {
			object := p.service(ctx, controller.employer)
			p.pods(ctx, 1, func(pod *corev1.Pod) { controller.announce(pod); pod.Finalizers = []string{controller.finalizer()} })
			p.begin(ctx, p.get(ctx, "web-00"), explainID, explainID)
			if !service {
				Eventually(ctx, p.seeing("web-00")).Should(expect.HaveLabel(appsv1alpha1.PrepareLabelPrefix + "/" + explainID))
				Expect(p.admin.Delete(ctx, object)).To(Succeed())
			}
		}
	}
	one := func(change func(*corev1.Pod)) func(context.Context, scenario) {
		return func(ctx context.Context, p scenario) { p.pod(ctx, "web-00", change) }
	}
	return []explained{
		{name: "traffic-still-on", prepare: served(true)},
		{name: "employer-gone", prepare: served(false)},
		{name: "unknown-finalizer", prepare: func(ctx context.Context, p scenario) {
			p.pods(ctx, 1, func(pod *corev1.Pod) { pod.Finalizers = []string{appsv1alpha1.ProtectionFinalizerPrefix + "/unknown"} })
			p.begin(ctx, p.get(ctx, "web-00"), explainID, explainID)
		}},
		{name: "traffic-not-on", prepare: func(ctx context.Context, p scenario) {
			p.service(ctx, controller.employer)
			p.pod(ctx, "web-00", controller.announce)
		}},
		{name: "connections-left", prepare: func(ctx context.Context, p scenario) {
			p.pods(ctx, 1, func(pod *corev1.Pod) {
				pod.Annotations = map[string]string{appsv1alpha1.DrainEndpointAnnotationKey: ":8081/drain", appsv1alpha1.DrainTimeoutAnnotationKey: "1h"}
			})
			p.begin(ctx, p.get(ctx, "web-00"), explainID, explainID)
		}},
		{name: "waits-for-operation", prepare: started()},
		{name: "operation-not-ended", prepare: func(ctx context.Context, p scenario) {
			started()(ctx, p)
			pod := p.get(ctx, "web-00")
			// Kubelets report the start of containers in whole seconds.
			permitted, _ := lifecycle.ParseTime(pod.Labels[appsv1alpha1.OperateLabelPrefix+"/"+explainID])
			Eventually(ctx, time.Now).Should(BeTemporally(">", permitted.Add(time.Second)))
			pod.Spec.Containers[0].Image = "registry.example.com/web:v2"
			Expect(p.admin.Update(ctx, pod)).To(Succeed())
		}},
		{name: "other-operation", prepare: func(ctx context.Context, p scenario) {
			started()(ctx, p)
			p.begin(ctx, p.get(ctx, "web-00"), "restart", "restart")
			Eventually(ctx, p.seeing("web-00")).Should(expect.BeOperable("restart"))
			p.setLabels(ctx, p.get(ctx, "web-00"), map[string]any{operating + explainID: nil})
		}},
		{name: "stay-offline", prepare: one(func(pod *corev1.Pod) { pod.Labels[appsv1alpha1.StayOfflineLabelKey] = "true" })},
		{name: "not-scheduled", prepare: one(func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"no": "node"} })},
		{name: "containers-not-ready", prepare: one(func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{"test.podops.dev/not-ready": "true"}
		})},
		{name: "not-controlled", prepare: func(ctx context.Context, p scenario) {
			p.rule(ctx, approved())
			p.pod(ctx, "web-00", func(pod *corev1.Pod) { delete(pod.Labels, appsv1alpha1.ControlLabelKey) })
		}},
		{name: "manager-away", prepare: func(ctx context.Context, p scenario) {
			requested(1, approved())(ctx, p)
			// The Lease of a manager that ended long ago, in a namespace of its own.
			Expect(p.admin.Create(ctx, &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "podops-controller-manager"},
				Spec: coordinationv1.LeaseSpec{
					HolderIdentity: new("manager-0"), LeaseDurationSeconds: new(int32(15)),
					RenewTime: &metav1.MicroTime{Time: time.Now().Add(-time.Hour)},
				},
			})).To(Succeed())
		}, flags: func(p scenario) []string { return []string{"--podops-namespace", p.namespace} }},
	}
}

var _ = Describe("kubectl podops explain", Ordered, ContinueOnFailure, func() {
	var all []explained
	all = append(append(append(all, situationsOfRules()...), situationsOfDeletes()...), situationsOfTraffic()...)
	scenarios := map[string]scenario{}

	// Many situations come about at once: most of them take seconds. All at once, their modules wait for a check for longer than a review may.
	BeforeAll(func(ctx context.Context) {
		for _, e := range all {
			scenarios[e.name] = newScenario(ctx)
		}
		var preparing errgroup.Group
		preparing.SetLimit(24)
		for _, e := range all {
			preparing.Go(func() error {
				defer GinkgoRecover()
				e.prepare(ctx, scenarios[e.name])
				return nil
			})
		}
		Expect(preparing.Wait()).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			for _, p := range scenarios {
				for _, pod := range p.list(ctx) {
					if len(pod.Finalizers) > 0 {
						p.patch(ctx, pod, `{"metadata":{"finalizers":null}}`)
					}
				}
			}
		})
	})

	for _, e := range all {
		It("explains "+e.name, func(ctx context.Context) {
			p, file := scenarios[e.name], filepath.Join("testdata", "explain", e.name+".txt")
			var last string
			shown := func(ctx context.Context) string {
				if e.repeat != nil {
					Expect(e.repeat(ctx, p)).To(expect.BeRefused(429)) // it would lapse
				}
				last = p.explain(ctx, e)
				return withoutLayout(last)
			}
			if os.Getenv("UPDATE_EXPLAIN") != "" {
				Eventually(ctx, shown).Should(ContainSubstring("docs/explain.md#" + e.situation()))
				Expect(os.WriteFile(file, []byte(last), 0o600)).To(Succeed())
			}
			want, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			Expect(string(want)).To(ContainSubstring("docs/explain.md#" + e.situation()))
			Eventually(ctx, shown).Should(Equal(withoutLayout(string(want))))
		})
	}
})

// explain returns the output of the plugin, without names and times that differ each time.
func (p scenario) explain(ctx context.Context, e explained) string {
	object := e.object
	if object == "" {
		object = "pod/web-00"
	}
	arguments := []string{"explain", object, "--kubeconfig", p.kubeconfig, "--namespace", p.namespace}
	if e.flags != nil {
		arguments = append(arguments, e.flags(p)...)
	}
	command := exec.CommandContext(ctx, requireProgram("kubectl-podops"), arguments...)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	_ = command.Run() // the output has the error
	text := strings.ReplaceAll(out.String(), p.namespace, "NAMESPACE")
	text = regexp.MustCompile(`web-[a-z0-9]{5,10}(-[a-z0-9]{5})?\b`).ReplaceAllString(text, "web-XXXXX")
	text = regexp.MustCompile(`\brevision [0-9a-f]{12}\b`).ReplaceAllString(text, "revision HASH")
	text = regexp.MustCompile(`\bnode-\d+\b`).ReplaceAllString(text, "NODE")
	return regexp.MustCompile(`\b\d+(s|m|h|d)(\d+(s|m|h))?\b`).ReplaceAllString(text, "AGE")
}

// withoutLayout returns the words of a text in one line: where lines break depends on the lengths of names
// and times.
func withoutLayout(text string) string { return strings.Join(strings.Fields(text), " ") }
