// Package moduletest runs the Rego tests of users' modules, with the builtins that rules may call.
package moduletest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/podops-dev/podops/pkg/engine/opa/vet"
)

// timeout bounds each test.
const timeout = 10 * time.Second

// Result is the result of one test.
type Result struct {
	// File and Row are the place of the test.
	File string
	Row  int

	// Name is "<package>.<test>".
	Name string

	Failed, Skipped bool

	// Message is why the test failed, and Output the text that it printed.
	Message, Output string

	Duration time.Duration
}

// Coverage is the number of module lines that the tests evaluated; the lines of tests do
// not count.
type Coverage struct {
	Percent float64        `json:"percent"`
	Files   []FileCoverage `json:"files,omitempty"`
}

// FileCoverage is the coverage of one file.
type FileCoverage struct {
	File    string  `json:"file"`
	Percent float64 `json:"percent"`

	// NotCovered are the rows that no test evaluated.
	NotCovered []int `json:"notCovered,omitempty"`
}

// Report is what Run returns. The results are sorted by file and row.
type Report struct {
	Results  []Result
	Coverage Coverage

	// Inputs are module inputs, sorted by test; at most 100 for each module, each at most 1 MiB.
	Inputs []Input
}

// Run runs the tests of files, by path, whose names match a regular expression; all of them if it is
// empty, with data as the data document. An error of a builtin fails the test, as it withholds a pod.
// It returns an error for files that do not compile, and for two modules of one package: a rule has one module.
func Run(ctx context.Context, files map[string]string, data map[string]any, filter string) (Report, error) {
	allowed := vet.Capabilities()
	modules, packages := map[string]*ast.Module{}, map[string]string{}
	if data == nil {
		data = map[string]any{}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		module, err := ast.ParseModuleWithOpts(path, files[path], ast.ParserOptions{Capabilities: allowed})
		if err != nil {
			return Report{}, fmt.Errorf("parsing %s: %w", path, err)
		}
		modules[path] = module
		name := module.Package.Path.String()
		if other, twice := packages[name]; twice && !isTest(path) {
			return Report{}, fmt.Errorf("%s and %s have the same package, %s: a rule has one module", other, path, strings.TrimPrefix(name, "data."))
		}
		if !isTest(path) {
			packages[name] = path
		}
	}
	tracer := newInputTracer(modules)
	results, err := newRunner(modules, data).SetCoverageQueryTracer(tracer).SetParallel(1).Filter(filter).RunTests(ctx, nil)
	if err != nil {
		return Report{}, fmt.Errorf("compiling the tests: %w", err)
	}
	var all []Result
	traced := false
	for result := range results {
		all = append(all, newResult(result))
		traced = traced || isTraced(result)
	}
	if traced {
		if err := addRows(ctx, newRunner(modules, data).EnableTracing(true).Filter(filter), all); err != nil {
			return Report{}, err
		}
	}
	slices.SortFunc(all, func(a, b Result) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Row, b.Row)) })
	slices.SortStableFunc(tracer.inputs, func(a, b Input) int { return cmp.Compare(a.Test, b.Test) })
	return Report{Results: all, Coverage: newCoverage(tracer.Report(modules)), Inputs: tracer.inputs}, ctx.Err()
}

func newRunner(modules map[string]*ast.Module, data map[string]any) *tester.Runner {
	compiler := ast.NewCompiler().WithCapabilities(vet.Capabilities()).WithEnablePrintStatements(true)
	return tester.NewRunner().SetCompiler(compiler).SetStore(inmem.NewFromObject(data)).RaiseBuiltinErrors(true).SetModules(modules).
		CapturePrintOutput(true).SetTimeout(timeout)
}

// maxTraced is the duration of the tests that are run again with a trace: a trace takes memory for each step.
const maxTraced = time.Second

// isTraced reports whether a test is run again, for the row at which it failed.
func isTraced(result *tester.Result) bool {
	return result.Fail && result.Error == nil && result.Duration < maxTraced
}

// addRows adds to the messages of failed tests the row that is not true.
func addRows(ctx context.Context, runner *tester.Runner, all []Result) error {
	results, err := runner.RunTests(ctx, nil)
	if err != nil {
		return fmt.Errorf("tracing the tests: %w", err)
	}
	for result := range results {
		row := failedRow(result.Trace)
		at := slices.IndexFunc(all, func(one Result) bool { return one.Name == newResult(result).Name })
		if row != "" && at >= 0 && isTraced(result) {
			all[at].Message = row
		}
	}
	return nil
}

// failedRow returns the expression of a trace that was not true last, with its file and row; empty without one.
func failedRow(trace []*topdown.Event) string {
	for _, event := range slices.Backward(trace) {
		expr, isExpr := event.Node.(*ast.Expr)
		if event.Op != topdown.FailOp || event.QueryID == 0 || event.Location == nil || !isExpr {
			continue
		}
		if _, isEvery := expr.Terms.(*ast.Every); isEvery {
			continue // its body has failed before
		}
		return fmt.Sprintf("%s:%d is not true: %s", event.Location.File, event.Location.Row, event.Location.Text)
	}
	return ""
}

func newResult(result *tester.Result) Result {
	made := Result{
		Name: strings.TrimPrefix(result.Package, "data.") + "." + result.Name, Failed: result.Fail || result.Error != nil, Skipped: result.Skip,
		Output: string(result.Output), Duration: result.Duration,
	}
	if result.Location != nil {
		made.File, made.Row = result.Location.File, result.Location.Row
	}
	switch {
	case result.Error != nil:
		made.Message = result.Error.Error()
	case result.Fail: // with a trace, unless the index of rules leaves the body out
		made.Message = fmt.Sprintf("%s:%d: the test is not true", made.File, made.Row)
	}
	return made
}

func isTest(file string) bool { return strings.HasSuffix(file, "_test.rego") }

func newCoverage(report cover.Report) Coverage {
	coverage, covered, lines := Coverage{Percent: 100}, 0, 0
	for file, found := range report.Files {
		if isTest(file) {
			continue
		}
		made := FileCoverage{File: file, Percent: percent(found.CoveredLines, found.CoveredLines+found.NotCoveredLines)}
		covered, lines = covered+found.CoveredLines, lines+found.CoveredLines+found.NotCoveredLines
		for _, rows := range found.NotCovered {
			for row := rows.Start.Row; row <= rows.End.Row; row++ {
				made.NotCovered = append(made.NotCovered, row)
			}
		}
		slices.Sort(made.NotCovered)
		made.NotCovered = slices.Compact(made.NotCovered) // two expressions of one row
		coverage.Files = append(coverage.Files, made)
	}
	slices.SortFunc(coverage.Files, func(a, b FileCoverage) int { return cmp.Compare(a.File, b.File) })
	coverage.Percent = percent(covered, lines)
	return coverage
}

// percent returns a share in percent with one digit; 100 if whole is 0.
func percent(part, whole int) float64 {
	if whole == 0 {
		return 100
	}
	return math.Floor(1000*float64(part)/float64(whole)) / 10
}
