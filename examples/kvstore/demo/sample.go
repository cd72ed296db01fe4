package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sample is the folder of the sample.
var sample = filepath.Join("examples", "kvstore", "config", "sample")

// service is the base of the URL of the hook in the sample.
const service = "https://kvstore-operator.kvstore-system.svc"

// Parts of the sample.
const (
	sampleHook    = "hook.yaml"
	sampleRules   = "podtransitionrule.yaml"
	sampleCluster = "kvstorecluster.yaml"
)

// applySample applies parts of the sample in the namespace of the show. The hook is at the address of the operator, and its
// token is made.
func (s *show) applySample(ctx context.Context, parts ...string) error {
	var texts []string
	for _, file := range parts {
		text, err := os.ReadFile(filepath.Join(sample, file))
		if err != nil {
			return fmt.Errorf("reading the sample: %w", err)
		}
		texts = append(texts, string(text))
	}
	input := strings.NewReplacer(service, s.hookURL(), "replace-me", rand.Text()+rand.Text()).Replace(strings.Join(texts, "\n---\n"))
	return s.stage.KubectlWith(ctx, input, "-n", s.namespace, "apply", "-f", "-")
}
