// Package policytest implements kubectl podops test.
package policytest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/imports"
	"github.com/podops-dev/podops/pkg/engine/opa"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/manifests"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/observation"
)

// verb is the verb with its flags.
type verb struct {
	*command.Environment
	filter    string
	output    string
	coverage  bool
	threshold float64
}

// Command returns the verb test.
func Command(env *command.Environment) *cobra.Command {
	v := &verb{Environment: env}
	made := &cobra.Command{
		Use:   "test DIR...",
		Short: "Run the tests of rules: suites of expected verdicts, and Rego tests",
		Long: `Run the tests of rules in folders: YAML documents of the kind PodTransitionRuleTest, which have pods
and the expected verdicts of the rules, and Rego tests in files that end with _test.rego,
with the builtins that rules may call. It needs no cluster.

Each optional fact, such as a label or a parameter, is also removed from the inputs of the modules
in which a pod waits: a pod that passes without it, and not with an unknown value, is a warning
(absent-fact-permits, absent-parameter-permits, absent-time-permits). A Rego test may give a part of
the input: a usual pod has the rest.

Exit codes: 0 all tests passed; 1 a file could not be used; 2 a test failed, or the coverage is
below --threshold.`,
		Example: `  # All tests of a folder
  kubectl podops test policies/examples

  # Some of them, as JUnit for a build server
  kubectl podops test rules --run 'cart/' -o junit

  # At least 90 % of the lines of all modules
  kubectl podops test rules --coverage --threshold 90`,
	}
	command.TakeFiles(made, "folder with tests", v.run)
	made.Flags().StringVar(&v.filter, "run", "", "regular expression of the tests to run, by <suite>/<name> or <package>.<name>")
	made.Flags().StringVarP(&v.output, "output", "o", "", "format: json, junit, tap or github; default a table")
	made.Flags().BoolVar(&v.coverage, "coverage", false, "report which lines of modules the Rego tests evaluate")
	made.Flags().Float64Var(&v.threshold, "threshold", 0, "percentage of lines that must be covered; includes --coverage")
	return made
}

func (v *verb) run(ctx context.Context, folders []string) error {
	write, known := formats()[v.output]
	if !known {
		return fmt.Errorf("--output: %q is not json, junit, tap or github", v.output)
	}
	filter, err := regexp.Compile(v.filter)
	if err != nil {
		return fmt.Errorf("--run: %w", err)
	}
	v.coverage = v.coverage || v.threshold > 0
	isRego := func(path string) bool { return strings.HasSuffix(path, ".rego") }
	documents, err := manifests.Read(v.In, command.Scheme(), slices.DeleteFunc(slices.Clone(folders), isRego)...)
	if err != nil {
		return err
	}
	log := observation.New()
	engine, err := v.Engine(opa.Options{Observe: log.Observe})
	if err != nil {
		return err
	}
	results, err := runSuites(ctx, modules{engine, log}, documents, filter)
	if err != nil {
		return err
	}
	tested, coverage, err := v.runRego(ctx, modules{engine, log}, folders, policiesIn(documents))
	if err != nil {
		return err
	}
	results = append(results, tested...)
	if len(results) == 0 {
		return errors.New("no test was found: a suite is a YAML document of the kind PodTransitionRuleTest, a Rego test a rule test_... in a file ..._test.rego")
	}
	made := newReport(results)
	if v.coverage {
		made.Coverage = &coverage
	}
	if err := write(v.Out, made); err != nil {
		return err
	}
	switch {
	case made.Failed > 0:
		return &command.Findings{}
	case v.coverage && coverage.Percent < v.threshold:
		return &command.Findings{Summary: fmt.Sprintf("the coverage is %.1f %%, and must be %.1f %%", coverage.Percent, v.threshold)}
	}
	return nil
}

// policiesIn returns the policies of documents.
func policiesIn(documents []manifests.Document) imports.Policies {
	policies := imports.Policies{}
	for _, document := range documents {
		if policy, ok := document.Object.(*appsv1alpha1.PodTransitionPolicy); ok {
			policies[policy.Name] = policy
		}
	}
	return policies
}

// runSuites runs the documents that are suites.
func runSuites(ctx context.Context, modules modules, documents []manifests.Document, filter *regexp.Regexp) ([]result, error) {
	var results []result
	for _, document := range documents {
		if document.Kind.Kind != suiteKind {
			continue
		}
		read, err := parseSuite(document)
		if err != nil {
			return nil, err
		}
		found, err := read.run(ctx, modules, document, filter.MatchString)
		if err != nil {
			return nil, err
		}
		results = append(results, found...)
	}
	return results, nil
}
