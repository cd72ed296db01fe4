package policytest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/imports"
	"github.com/podops-dev/podops/pkg/core/rule/parameters"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/engine/opa/moduletest"
	"github.com/podops-dev/podops/pkg/engine/opa/vet"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/manifests"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/observation"
)

// regoFiles are the Rego files of folders, by path, and their data.
type regoFiles struct {
	modules map[string]string
	data    map[string]any
}

// runRego runs the Rego tests of folders, and removes facts from their inputs. The modules may import the policies.
func (v *verb) runRego(ctx context.Context, modules modules, folders []string, policies imports.Policies) ([]result, moduletest.Coverage, error) {
	files, err := readRego(folders)
	if err != nil || len(files.modules) == 0 {
		return nil, moduletest.Coverage{Percent: 100}, err
	}
	// Result names have a slash before the test, and Rego names a dot.
	report, err := moduletest.Run(ctx, files.modules, files.data, strings.ReplaceAll(v.filter, "/", "[/.]"))
	if err != nil {
		return nil, report.Coverage, err
	}
	var results []result
	for _, one := range report.Results {
		dot := strings.LastIndex(one.Name, ".")
		results = append(results, result{
			Suite: one.Name[:dot], Name: one.Name[dot+1:], File: one.File, Line: one.Row,
			Failed: one.Failed, Skipped: one.Skipped, Message: one.Message, Output: one.Output, Duration: one.Duration,
		})
	}
	inputs, left, err := modules.regoInputs(ctx, files, report.Inputs, results, policies)
	if err != nil {
		return nil, report.Coverage, err
	}
	warnings, err := modules.absentFacts(ctx, inputs)
	if err != nil {
		return nil, report.Coverage, fmt.Errorf("removing facts of Rego tests: %w", err)
	}
	return slices.Concat(results, left, warnings), report.Coverage, nil
}

// regoInputs returns the inputs of the modules that rules can have: they compile with what they import. left are warnings about modules
// whose imports are not known.
func (m modules) regoInputs(
	ctx context.Context, files regoFiles, given []moduletest.Input, results []result, policies imports.Policies,
) (inputs []testInput, left []result, err error) {
	known, err := files.policies(policies)
	if err != nil {
		return nil, nil, err
	}
	linked := map[string]*spec.Custom{} // nil for a module that is left out
	for _, one := range given {
		at := slices.IndexFunc(results, func(test result) bool { return test.Suite+"."+test.Name == one.Test })
		policy := known[one.File]
		if policy == nil || imports.IsLibrary(policy) || at < 0 {
			continue
		}
		made := testInput{about: one.File, test: results[at]}
		if _, seen := linked[one.File]; !seen {
			linked[one.File] = nil
			source, err := known.Source(policy)
			if err != nil {
				left = append(left, made.warning(notLinked(err)))
				continue
			}
			if linked[one.File], err = m.custom(ctx, source, policy.Spec.Parameters); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", one.File, err)
			}
		}
		if custom := linked[one.File]; custom != nil {
			made.Input = observation.Input{Module: spec.Module{Custom: custom}, Document: one.Document}
			inputs = append(inputs, made)
		}
	}
	return inputs, left, nil
}

// notLinked returns the warning about a module whose imports are wrong.
func notLinked(err error) string {
	why := err.Error()
	if missing := (*imports.NotFoundError)(nil); errors.As(err, &missing) {
		why = fmt.Sprintf("no library, data file or PodTransitionPolicy in the folders is %q", missing.Name)
	}
	return fmt.Sprintf("facts are not removed: %s [absent-facts-cut]", why)
}

// custom returns a module with what it imports; nil if no rule can have it, which verify reports.
func (m modules) custom(ctx context.Context, source string, declared *appsv1alpha1.PolicyParameters) (*spec.Custom, error) {
	made := &spec.Custom{Source: source, Parameters: json.RawMessage("{}")}
	if declared != nil {
		schema, errs := parameters.Parse(declared, nil)
		if len(errs) > 0 {
			return nil, nil
		}
		var err error
		if made.ParametersSchema, err = schema.JSONSchema(); err != nil {
			return nil, err
		}
	}
	_, err := m.engine.Inspect(ctx, opa.Source{Module: source, ParametersSchema: made.ParametersSchema})
	if errors.As(err, new(*opa.CompileError)) {
		return nil, nil
	}
	return made, err
}

// policies returns the modules as policies: libraries and data by their names, as others import them, and other modules by their files,
// with the parameters of the policy that has the module. The files have precedence over policies that are given, since tests run with
// them.
func (f regoFiles) policies(given imports.Policies) (imports.Policies, error) {
	known := maps.Clone(given)
	for file, source := range f.modules {
		found, err := vet.ReadImports(source)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		name := cmp.Or(found.Library, file)
		made := &appsv1alpha1.PodTransitionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1alpha1.PodTransitionPolicySpec{Module: source, Imports: found.Names},
		}
		for _, policy := range given {
			if strings.TrimSpace(policy.Spec.Module) == strings.TrimSpace(source) {
				made.Spec.Parameters = policy.Spec.Parameters
			}
		}
		if before := given[name]; before != nil {
			made.Spec.Data = before.Spec.Data
		}
		known[name] = made
	}
	config, _ := f.data["config"].(map[string]any)
	for name, value := range config {
		data, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("data of config.%s: %w", name, err)
		}
		made := &appsv1alpha1.PodTransitionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if before := known[name]; before != nil {
			made = before.DeepCopy()
		}
		made.Spec.Data = &apiextensionsv1.JSON{Raw: data}
		known[name] = made
	}
	return known, nil
}

// readRego reads the Rego files of folders, and their data files.
func readRego(folders []string) (regoFiles, error) {
	files := regoFiles{modules: map[string]string{}, data: map[string]any{}}
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			isData := manifests.IsData(path)
			if err != nil || entry.IsDir() || !isData && !strings.HasSuffix(path, ".rego") {
				return err
			}
			text, err := os.ReadFile(path) //nolint:gosec // The user of the command names the folder.
			if err != nil {
				return err
			}
			if isData {
				return addData(files.data, folder, path, text)
			}
			files.modules[path] = string(text)
			return nil
		})
		if err != nil {
			return files, err
		}
	}
	return files, nil
}

// addData adds a data file at the path of its folder, as opa test does: lists/data.json is data.lists.
func addData(data map[string]any, folder, path string, text []byte) error {
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	below, err := filepath.Rel(folder, filepath.Dir(path))
	if err != nil {
		return err
	}
	if below != "." {
		for _, name := range strings.Split(filepath.ToSlash(below), "/") {
			next, ok := data[name].(map[string]any)
			if !ok {
				next = map[string]any{}
				data[name] = next
			}
			data = next
		}
	}
	maps.Copy(data, values)
	return nil
}
