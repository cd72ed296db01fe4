package opa

import (
	"cmp"

	"github.com/open-policy-agent/opa/v1/ast"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
)

// key is the key of one request, as package rule and as the input write it.
type key struct {
	name string
	term *ast.Term
}

// batchInput returns the input of a built-in rule, and the keys of its requests in the given order.
// No two requests may have the same key: OPA would build an object that has it twice. tasks adds
// the tasks of the requests, for rules of kind webhook.
func (f *termCache) batchInput(
	rule *ast.Term, stage appsv1alpha1.TransitionStage, counts rule.Counts, requests []rule.Request, tasks bool,
) ([]key, ast.Value) {
	keys := make([]key, 0, len(requests))
	entries := make([][2]*ast.Term, 0, len(requests))
	for _, request := range requests {
		name := request.Key()
		term := ast.StringTerm(name)
		keys = append(keys, key{name: name, term: term})
		known := [][2]*ast.Term{
			{f.keys.pod, f.pod(request.Pod, false)},
			{f.keys.operation, ast.ObjectTerm(
				[2]*ast.Term{f.keys.id, ast.StringTerm(request.ID)},
				[2]*ast.Term{f.keys.kind, ast.StringTerm(request.Type)},
			)},
		}
		if tasks {
			known = append(known, [2]*ast.Term{f.keys.task, f.task(request.Task)})
		}
		entries = append(entries, [2]*ast.Term{term, ast.ObjectTerm(known...)})
	}
	return keys, ast.NewObject(
		[2]*ast.Term{f.keys.stage, ast.StringTerm(string(stage))},
		[2]*ast.Term{f.keys.counts, f.counts(counts)},
		[2]*ast.Term{f.keys.requests, ast.ObjectTerm(entries...)},
		[2]*ast.Term{f.keys.rule, rule},
	)
}

// taskNone is the state of a task that does not exist: the service has not been called.
const taskNone rule.TaskState = "None"

// task returns the part of a task that a rule of kind webhook reads. The service's human-readable
// texts are not part of it.
func (f *termCache) task(task rule.Task) *ast.Term {
	return ast.ObjectTerm(
		[2]*ast.Term{f.keys.state, ast.StringTerm(string(cmp.Or(task.State, taskNone)))},
		[2]*ast.Term{f.keys.class, ast.StringTerm(task.Class)},
		[2]*ast.Term{f.keys.retryDue, ast.InternedTerm(task.RetryDue)},
		[2]*ast.Term{f.keys.answered, ast.InternedTerm(task.Answered)},
	)
}

// customInput returns the input of a user's module: every field of policies/schema/input.json.
func (f *termCache) customInput(rule, parameters *ast.Term, env env, request rule.Request) ast.Value {
	input := ast.NewObject(
		[2]*ast.Term{f.keys.stage, ast.StringTerm(string(request.Stage))},
		[2]*ast.Term{f.keys.now, env.now},
		[2]*ast.Term{f.keys.operation, sorted(ast.ObjectTerm(
			[2]*ast.Term{f.keys.id, ast.StringTerm(request.ID)},
			[2]*ast.Term{f.keys.kind, ast.StringTerm(request.Type)},
			[2]*ast.Term{f.keys.cause, ast.StringTerm(string(request.Cause))},
			[2]*ast.Term{f.keys.since, timeTerm(request.Since)},
		))},
		[2]*ast.Term{f.keys.parameters, parameters},
		[2]*ast.Term{f.keys.pod, f.pod(request.Pod, true)},
		[2]*ast.Term{f.keys.pods, env.others(request.Pod.UID)},
		[2]*ast.Term{f.keys.namespace, env.namespace},
		[2]*ast.Term{f.keys.counts, env.counts},
		[2]*ast.Term{f.keys.permits, env.permits},
		[2]*ast.Term{f.keys.rule, rule},
	)
	input.Keys() // sorts the keys of the input; the keys of its parts are sorted
	return input
}
