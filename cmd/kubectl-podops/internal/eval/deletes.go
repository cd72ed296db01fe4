package eval

import (
	"context"
	"slices"

	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation/offline"
	"github.com/podops-dev/podops/pkg/engine/opa"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
)

// Deletes evaluates the rules of a namespace for the evictions of pods, as though the user requested all of them now.
func Deletes(ctx context.Context, env *command.Environment, namespace string, pods []string) ([]offline.Verdict, error) {
	v := &verb{Environment: env}
	objects, err := v.readCluster(ctx, namespace)
	if err != nil {
		return nil, err
	}
	operation, err := v.operationAt(env.Now())
	if err != nil {
		return nil, err
	}
	operation.Requester = rule.Requester{Method: string(deferreddelete.MethodEviction), Actor: string(deferreddelete.ActorEvictor)}
	if err := v.identify(ctx, &operation.Requester); err != nil {
		return nil, err
	}
	selected := func(_, name string) bool { return slices.Contains(pods, name) }
	if err := beginEach(&objects, operation, selected); err != nil {
		return nil, err
	}
	engine, err := v.Engine(opa.Options{})
	if err != nil {
		return nil, err
	}
	verdicts, err := offline.Evaluate(ctx, objects, offline.Options{Engine: engine, Now: operation.At})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(verdicts, func(verdict offline.Verdict) bool { return !selected(verdict.Namespace, verdict.Pod) }), nil
}
