package e2e_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/evaluation/offline"
)

// writeSuites writes a suite for the fleet of each case, which expects the verdicts that kubectl podops eval has predicted for
// the pods of the cluster, and returns the directory and the number of suites.
func (s *paritySpace) writeSuites(ctx context.Context, now time.Time) (dir string, suites int) {
	GinkgoHelper()
	dir = GinkgoT().TempDir()
	policies := &appsv1alpha1.PodTransitionPolicyList{}
	Expect(s.admin.List(ctx, policies)).To(Succeed())
	var shared []any
	for _, policy := range policies.Items {
		if strings.HasPrefix(policy.Name, s.namespace+"-") {
			shared = append(shared, manifest("PodTransitionPolicy", policy.Name, policy.Spec))
		}
	}
	fleets := map[string][]*corev1.Pod{}
	for _, pod := range s.list(ctx) {
		fleets[pod.Labels[caseLabel]] = append(fleets[pod.Labels[caseLabel]], pod)
	}
	for _, rule := range s.listRules(ctx) {
		documents := append(slices.Clone(shared), manifest("PodTransitionRule", rule.Name, rule.Spec))
		var pods, expect []any
		for _, pod := range fleets[rule.Name] {
			expect = append(expect, s.expectation(pod.Name))
			if strings.HasPrefix(rule.Name, examplePrefix) { // some read containers, which the pods of suites do not have
				whole := pod.DeepCopy()
				whole.Namespace, whole.TypeMeta = "", metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
				documents = append(documents, whole)
				continue
			}
			pods = append(pods, map[string]any{
				"name": pod.Name, "labels": pod.Labels, "annotations": pod.Annotations, "node": pod.Spec.NodeName,
				"since": now.Sub(lifecycle.NewPodFacts(pod).ReadySince).String(), "age": now.Sub(pod.CreationTimestamp.Time).String(),
			})
		}
		writeDocuments(filepath.Join(dir, rule.Name+".yaml"), append(documents, map[string]any{
			"kind": "PodTransitionRuleTest", "metadata": map[string]any{"name": rule.Name}, "files": []string{rule.Name + ".yaml"},
			"now": metav1.NewTime(now), "pods": pods,
			"tests": []any{map[string]any{
				"name": "as eval", "operation": s.operation, "stage": s.stage, "expect": expect, "namespace": map[string]string{"team": "parity"},
				"request": map[string]any{"actor": "Client", "user": parityUser, "groups": parityGroups()},
			}},
		})...)
		suites++
	}
	return dir, suites
}

// evalDump returns the verdicts of kubectl podops eval of files that kubectl has written, by pod.
func (s *paritySpace) evalDump(ctx context.Context, flags ...string) map[string]offline.Verdict {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	var rules, pods string
	for _, kinds := range []string{"podtransitionrules", "podtransitionpolicies"} {
		out, _ := s.kubectl(ctx, "get", kinds, "-n", s.namespace, "-o", "yaml")
		rules += "---\n" + out
	}
	for _, objects := range [][]string{{"pods", "-n", s.namespace}, {"namespace", s.namespace}, {"nodes"}} {
		out, _ := s.kubectl(ctx, append([]string{"get", "-o", "yaml"}, objects...)...)
		pods += "---\n" + out
	}
	given := []string{filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "pods.yaml")}
	Expect(os.WriteFile(given[0], []byte(rules), 0o600)).To(Succeed())
	Expect(os.WriteFile(given[1], []byte(pods), 0o600)).To(Succeed())
	args := []string{"-f", given[0], "--pods", given[1], "--as", parityUser}
	for _, group := range parityGroups() {
		args = append(args, "--as-group", group)
	}
	return s.eval(ctx, append(args, flags...)...)
}

// expectation is the predicted verdict on a pod, as suites write it, with that of the rule of its fleet.
func (s *paritySpace) expectation(pod string) map[string]any {
	predicted := s.predicted[pod]
	wanted := map[string]any{"pod": pod, "state": predicted.State}
	for _, found := range predicted.Rules {
		wanted["rule"], wanted["ruleState"], wanted["code"], wanted["message"] = found.Rule, found.State, found.Code, found.Message
		if found.State == evaluation.VerdictWithheld {
			break
		}
	}
	return wanted
}

func manifest(kind, name string, spec any) map[string]any {
	return map[string]any{
		"apiVersion": appsv1alpha1.GroupVersion().String(), "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}
}

// writeDocuments writes a file of YAML documents.
func writeDocuments(path string, documents ...any) {
	GinkgoHelper()
	var text strings.Builder
	for _, document := range documents {
		encoded, err := json.Marshal(document)
		Expect(err).NotTo(HaveOccurred())
		converted, err := yaml.JSONToYAML(encoded)
		Expect(err).NotTo(HaveOccurred())
		text.WriteString("---\n" + string(converted))
	}
	Expect(os.WriteFile(path, []byte(text.String()), 0o600)).To(Succeed())
}
