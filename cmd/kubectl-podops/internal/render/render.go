// Package render implements kubectl podops render.
package render

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/imports"
	"github.com/podops-dev/podops/pkg/core/rule/render"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/policies"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/manifests"
)

// verb is the verb with its flags.
type verb struct {
	*command.Environment
	namespace string
	folder    string
}

// Command returns the verb render.
func Command(env *command.Environment) *cobra.Command {
	v := &verb{Environment: env}
	made := &cobra.Command{
		Use:   "render -f FILE",
		Short: "Print the Rego that rules compile to",
		Long: `Print the Rego that the rules of PodTransitionRules compile to: a module for each rule, which calls
the library of PodOps with the fields of the rule, and after it the module of the user and what it imports, if
the rule has one. PodTransitionPolicies that rules refer to are read from the same files.

It needs no cluster.`,
		Example: `  # The Rego of all rules of a file
  kubectl podops render -f rule.yaml

  # A folder for each rule, and the library beside them, for the opa command
  kubectl podops render -f rule.yaml -o rendered
  opa check --capabilities policies/capabilities.json rendered/lib rendered/default.web.approved

  # Of a rule in the cluster
  kubectl get ptr web -o yaml | kubectl podops render -f -`,
	}
	command.TakeFiles(made, "file or folder with PodTransitionRules and PodTransitionPolicies; - is standard input", v.run)
	made.Flags().StringVarP(&v.namespace, "namespace", "n", "default", "namespace of objects without a namespace")
	made.Flags().StringVarP(&v.folder, "output", "o", "", "folder to write the modules to, instead of standard output")
	return made
}

// rendered is the Rego of one rule.
type rendered struct {
	id types.NamespacedName

	rule string

	// module is the text that the rule compiles to, and users the module of the user with what it imports; empty for a rule
	// without a module.
	module, users string
	imported      []spec.Part
}

func (v *verb) run(ctx context.Context, paths []string) error {
	documents, err := manifests.Read(v.In, command.Scheme(), paths...)
	if err != nil {
		return err
	}
	engine, err := v.Engine(opa.Options{})
	if err != nil {
		return err
	}
	rules, err := v.rendered(ctx, engine, documents)
	if err != nil {
		return err
	}
	if len(rules) == 0 {
		return errors.New("the files have no PodTransitionRule with a rule")
	}
	if v.folder != "" {
		return v.write(rules)
	}
	for i, r := range rules {
		if i > 0 {
			_, _ = fmt.Fprintln(v.Out)
		}
		_, _ = fmt.Fprint(v.Out, r.module)
		if r.users != "" {
			_, _ = fmt.Fprintf(v.Out, "\n# data.rule of the rule %q:\n\n%s", r.rule, r.users)
		}
		for _, part := range r.imported {
			_, _ = fmt.Fprintf(v.Out, "\n# %s:\n\n%s", part.File, part.Source)
		}
	}
	return nil
}

// rendered returns the Rego of each rule, in the order of the documents.
func (v *verb) rendered(ctx context.Context, engine *opa.Engine, documents []manifests.Document) ([]rendered, error) {
	shared := imports.Policies{}
	for _, document := range documents {
		if policy, ok := document.Object.(*appsv1alpha1.PodTransitionPolicy); ok {
			shared[policy.Name] = policy
		}
	}
	var all []rendered
	for _, document := range documents {
		object, ok := document.Object.(*appsv1alpha1.PodTransitionRule)
		if !ok {
			continue
		}
		id := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
		if id.Namespace == "" {
			id.Namespace = v.namespace
		}
		for _, entry := range object.Spec.Rules {
			module, err := evaluation.NewModule(ctx, engine, id, entry, shared)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", document.Place(), err)
			}
			text, err := render.Module(module)
			if err != nil {
				return nil, fmt.Errorf("%s: rule %q: %w", document.Place(), entry.Name, err)
			}
			made := rendered{id: id, rule: entry.Name, module: text}
			if module.Custom != nil {
				made.users, made.imported = spec.Split(module.Custom.Source)
				made.users = strings.TrimSuffix(made.users, "\n") + "\n"
			}
			all = append(all, made)
		}
	}
	return all, nil
}

// write writes a folder for each rule, and the library.
func (v *verb) write(rules []rendered) error {
	for _, r := range rules {
		folder := filepath.Join(v.folder, r.id.Namespace+"."+r.id.Name+"."+r.rule)
		files := map[string]string{"decision.rego": r.module, "rule.rego": r.users}
		for _, part := range r.imported {
			files[part.File] = part.Source
		}
		for name, text := range files {
			if text == "" {
				continue
			}
			if err := writeFile(filepath.Join(folder, name), []byte(text)); err != nil {
				return err
			}
		}
		_, _ = fmt.Fprintln(v.Out, folder)
	}
	library := policies.Library()
	err := fs.WalkDir(library, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(library, path)
		if err != nil {
			return err
		}
		return writeFile(filepath.Join(v.folder, "lib", path), text)
	})
	if err != nil {
		return fmt.Errorf("writing the library: %w", err)
	}
	_, _ = fmt.Fprintln(v.Out, filepath.Join(v.folder, "lib"))
	return nil
}

func writeFile(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // Sources are no secret.
		return err
	}
	return os.WriteFile(path, text, 0o644) //nolint:gosec // Sources are no secret.
}
