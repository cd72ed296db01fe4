// Package moduletest runs the Rego tests of modules of users, with the builtins that rules may call.
package moduletest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"

	"github.com/podops-dev/podops/pkg/opa/vet"
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

// Coverage is the number of lines of the modules that the tests evaluated; the lines of tests do
// not count.
type Coverage struct {
	Percent float64
	Files   []FileCoverage
}

// FileCoverage is the coverage of one file.
type FileCoverage struct {
	File    string
	Percent float64

	// NotCovered are the rows that no test evaluated.
	NotCovered []int
}

// Run runs the tests of files, by path, whose names match a regular expression; all of them if it is
// empty. The results are sorted by file and row. It returns an error for files that do not compile.
func Run(ctx context.Context, files map[string]string, filter string) ([]Result, Coverage, error) {
	allowed := vet.Capabilities()
	modules := map[string]*ast.Module{}
	for path, text := range files {
		module, err := ast.ParseModuleWithOpts(path, text, ast.ParserOptions{Capabilities: allowed})
		if err != nil {
			return nil, Coverage{}, fmt.Errorf("parsing %s: %w", path, err)
		}
		modules[path] = module
	}
	compiler := ast.NewCompiler().WithCapabilities(allowed).WithEnablePrintStatements(true)
	lines := cover.New()
	results, err := tester.NewRunner().SetCompiler(compiler).SetStore(inmem.New()).SetModules(modules).
		CapturePrintOutput(true).SetTimeout(timeout).SetCoverageQueryTracer(lines).Filter(filter).RunTests(ctx, nil)
	if err != nil {
		return nil, Coverage{}, fmt.Errorf("compiling the tests: %w", err)
	}
	var all []Result
	for result := range results {
		all = append(all, resultOf(result))
	}
	slices.SortFunc(all, func(a, b Result) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Row, b.Row)) })
	return all, coverageOf(lines.Report(modules)), ctx.Err()
}

func resultOf(result *tester.Result) Result {
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
	case result.FailedAt != nil && result.FailedAt.Location != nil:
		made.Message = fmt.Sprintf("row %d is not true: %s", result.FailedAt.Location.Row, result.FailedAt.Location.Text)
	case result.Fail:
		made.Message = "the test is not true"
	}
	return made
}

func isTest(file string) bool { return strings.HasSuffix(file, "_test.rego") }

func coverageOf(report cover.Report) Coverage {
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
