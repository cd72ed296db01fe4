package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// manyRules is the number of rules that are compiled.
const manyRules = 1000

// compiling holds the costs of rules before their first evaluation.
type compiling struct {
	// builtIn are rules of the kinds of PodOps, custom are rules with a module each.
	builtIn, custom batch

	// evaluation is the CPU of evaluating one of each for ten pods without a cached
	// verdict.
	builtInEvaluation, customEvaluation time.Duration

	// builtInCompile is the CPU of the first rule of a kind.
	builtInCompile time.Duration

	// waitingPod and idlePod are bytes that the engine holds for one of them.
	waitingPod, idlePod float64
}

// batch is the cost of many rules.
type batch struct {
	// each is the CPU of one rule.
	each time.Duration

	// bytes is the heap of one rule.
	bytes float64

	// compiled is the number of programs that were compiled for all rules, and edit the
	// number for one edited rule.
	compiled, edit int
}

// source returns the module of rule number i.
type source func(i int) (spec.Module, error)

func measureCompiling(samples int, progress io.Writer) (compiling, error) {
	start := time.Now()
	ctx, c := context.Background(), compiling{}
	var err error
	if c.builtIn, err = measureBatch(ctx, builtInModule); err != nil {
		return c, err
	}
	if c.custom, err = measureBatch(ctx, customModule); err != nil {
		return c, err
	}
	if c.builtInCompile, c.builtInEvaluation, err = measureFirst(ctx, builtInModule, samples); err != nil {
		return c, err
	}
	if _, c.customEvaluation, err = measureFirst(ctx, customModule, samples); err != nil {
		return c, err
	}
	if c.waitingPod, err = heldBy(10000, 10000); err != nil {
		return c, err
	}
	if c.idlePod, err = heldBy(10000, 1); err != nil {
		return c, err
	}
	_, _ = fmt.Fprintf(progress, "measured %d rules twice in %.1fs\n", manyRules, time.Since(start).Seconds())
	return c, nil
}

// builtInModule is a labelCheck of a label that no other rule reads.
func builtInModule(i int) (spec.Module, error) {
	rule := appsv1alpha1.TransitionRule{
		Name: fmt.Sprintf("rule-%d", i),
		LabelCheck: &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: fmt.Sprintf("label-%d", i), Operator: metav1.LabelSelectorOpExists},
				{Key: "build", Operator: metav1.LabelSelectorOpExists},
			},
		}},
	}
	return spec.Rule(objectName(), rule, nil)
}

// customModule is a rule with a module that no other rule has.
func customModule(i int) (spec.Module, error) {
	module := fmt.Sprintf(`package rule

# A pod passes when its owner has signed off the operation.
allow if {
	input.operation.type == "update"
	input.pod.labels["signed-off-%d"] == "true"
}

allow if input.pod.labels.critical == "false"

reason := sprintf("label signed-off-%d of pod %%s is not true", [input.pod.name])
`, i, i)
	rule := appsv1alpha1.TransitionRule{
		Name: fmt.Sprintf("rule-%d", i),
		Rego: &appsv1alpha1.RegoRule{Module: module},
	}
	return spec.Rule(objectName(), rule, &spec.Custom{Source: module, Entry: spec.EntryAllow, Parameters: []byte(`{}`)})
}

func objectName() types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: object}
}

// measureBatch compiles and prepares many rules, and then one of them again after an edit.
func measureBatch(ctx context.Context, of source) (batch, error) {
	e, err := opa.New(opa.Options{Memory: 1 << 30})
	if err != nil {
		return batch{}, err
	}
	programs := make([]*opa.Program, 0, manyRules)
	before, start := heap(), cpu()
	for i := range manyRules {
		program, err := prepareModule(ctx, e, of, i)
		if err != nil {
			return batch{}, err
		}
		programs = append(programs, program)
	}
	b := batch{each: (cpu() - start) / manyRules, compiled: e.Compilations()}
	b.bytes = float64(heap()-before) / manyRules
	if programs[manyRules/2], err = prepareModule(ctx, e, of, manyRules); err != nil {
		return batch{}, err
	}
	for i := range manyRules { // the cost of an unchanged rule when all are prepared again
		if i != manyRules/2 {
			if _, err := prepareModule(ctx, e, of, i); err != nil {
				return batch{}, err
			}
		}
	}
	b.edit = e.Compilations() - b.compiled
	runtime.KeepAlive(programs)
	return b, nil
}

func prepareModule(ctx context.Context, e *opa.Engine, of source, i int) (*opa.Program, error) {
	module, err := of(i)
	if err != nil {
		return nil, err
	}
	return e.Prepare(ctx, module)
}

// measureFirst returns the median of the cost of preparing the first rule of an engine, and
// of evaluating it for ten pods without a cached verdict.
func measureFirst(ctx context.Context, of source, samples int) (prepared, evaluated time.Duration, err error) {
	var preparing, evaluating []float64
	f := newWorkload(usualRules(), 10, 10)
	for range samples {
		e, err := opa.New(opa.Options{})
		if err != nil {
			return 0, 0, err
		}
		start := cpu()
		program, err := prepareModule(ctx, e, of, 0)
		if err != nil {
			return 0, 0, err
		}
		preparing = append(preparing, float64(cpu()-start))
		for range 20 {
			f.events(0, 10)
			incr := newGoIncr(f)
			view := incr.index.Snapshot(namespace, nil).Rules[0]
			start = cpu()
			if _, err := program.Evaluate(ctx, program.Stage(), rule.Environment{Counts: view.Counts}, view.Waiting); err != nil {
				return 0, 0, err
			}
			evaluating = append(evaluating, float64(cpu()-start))
		}
	}
	return time.Duration(quantile(preparing, 0.5)), time.Duration(quantile(evaluating, 0.5)), nil
}

// heldBy returns the bytes that the engine and the verdict cache hold after the first
// round, per waiting pod when all pods wait, or per pod when one pod waits.
func heldBy(pods, waiting int) (float64, error) {
	e, err := opa.New(opa.Options{})
	if err != nil {
		return 0, err
	}
	f := newWorkload(distinctRules(), pods, waiting)
	p, err := newPodOps(e, f)
	if err != nil {
		return 0, err
	}
	before := heap()
	p.round(nil)
	held := float64(heap()) - float64(before)
	runtime.KeepAlive(p)
	runtime.KeepAlive(f)
	return max(0, held) / float64(pods), nil
}

func (c compiling) goals() []goal {
	builtIn := float64(c.builtInCompile) / float64(c.builtInEvaluation)
	custom := float64(c.custom.each) / float64(c.customEvaluation)
	return []goal{
		limit("P9", "compile <= 10x cold W=10: built-in kind", times(builtIn), builtIn, 10),
		limit("P9", "compile <= 10x cold W=10: user's module", times(custom), custom, 10),
		limit("P9", "edit 1 of 1000 modules compiles exactly 1", fmt.Sprint(c.custom.edit), max(float64(c.custom.edit), 2-float64(c.custom.edit)), 1),
		limit("P10", "heap of a program <= 150 KB", kilobytes(c.custom.bytes), c.custom.bytes, 150e3),
		limit("P10", "heap of a waiting pod <= 2 KB", fmt.Sprintf("%.0f B", c.waitingPod), c.waitingPod, 2e3),
		limit("P10", "heap of an idle pod: 0", fmt.Sprintf("%.0f B", c.idlePod), c.idlePod, 1),
	}
}

func kilobytes(bytes float64) string { return fmt.Sprintf("%.1f KB", bytes/1e3) }

func printCompiling(out io.Writer, c compiling) {
	row := func(name string, b batch, evaluated time.Duration) []string {
		return []string{name, micros(b.each), kilobytes(b.bytes), fmt.Sprint(b.compiled), fmt.Sprint(b.edit), micros(evaluated)}
	}
	table(out, fmt.Sprintf(`Compiling: %d rules compiled and prepared. Rules of one built-in kind share a program, and so do
rules with the same module: memory is bounded by the number of different modules, each of which has
at most 16 KiB and 200 rules. A rule has its literal besides, and remembers at most 16 KiB of
verdicts. Cold: CPU of evaluating one rule for ten pods without a cached verdict.`, manyRules),
		[]int{-24, 12, 12, 10, 16, 10},
		[]string{"rules", "CPU us each", "heap each", "compiled", "after one edit", "cold us"},
		row("built-in kinds", c.builtIn, c.builtInEvaluation), row("a module each", c.custom, c.customEvaluation))
}
