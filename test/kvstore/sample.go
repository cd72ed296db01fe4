package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// sample is the folder of the sample.
var sample = filepath.Join("config", "samples", "kvstore")

// service is the base of the URL of the hook in the sample.
const service = "https://kvstore-operator.kvstore-system.svc"

// applySample applies the sample in the namespace of the show. The hook is at the address of the operator, and its token is
// made.
func (s *show) applySample(ctx context.Context) error {
	var texts []string
	for _, file := range []string{"hook.yaml", "podtransitionrule.yaml", "kvstorecluster.yaml"} {
		text, err := os.ReadFile(filepath.Join(sample, file))
		if err != nil {
			return fmt.Errorf("reading the sample: %w", err)
		}
		texts = append(texts, string(text))
	}
	input := strings.NewReplacer(service, s.hookURL(), "replace-me", rand.Text()+rand.Text()).Replace(strings.Join(texts, "\n---\n"))
	return s.stage.KubectlWith(ctx, input, "-n", s.namespace, "apply", "-f", "-")
}

// rulesWithoutHook returns the PodTransitionRule of the sample without its webhook.
func (s *show) rulesWithoutHook() (*appsv1alpha1.PodTransitionRule, error) {
	text, err := os.ReadFile(filepath.Join(sample, "podtransitionrule.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the sample: %w", err)
	}
	object := &appsv1alpha1.PodTransitionRule{}
	if err := yaml.UnmarshalStrict(text, object); err != nil {
		return nil, fmt.Errorf("decoding the sample: %w", err)
	}
	object.Namespace = s.namespace
	object.Spec.Rules = slices.DeleteFunc(object.Spec.Rules, func(rule appsv1alpha1.TransitionRule) bool { return rule.Webhook != nil })
	return object, nil
}
