package offline_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/engine/evaluation/offline"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fleet returns a rule about three serving pods.
func fleet(rules ...appsv1alpha1.TransitionRule) offline.Objects {
	objects := offline.Objects{}
	objects.Add(&appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{Name: "cart"},
		Spec: appsv1alpha1.PodTransitionRuleSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "cart"}}, Rules: rules,
		},
	}, "shop")
	for i := range 3 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cart-%d", i), Labels: map[string]string{"app": "cart"}}}
		objects.Add(offline.Serving(pod, now.Add(-time.Hour)), "shop")
	}
	return objects
}

// beginAll has all pods wait for an operation.
func beginAll(t *testing.T, objects offline.Objects, operation offline.Operation) offline.Objects {
	t.Helper()
	for i, pod := range objects.Pods {
		operation.At = now.Add(time.Duration(i) * time.Millisecond)
		waiting, err := offline.Begin(pod, operation)
		if err != nil {
			t.Fatal(err)
		}
		objects.Pods[i] = waiting
	}
	return objects
}

func atMost(unavailable int) appsv1alpha1.TransitionRule {
	bound := intstr.FromInt(unavailable)
	return appsv1alpha1.TransitionRule{Name: "available", AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: &bound}}
}

func requires(key string) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: "labelled", LabelCheck: &appsv1alpha1.LabelCheck{
		Requires: &metav1.LabelSelector{MatchLabels: map[string]string{key: "true"}},
	}}
}

func module(text string) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: "custom", Rego: &appsv1alpha1.RegoRule{Module: "package rule\n\n" + text + "\n"}}
}

func webhook() appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: "approval", Webhook: &appsv1alpha1.TransitionRuleWebhook{
		ClientConfig: appsv1alpha1.WebhookClientConfig{URL: "https://approvals.example.com"},
	}}
}

// summary returns "<pod> <state> [<code>]" for each pod.
func summary(t *testing.T, objects offline.Objects, answers ...offline.Answer) []string {
	t.Helper()
	engine, err := opa.New(opa.Options{Timeout: time.Minute, CustomTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	verdicts, err := offline.Evaluate(t.Context(), objects, offline.Options{Engine: engine, Now: now.Add(time.Second), Answers: answers})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, verdict := range verdicts {
		text := verdict.Pod + " " + string(verdict.State)
		for _, found := range verdict.Rules {
			if found.Code != "" {
				text += " " + string(found.Code)
			}
		}
		all = append(all, text)
	}
	return all
}

func TestEvaluate(t *testing.T) {
	dryRun := requires("approved")
	dryRun.Enforcement = appsv1alpha1.EnforcementDryRun
	after := requires("tested")
	after.Stage = appsv1alpha1.StagePostCheck
	remove := offline.Operation{Type: appsv1alpha1.DeleteOperationType}
	for name, test := range map[string]struct {
		rules     []appsv1alpha1.TransitionRule
		operation offline.Operation
		answers   []offline.Answer
		want      []string
	}{
		"slots go to the pods that began first": {
			rules: []appsv1alpha1.TransitionRule{atMost(1)}, operation: remove,
			want: []string{"cart-0 Permitted", "cart-1 Withheld NoRoom", "cart-2 Withheld NoRoom"},
		},
		"a rule that is not enforced holds no pod": {
			rules: []appsv1alpha1.TransitionRule{dryRun}, operation: remove,
			want: []string{"cart-0 Permitted LabelMismatch", "cart-1 Permitted LabelMismatch", "cart-2 Permitted LabelMismatch"},
		},
		"a module sees the permits before": {
			rules:     []appsv1alpha1.TransitionRule{module("allow if every p in input.pods { not p.permitted }")},
			operation: remove, want: []string{"cart-0 Permitted", "cart-1 Withheld NotAllowed", "cart-2 Withheld NotAllowed"},
		},
		"the stage decides which rules are evaluated": {
			rules: []appsv1alpha1.TransitionRule{atMost(1), after}, operation: offline.Operation{Type: "update", Stage: appsv1alpha1.StagePostCheck},
			want: []string{"cart-0 Withheld LabelMismatch", "cart-1 Withheld LabelMismatch", "cart-2 Withheld LabelMismatch"},
		},
		"a delete has its cause, and another operation none": {
			rules:     []appsv1alpha1.TransitionRule{module(`allow if input.operation.type == "restart"`)},
			operation: offline.Operation{Type: "restart"}, want: []string{"cart-0 Permitted", "cart-1 Permitted", "cart-2 Permitted"},
		},
		"services are not called": {
			rules: []appsv1alpha1.TransitionRule{webhook()}, operation: remove,
			want: []string{"cart-0 NeedsService WebhookPending", "cart-1 NeedsService WebhookPending", "cart-2 NeedsService WebhookPending"},
		},
		"the first answer about a pod counts": {
			rules: []appsv1alpha1.TransitionRule{webhook()}, operation: remove,
			answers: []offline.Answer{
				{Rule: "cart/approval", Pods: []string{"cart-0"}, Result: offline.Approved},
				{Rule: "other/approval", Result: offline.Approved},
				{Pods: []string{"cart-0", "cart-1"}, Result: offline.Rejected},
			},
			want: []string{"cart-0 Permitted", "cart-1 Withheld WebhookRejected", "cart-2 NeedsService WebhookPending"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, summary(t, beginAll(t, fleet(test.rules...), test.operation), test.answers...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAPodThatDoesNotWaitIsNotEvaluated(t *testing.T) {
	objects := fleet(atMost(1))
	delete(objects.Pods[1].Labels, appsv1alpha1.ControlLabelKey)
	want := []string{"cart-0 NotWaiting", "cart-1 NotWaiting", "cart-2 NotWaiting"}
	if diff := cmp.Diff(want, summary(t, objects)); diff != "" {
		t.Error(diff)
	}
}

// The cache of the manager has the pods with the control label; finished pods are there, and do not count.
func TestOnlyThePodsOfTheManagerCount(t *testing.T) {
	half := intstr.FromString("50%")
	for second, entry := range map[string]appsv1alpha1.TransitionRule{
		"Permitted":       module("allow if count(input.pods) == 1"),
		"Withheld NoRoom": {Name: "half", AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: &half}},
	} {
		t.Run(second, func(t *testing.T) {
			objects := beginAll(t, fleet(entry), offline.Operation{Type: appsv1alpha1.DeleteOperationType})
			for _, name := range []string{"other-0", "other-1", "other-2"} {
				pod := offline.Serving(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "cart"}}}, now.Add(-time.Hour))
				delete(pod.Labels, appsv1alpha1.ControlLabelKey)
				objects.Add(pod, "shop")
			}
			objects.Pods[2] = fleet().Pods[2]
			objects.Pods[2].Status.Phase = corev1.PodSucceeded
			if offline.MayBegin(objects.Pods[2]) || offline.MayBegin(objects.Pods[3]) || !offline.MayBegin(objects.Pods[0]) {
				t.Error("an operation waits on the pods under PodOps that have not finished")
			}
			want := []string{
				"cart-0 Permitted", "cart-1 " + second, "cart-2 NotWaiting", "other-0 NotWaiting", "other-1 NotWaiting", "other-2 NotWaiting",
			}
			if diff := cmp.Diff(want, summary(t, objects)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBeginReplacesEarlierLifecycles(t *testing.T) {
	pod := fleet().Pods[0]
	first, err := offline.Begin(pod, offline.Operation{Type: "update", At: now})
	if err != nil {
		t.Fatal(err)
	}
	second, err := offline.Begin(first, offline.Operation{Type: "restart", Stage: appsv1alpha1.StagePostCheck, At: now})
	if err != nil {
		t.Fatal(err)
	}
	if !offline.Waits(first) || !offline.Waits(second) || offline.Waits(pod) {
		t.Error("only the pods whose operation began wait")
	}
	if _, still := second.Labels[appsv1alpha1.OperatingLabelPrefix+"/eval"]; still {
		t.Error("the first lifecycle is still there")
	}
}
