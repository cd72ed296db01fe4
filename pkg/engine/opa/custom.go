package opa

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/topdown"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa/vet"
)

// evaluateEach evaluates a user's module for one request after the other, so that a conflict, an
// error or a timeout affects only the verdict of its own request.
func (p *Program) evaluateEach(ctx context.Context, from rule.Environment, requests []rule.Request) rule.Result {
	round, stop := context.WithTimeout(ctx, p.engine.options.RoundBudget)
	defer stop()
	result := rule.Result{Verdicts: make(map[string]rule.Verdict, len(requests))}
	if requests = p.withFacts(from, requests, result.Verdicts); len(requests) == 0 {
		return result
	}
	batch := p.batch(from, requests)
	answers, used, err := p.engine.evaluateModule(round, batch)
	result.CPUTime = used
	for i, request := range requests {
		if i >= len(answers) {
			result.Verdicts[request.Key()] = p.failed(cmp.Or(err, ErrNotReached))
			continue
		}
		given := answers[i]
		if p.engine.options.Observe != nil && !errors.Is(given.Err, ErrNotReached) {
			p.observeAnswer(batch, request, given)
		}
		if given.Err != nil {
			result.Verdicts[request.Key()] = p.failed(given.Err)
			continue
		}
		result.Verdicts[request.Key()] = given.Verdict
	}
	return result
}

// batch returns the evaluation of the rule for some requests.
func (p *Program) batch(from rule.Environment, requests []rule.Request) Batch {
	if from.Namespace.Name == "" && len(requests) > 0 {
		from.Namespace.Name = requests[0].Pod.Namespace
	}
	key := p.info.key
	return Batch{
		Source: Source{Owner: p.owner, Module: key.module, ParametersSchema: json.RawMessage(key.schema)},
		ID:     p.info.source, Namespace: p.id.Ruleset.Namespace, Literal: p.literal, Parameters: p.parameters,
		Environment: read(from, p.info.Needs, requests), Requests: requests,
		Details: p.info.Needs.Details, Limit: p.engine.options.CustomTimeout, Outputs: p.engine.options.Observe != nil,
	}
}

// read returns the parts of an environment that a module reads for some requests.
func read(from rule.Environment, needs Needs, requests []rule.Request) rule.Environment {
	kept := rule.Environment{Namespace: rule.Namespace{Name: from.Namespace.Name}}
	if needs.Now {
		kept.Now = from.Now
	}
	if needs.Namespace {
		kept.Namespace = from.Namespace
	}
	if needs.Counts {
		kept.Counts = from.Counts
	}
	if needs.Permits {
		kept.Permits = from.Permits[max(0, len(from.Permits)-maxPermits):]
	}
	if needs.Pods {
		kept.Pods, kept.Committed = from.Pods, from.Committed
	}
	if needs.Owner {
		kept.Workloads = map[types.UID]rule.Workload{}
		for _, request := range requests {
			if workload, known := from.Workloads[request.Pod.Owner.UID]; known {
				kept.Workloads[request.Pod.Owner.UID] = workload
			}
		}
	}
	if needs.Node {
		kept.Nodes = map[string]*rule.Node{}
		for _, request := range requests {
			if node, known := from.Nodes[request.Pod.Node]; known {
				kept.Nodes[request.Pod.Node] = node
			}
		}
	}
	return kept
}

// observeAnswer calls Options.Observe for the answer to one request.
func (p *Program) observeAnswer(batch Batch, request rule.Request, given Answer) {
	p.engine.options.Observe(Observation{
		Rule: p.id, Source: p.info.source, Stage: p.stage, Requests: []rule.Request{request},
		Input: func() (json.RawMessage, error) {
			read, err := p.engine.documents(batch.Namespace, batch.Literal, batch.Parameters)
			if err != nil {
				return nil, err
			}
			env := p.engine.terms.env(batch.Environment, p.info.Needs)
			return canonical(p.engine.terms.customInput(read.rule, read.parameters, env, request), unbounded)
		},
		Output:   func() (json.RawMessage, error) { return given.Output, cmp.Or(given.Err, given.OutputErr) },
		Duration: given.Duration, Evaluations: 1, Err: given.Err,
	})
}

// failed returns the verdict of a module that gave no decision. A rule that is not enforced
// withholds nothing, even when it is broken.
func (p *Program) failed(err error) rule.Verdict {
	code, message := explained(err)
	if p.enforcement != appsv1alpha1.EnforcementEnforce {
		return rule.Verdict{Outcome: rule.Passed, Would: code, Message: message}
	}
	return rule.Verdict{Code: code, Message: message}
}

// plainMessage returns a message of OPA as one line, without PodOps' own name for the file.
func plainMessage(message string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(message), " "), vet.File+":", "row ")
}

// explained returns the code and the readable message for one request's error.
func explained(err error) (rule.Code, string) {
	located, reported := &topdown.Error{}, &ModuleError{}
	switch {
	case errors.As(err, &reported):
		return reported.Code, reported.Message
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return rule.CodeNotReached, ""
	case errors.Is(err, ErrNotReached):
		why := strings.TrimPrefix(err.Error(), ErrNotReached.Error())
		return rule.CodeNotReached, boundedMessage(strings.TrimPrefix(why, ": "))
	case errors.Is(err, ErrTimeout):
		return rule.CodeTimeout, boundedMessage(err.Error())
	case errors.Is(err, ErrUndefined):
		return rule.CodeUndefined, ""
	case errors.As(err, &located) && located.Location != nil && located.Location.File == vet.File:
		return rule.CodeEvaluationFailed, boundedMessage(fmt.Sprintf("%d:%d: %s: %s",
			located.Location.Row, located.Location.Col, located.Code, plainMessage(located.Message)))
	default:
		return rule.CodeEvaluationFailed, boundedMessage(err.Error())
	}
}
