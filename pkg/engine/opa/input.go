package opa

import (
	"cmp"

	"github.com/open-policy-agent/opa/v1/ast"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// key is the key of one request, as package rule and as the input write it.
type key struct {
	name string
	term *ast.Term
}

// batchInput returns the input of a built-in rule, and the keys of its requests in the given order.
// No two requests may have the same key: OPA would build an object that has it twice. kind adds
// what only rules of this kind read: the tasks or the approvals of the requests.
func batchInput(
	literal *ast.Term, stage appsv1alpha1.TransitionStage, counts rule.Counts, requests []rule.Request, kind rule.Kind,
) ([]key, ast.Value) {
	keys := make([]key, 0, len(requests))
	entries := make([][2]*ast.Term, 0, len(requests))
	for _, request := range requests {
		name := request.Key()
		term := ast.StringTerm(name)
		keys = append(keys, key{name: name, term: term})
		known := [][2]*ast.Term{
			named("pod", builtInPod(request.Pod)),
			named("operation", ast.ObjectTerm(
				named("id", ast.StringTerm(request.ID)),
				named("type", ast.StringTerm(request.Type)),
			)),
		}
		switch {
		case kind == rule.KindWebhook:
			known = append(known, named("task", taskTerm(request.Task)))
		case kind == rule.KindApproval && request.Approval != nil:
			known = append(known, named("approval", approvalTerm(request.Approval)))
		}
		entries = append(entries, [2]*ast.Term{term, ast.ObjectTerm(known...)})
	}
	return keys, ast.NewObject(
		named("stage", ast.StringTerm(string(stage))),
		named("counts", countsTerm(counts)),
		named("requests", ast.ObjectTerm(entries...)),
		named("rule", literal),
	)
}

// approvalTerm returns the part of an approval that a rule of kind approval reads.
func approvalTerm(approval *rule.Approval) *ast.Term {
	users := func(names []string) *ast.Term {
		terms := make([]*ast.Term, 0, len(names))
		for _, name := range names {
			terms = append(terms, ast.StringTerm(name))
		}
		return ast.ArrayTerm(terms...)
	}
	return ast.ObjectTerm(
		named("revision", ast.StringTerm(approval.Revision)),
		named("current", ast.InternedTerm(approval.Current)),
		named("author", ast.StringTerm(approval.Author)),
		named("approved_by", users(approval.ApprovedBy)),
		named("denied_by", users(approval.DeniedBy)),
	)
}

// taskNone is the state of a task that does not exist: the service has not been called.
const taskNone rule.TaskState = "None"

// taskTerm returns the part of a task that a rule of kind webhook reads. The service's human-readable
// texts are not part of it.
func taskTerm(task rule.Task) *ast.Term {
	return ast.ObjectTerm(
		named("state", ast.StringTerm(string(cmp.Or(task.State, taskNone)))),
		named("class", ast.StringTerm(task.Class)),
		named("retry_due", ast.InternedTerm(task.RetryDue)),
		named("answered", ast.InternedTerm(task.Answered)),
	)
}

func requesterTerm(from rule.Requester) *ast.Term {
	var groups []*ast.Term
	for _, group := range from.GroupList() {
		groups = append(groups, ast.StringTerm(group))
	}
	return sorted(ast.ObjectTerm(
		named("method", ast.InternedTerm(from.Method)),
		named("actor", ast.InternedTerm(from.Actor)),
		named("user", ast.StringTerm(from.User)),
		named("groups", ast.ArrayTerm(groups...)),
		named("groups_truncated", ast.InternedTerm(from.GroupsTruncated)),
	))
}

// customInput returns the input of a user's module: every field of policies/schema/input.json, and the owner and the node for a
// module that reads them.
func (f *termCache) customInput(rule, parameters *ast.Term, env env, request rule.Request) ast.Value {
	fields := [][2]*ast.Term{
		named("stage", ast.StringTerm(string(request.Stage))),
		named("now", env.now),
		named("operation", sorted(ast.ObjectTerm(
			named("id", ast.StringTerm(request.ID)),
			named("type", ast.StringTerm(request.Type)),
			named("cause", ast.StringTerm(string(request.Cause))),
			named("since", timeTerm(request.Since)),
			named("request", requesterTerm(request.Requester)),
		))),
		named("parameters", parameters),
		named("pod", f.pod(request.Pod, env.details)),
		named("pods", env.others(request.Pod.UID)),
		named("namespace", env.namespace),
		named("counts", env.counts),
		named("permits", env.permits),
		named("rule", rule),
	}
	if env.workloads != nil {
		fields = append(fields, named("owner", env.owner(request.Pod.Owner)))
	}
	if env.nodes != nil {
		fields = append(fields, named("node", env.node(request.Pod.Node)))
	}
	input := ast.NewObject(fields...)
	input.Keys() // sorts the keys of the input; the keys of its parts are sorted
	return input
}
