package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/engine/opa/sandbox"
)

// deadline of a user's module.
const deadline = 100 * time.Millisecond

// hostile holds the costs of hostile modules.
type hostile struct {
	// late is the time that a verdict of a module that loops took, on the wall
	// clock: the median, and the worst, which depends on the machine as well.
	late, latest time.Duration

	// code is the code of the verdicts, or of the first verdict other than a timeout.
	code rule.Code

	// normal is the CPU of a worker that compiles an ordinary module, and refused the CPU of a worker that is
	// given a module of the same length whose type check explodes.
	normal, refused time.Duration

	// why is the error of the rejection.
	why string
}

func measureHostile(progress io.Writer) (hostile, error) {
	start := time.Now()
	ctx, h := context.Background(), hostile{}
	modules := sandbox.New(sandbox.Options{Timeout: time.Minute})
	e, err := opa.New(opa.Options{CustomTimeout: deadline, Workers: modules})
	if err != nil {
		return h, err
	}
	if err := h.loop(ctx, e); err != nil {
		return h, err
	}
	var normal, refused []float64
	for i := range 3 {
		spent, err := modules.Check(ctx, opa.Source{Module: tame(i)})
		if err != nil {
			return h, err
		}
		normal = append(normal, float64(spent))
		spent, err = modules.Check(ctx, opa.Source{Module: explosive(i)})
		refused = append(refused, float64(spent))
		problems := &opa.CompileError{}
		if !errors.As(err, &problems) {
			return h, fmt.Errorf("a module that explodes got: %w", err)
		}
		h.why = problems.Problems[0].Message
	}
	h.normal, h.refused = time.Duration(quantile(normal, 0.5)), time.Duration(quantile(refused, 0.5))
	_, _ = fmt.Fprintf(progress, "measured hostile modules in %.1fs\n", time.Since(start).Seconds())
	return h, nil
}

// loops iterates over all quadruples of pods, and finds no match.
const loops = `package rule

allow if {
	some a in input.pods
	some b in input.pods
	some c in input.pods
	some d in input.pods
	concat("", [a.name, b.name, c.name, d.name]) == "none"
}
`

// loop evaluates a module that loops for one pod, several times.
func (h *hostile) loop(ctx context.Context, e *opa.Engine) error {
	entry := appsv1alpha1.TransitionRule{Name: "loops", Rego: &appsv1alpha1.RegoRule{Module: loops}}
	module, err := spec.Rule(objectName(), entry, &spec.Custom{Source: loops, Entry: spec.EntryAllow, Parameters: []byte(`{}`)})
	if err != nil {
		return err
	}
	program, err := e.Prepare(ctx, module)
	if err != nil {
		return err
	}
	env := rule.Environment{Now: time.Now()}
	for i := range 300 {
		env.Pods = append(env.Pods, &rule.PodFact{UID: types.UID(fmt.Sprint(i)), Name: fmt.Sprintf("web-%d", i), Version: "1"})
	}
	request := rule.Request{Pod: env.Pods[0], Stage: program.Stage(), ID: operation, Type: "update"}
	var took []float64
	for range 9 {
		begun := time.Now()
		result, err := program.Evaluate(ctx, program.Stage(), env, []rule.Request{request})
		if err != nil {
			return err
		}
		took = append(took, float64(time.Since(begun)))
		if h.code == "" || h.code == rule.CodeTimeout {
			h.code = result.Verdicts[request.Key()].Code
		}
	}
	h.late, h.latest = time.Duration(quantile(took, 0.5)), time.Duration(quantile(took, 1))
	return nil
}

// lines of the modules that are inspected.
const lines = 30

// explosive returns a small module whose types more than double with each line: the shared
// parts are expanded when it is checked.
func explosive(i int) string {
	module := strings.Builder{}
	fmt.Fprintf(&module, "package rule\n\n# %d\nallow if x%d == y%d\n\n", i, lines/2, lines/2)
	for _, name := range []string{"x", "y"} {
		fmt.Fprintf(&module, "%s0 := {\"a\": input.pod.name, \"b\": 1}\n", name)
		for line := 1; line <= lines/2; line++ {
			fmt.Fprintf(&module, "%s%d := {\"a\": %s%d, \"b\": [%s%d, %s%d]}\n", name, line, name, line-1, name, line-1, name, line-1)
		}
	}
	return module.String()
}

// tame returns a module of the same length without shared parts.
func tame(i int) string {
	module := strings.Builder{}
	fmt.Fprintf(&module, "package rule\n\nallow if x%d.a == %d\n\nx0 := {\"a\": input.pod.name, \"b\": 1}\n", lines, i)
	for line := 1; line <= lines; line++ {
		fmt.Fprintf(&module, "x%d := {\"a\": %d, \"b\": [input.pod.node, input.pod.uid]}\n", line, line)
	}
	return module.String()
}

func (h hostile) goals() []goal {
	late := float64(h.late) / float64(deadline)
	figure := fmt.Sprintf("%s, worst %s (%s)", times(late), times(float64(h.latest)/float64(deadline)), h.code)
	return []goal{
		{number: "P11", wants: "hostile loop stops <= 1.1x deadline", figure: figure,
			holds: late <= 1.1 && h.code == rule.CodeTimeout, close: late <= 1.1*slack && h.code == rule.CodeTimeout},
		limit("P11", "hostile module refused <= 2 s of CPU", fmt.Sprintf("%.2f s", h.refused.Seconds()), h.refused.Seconds(), 2.1),
	}
}

func printHostile(out io.Writer, h hostile) {
	table(out, "Hostile modules.", []int{-48, 12},
		[]string{"verdict of a loop, wall ms, median of 9", fmt.Sprintf("%.1f", float64(h.late)/1e6)},
		[]string{"inspecting an ordinary module, CPU us", micros(h.normal)},
		[]string{"refusing one that explodes, CPU us", micros(h.refused)})
	_, _ = fmt.Fprintf(out, "refused: %s\n", h.why)
}
