package policies_test

import (
	"cmp"
	"fmt"
	"maps"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/parameters"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// friday is a Friday noon in Berlin, two hours before the freeze of the manifest.
func friday() time.Time { return time.Date(2026, time.November, 20, 11, 0, 0, 0, time.UTC) }

// pod returns a pod of an owner that has been available for an hour.
func pod(name string, labels map[string]string) *rule.PodFact {
	return &rule.PodFact{
		UID: types.UID(name), Namespace: "shop", Name: name, Labels: labels,
		Owner:   rule.Owner{Kind: "Deployment", Name: "web", UID: "u1"},
		Created: friday().Add(-time.Hour), Ready: true, Available: true, AvailableSince: friday().Add(-time.Hour),
	}
}

// gone returns a pod that holds a permit and is not available.
func gone(name string, labels map[string]string) *rule.PodFact {
	away := pod(name, labels)
	away.Ready, away.Available, away.AvailableSince, away.Permitted = false, false, time.Time{}, true
	return away
}

func since(ago time.Duration, of *rule.PodFact) *rule.PodFact {
	of.Created, of.AvailableSince = friday().Add(-ago), friday().Add(-ago)
	return of
}

func permits(ago ...time.Duration) []rule.Permit {
	given := []rule.Permit{}
	for i, one := range ago {
		given = append(given, rule.Permit{Pod: fmt.Sprintf("web-%d", i), At: friday().Add(-one)})
	}
	return given
}

func labels(key, value string) map[string]string { return map[string]string{key: value} }

// workedCase is the expected verdict of one of the worked policies for a pod.
type workedCase struct {
	example string
	pod     *rule.PodFact
	around  rule.Environment
	want    rule.Verdict
}

func workedCases() map[string]workedCase {
	const zone, shard, revision = "topology.kubernetes.io/zone", "search.example.com/shard", "pod-template-hash"
	passed := rule.Verdict{Outcome: rule.Passed}
	notAllowed := func(message string) rule.Verdict {
		return rule.Verdict{Code: rule.CodeNotAllowed, Message: message}
	}
	denied := func(message string, retry time.Duration) rule.Verdict {
		return rule.Verdict{Code: rule.CodeDenied, Message: message, RetryAfter: retry}
	}
	calm := rule.Environment{Now: friday(), Namespace: rule.Namespace{Name: "shop"}}
	among := func(pods ...*rule.PodFact) rule.Environment {
		return rule.Environment{Now: friday(), Pods: pods, Counts: rule.Counts{Selected: len(pods), Desired: len(pods)}}
	}
	return map[string]workedCase{
		"no alert": {"alert_block", pod("web-0", nil), calm, passed},
		"an alert": {"alert_block", pod("web-0", nil), rule.Environment{
			Now: friday(), Namespace: rule.Namespace{Name: "shop", Labels: labels("podops.dev/alert", "payments")},
		}, notAllowed("namespace shop has the alert label podops.dev/alert=payments")},

		"a rollout of a pod that is approved": {"approved_rollout", pod("web-0", labels("podops.dev/approved", "true")), calm, passed},
		"a rollout of a pod that is not":      {"approved_rollout", pod("web-0", nil), calm, notAllowed("the rollout waits for the label podops.dev/approved=true")},

		"the shard is whole": {
			"one_per_shard", pod("web-0", labels(shard, "a")),
			among(pod("web-0", labels(shard, "a")), pod("web-1", labels(shard, "a"))), passed,
		},
		"the shard is in use": {
			"one_per_shard", pod("web-0", labels(shard, "a")),
			among(pod("web-0", labels(shard, "a")), gone("web-1", labels(shard, "a"))),
			notAllowed("shard a is in use: web-1 holds a permit"),
		},
		"the shard was taken in this round": {
			"one_per_shard", pod("web-0", labels(shard, "a")), func() rule.Environment {
				around := among(pod("web-0", labels(shard, "a")), pod("web-1", labels(shard, "a")))
				around.Committed = map[types.UID]bool{"web-1": true}
				return around
			}(), notAllowed("shard a is in use: web-1 holds a permit"),
		},

		"another zone is whole": {
			"one_zone_at_a_time", pod("web-0", labels(zone, "a")),
			among(pod("web-0", labels(zone, "a")), pod("web-1", labels(zone, "b")), gone("web-2", labels(zone, "a"))), passed,
		},
		"another zone is in use": {
			"one_zone_at_a_time", pod("web-0", labels(zone, "a")),
			among(pod("web-0", labels(zone, "a")), gone("web-1", labels(zone, "b"))),
			notAllowed("zone a waits for other zones: web-1 (b) holds a permit"),
		},

		"a follower": {
			"leader_last", pod("web-0", labels("role", "replica")),
			among(pod("web-0", labels("role", "replica")), pod("web-1", labels("role", "primary"))), passed,
		},
		"the leader": {
			"leader_last", pod("web-1", map[string]string{"role": "primary", revision: "1"}),
			among(pod("web-0", labels(revision, "1")), pod("web-1", map[string]string{"role": "primary", revision: "1"})),
			notAllowed("the leader waits for the others: web-0 has the same revision"),
		},

		"the first pod": {
			"canary_first", pod("web-0", labels(revision, "1")),
			among(pod("web-0", labels(revision, "1")), pod("web-1", labels(revision, "1"))), passed,
		},
		"a young canary": {
			"canary_first", pod("web-0", labels(revision, "1")),
			among(pod("web-0", labels(revision, "1")), since(20*time.Minute, pod("web-1", labels(revision, "2")))),
			denied("canary web-1 must be available for 30 minutes", 10*time.Minute),
		},
		"a canary that has proved itself": {
			"canary_first", pod("web-0", labels(revision, "1")),
			among(pod("web-0", labels(revision, "1")), since(30*time.Minute, pod("web-1", labels(revision, "2")))), passed,
		},

		"before the freeze": {"change_freeze", pod("web-0", nil), calm, passed},
		"in the freeze": {
			"change_freeze", pod("web-0", nil), rule.Environment{Now: friday().Add(50 * time.Hour)},
			denied("change freeze until 2026-11-23 00:00 (Europe/Berlin)", 10*time.Hour),
		},

		"few permits": {"rate_limit", pod("web-0", nil), rule.Environment{
			Now: friday(), Permits: permits(2*time.Hour, time.Hour, 4*time.Minute, 3*time.Minute, 2*time.Minute, time.Minute),
		}, passed},
		"many permits": {"rate_limit", pod("web-0", nil), rule.Environment{
			Now: friday(), Permits: permits(50*time.Minute, 4*time.Minute, 3*time.Minute, 2*time.Minute, time.Minute),
		}, denied("5 permits in 60 minutes are given", 10*time.Minute)},
	}
}

// TestWorkedPolicies evaluates the worked policies with the engine: with the parameters of their
// manifests, defaults filled in, and the facts of a cluster.
func TestWorkedPolicies(t *testing.T) {
	subject, err := opa.New(opa.Options{Timeout: time.Minute, CustomTimeout: time.Minute, RoundBudget: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	programs, stages := map[string]*opa.Program{}, map[string]appsv1alpha1.TransitionStage{}
	for _, example := range examples(t) {
		programs[example.name], stages[example.name] = example.program(t, subject), example.stage(t)
	}
	tested, cases := map[string]bool{}, workedCases()
	maps.Copy(cases, libraryCases())
	maps.Copy(cases, detailCases())
	for name, tc := range cases {
		tested[tc.example] = true
		t.Run(tc.example+": "+name, func(t *testing.T) {
			// Pods of different cases share names, and must not share cached terms.
			for _, one := range append([]*rule.PodFact{tc.pod}, tc.around.Pods...) {
				one.Version = name
			}
			stage := stages[tc.example]
			request := rule.Request{Pod: tc.pod, Stage: stage, ID: "a", Type: "delete", Cause: rule.CauseRollout, Attempt: "1", Since: friday()}
			result, err := programs[tc.example].Evaluate(t.Context(), stage, tc.around, []rule.Request{request})
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(tc.want, result.Verdicts[request.Key()]); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
	for name := range programs {
		if !tested[name] {
			t.Errorf("%s is not evaluated by the engine in any case", name)
		}
	}
}

// BenchmarkWorkedPolicies evaluates one of 1,000 pods. A rule has 100 ms for it.
func BenchmarkWorkedPolicies(b *testing.B) {
	subject, err := opa.New(opa.Options{Timeout: time.Minute, CustomTimeout: time.Minute, RoundBudget: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	around := rule.Environment{
		Now: friday(), Namespace: rule.Namespace{Name: "shop"}, Counts: rule.Counts{Selected: 1000, Desired: 1000},
	}
	for i := range 1000 {
		one := pod(fmt.Sprintf("web-%d", i), map[string]string{
			"app": "web", "pod-template-hash": fmt.Sprint(i % 2), "role": "replica",
			"topology.kubernetes.io/zone": fmt.Sprint(i % 3), "search.example.com/shard": fmt.Sprint(i % 100),
		})
		one.Version = "1"
		around.Pods = append(around.Pods, one)
		around.Permits = append(around.Permits, rule.Permit{Pod: one.Name, At: friday().Add(-time.Minute)})
	}
	around.Permits = around.Permits[:100]
	for _, example := range examples(b) {
		program := example.program(b, subject)
		request := rule.Request{
			Pod: around.Pods[0], Stage: example.stage(b), ID: "a", Type: "delete", Attempt: "1", Since: friday(),
		}
		b.Run(example.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := program.Evaluate(b.Context(), request.Stage, around, []rule.Request{request}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// stage returns the stage that the manifest's rule is for.
func (e example) stage(t testing.TB) appsv1alpha1.TransitionStage {
	t.Helper()
	_, rules := e.manifest(t)
	return cmp.Or(rules.Spec.Rules[0].Stage, appsv1alpha1.StagePreCheck)
}

// program returns the rule of the manifest, as the manager prepares it.
func (e example) program(t testing.TB, subject *opa.Engine) *opa.Program {
	t.Helper()
	shared, rules := e.manifest(t)
	schema, errs := parameters.Parse(shared.Spec.Parameters, field.NewPath("spec"))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	rule := rules.Spec.Rules[0]
	completed, errs := schema.Complete(given(rule), field.NewPath("parameters"))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	declared, err := schema.JSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	found, err := subject.Inspect(t.Context(), opa.Source{Module: shared.Spec.Module, ParametersSchema: declared})
	if err != nil {
		t.Fatal(err)
	}
	module, err := spec.Rule(types.NamespacedName{Namespace: "shop", Name: rules.Name}, rule, &spec.Custom{
		Source: shared.Spec.Module, Entry: found.Entry, ParametersSchema: declared, Parameters: completed,
	})
	if err != nil {
		t.Fatal(err)
	}
	program, err := subject.Prepare(t.Context(), module)
	if err != nil {
		t.Fatal(err)
	}
	return program
}
