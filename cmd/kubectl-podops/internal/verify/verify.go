// Package verify implements kubectl podops verify.
package verify

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/podops-dev/podops/pkg/operator/admission"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/manifests"
)

// verb is the verb with its flags.
type verb struct {
	*command.Environment
	output, namespace     string
	allowCIDR, allowHosts []string
}

// Command returns the verb verify.
func Command(env *command.Environment) *cobra.Command {
	v := &verb{Environment: env}
	made := &cobra.Command{
		Use:   "verify FILE...",
		Short: "Check rules and policies as admission does, and look for mistakes",
		Long: `Check PodTransitionRules, PodTransitionPolicies, PodOperations and TrafficAdapters of files as
admission does, without a cluster: unknown fields, the schema of the API and its CEL rules, the
webhooks of the manager with the strict compiler, the types of the input and of parameters; and look
for probable mistakes that admission accepts. Policies that rules refer to, Deployments of the
strategy Recreate, StatefulSets and pods count if they are in the files.

Every finding has an id, a level, a place and a fix; docs/testing-policies.md lists them.

Exit codes: 0 no finding of level error; 1 a file could not be read; 2 findings of level error.`,
		Example: `  # All rules of a folder
  kubectl podops verify rules/

  # For code scanning
  kubectl podops verify rules/ -o sarif > podops.sarif

  # What is stored in a cluster
  kubectl get ptr,ptp -A -o yaml | kubectl podops verify -

  # A rule with the pods of a namespace, without each of their labels in turn
  kubectl get pods -n shop -o yaml > pods.yaml
  kubectl podops verify rule.yaml pods.yaml -n shop`,
	}
	command.TakeFiles(made, "file or folder to check; - is standard input", v.run)
	made.Flags().StringVarP(&v.output, "output", "o", "", "format: json or sarif; default text")
	made.Flags().StringVarP(&v.namespace, "namespace", "n", "default", "namespace of objects without a namespace")
	made.Flags().StringSliceVar(&v.allowCIDR, "rule-webhook-allow-cidr", nil, "networks that webhook rules may reach, as the manager is configured")
	made.Flags().StringSliceVar(&v.allowHosts, "rule-webhook-allow-host", nil, "hosts that webhook rules may reach, as the manager is configured")
	return made
}

func (v *verb) run(ctx context.Context, paths []string) error {
	write, known := map[string]func(report) error{"": v.text, "json": v.json, "sarif": v.sarif}[v.output]
	if !known {
		return fmt.Errorf("--output: %q is neither json nor sarif", v.output)
	}
	documents, err := manifests.Read(v.In, command.Scheme(), paths...)
	if err != nil {
		return err
	}
	objects := newObjects(documents, v.namespace)
	modules, err := v.Modules()
	if err != nil {
		return err
	}
	reviewer, err := v.reviewer(objects, modules)
	if err != nil {
		return err
	}
	all, err := schemas()
	if err != nil {
		return err
	}
	engine, inputs, err := v.inputs(ctx, modules, documents)
	if err != nil {
		return err
	}
	made := report{Findings: []finding{}}
	for _, document := range documents {
		of, ours := all[document.Kind.Kind]
		if !ours || document.Object == nil {
			continue
		}
		made.Objects++
		one := &verification{schema: of, engine: engine, reviewer: reviewer, objects: objects, document: document, inputs: inputs}
		found, err := one.run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", document.Place(), err)
		}
		made.Findings = append(made.Findings, found...)
	}
	if made.Objects == 0 {
		return errors.New("the files have no object of PodOps")
	}
	made.count()
	if err := write(made); err != nil {
		return err
	}
	if made.Errors > 0 {
		return &command.Findings{}
	}
	return nil
}

// reviewer returns the webhooks of the manager.
func (v *verb) reviewer(objects *objects, modules admission.Modules) (*admission.Reviewer, error) {
	guard, err := v.guard()
	if err != nil {
		return nil, err
	}
	return admission.New(objects, modules, guard)
}

// guard returns which addresses webhook rules may reach.
func (v *verb) guard() (webhookclient.Guard, error) {
	guard := webhookclient.Guard{AllowHosts: v.allowHosts}
	for _, text := range v.allowCIDR {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return guard, fmt.Errorf("--rule-webhook-allow-cidr: %w", err)
		}
		guard.AllowCIDRs = append(guard.AllowCIDRs, prefix)
	}
	return guard, nil
}

// finding is one finding in a file.
type finding struct {
	ID      string `json:"id"`
	Level   string `json:"level"`
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column,omitempty"`
	Object  string `json:"object"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Fix     string `json:"fix"`
}

// report is the result of a run.
type report struct {
	Objects  int       `json:"objects"`
	Errors   int       `json:"errors"`
	Warnings int       `json:"warnings"`
	Notes    int       `json:"notes"`
	Findings []finding `json:"findings"`
}

func (r *report) count() {
	for _, found := range r.Findings {
		switch found.Level {
		case levelError:
			r.Errors++
		case levelWarning:
			r.Warnings++
		default:
			r.Notes++
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b finding) int {
		if order := strings.Compare(a.File, b.File); order != 0 {
			return order
		}
		return a.Line - b.Line
	})
}
