package evaluation

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"k8s.io/apimachinery/pkg/types"
)

// Recollection has the verdicts of one rule on the requests that waited in its last round, so that a round evaluates
// only the requests whose facts have changed. It only saves work: without it the rule is evaluated again, and its
// messages are made again. The zero value is empty.
type Recollection struct {
	// requests, verdicts and notes have an entry for each request, in the same order. The list of requests
	// is shared, and not modified.
	requests []rule.Request
	verdicts []rule.Verdict
	notes    []note

	version   uint64 // of requests; 0 for none
	counts    rule.Counts
	namespace rule.Namespace
	workloads map[types.UID]rule.Workload
	nodes     map[string]*rule.Node

	// details reports whether the rule reads the details of pods.
	details bool

	// again reports whether a verdict is to be made again although nothing has changed.
	again bool

	// ofFallback reports whether the verdicts are those of the program that is evaluated while the rule is under quarantine.
	ofFallback bool

	// noRoom is the message of a capacity, which is the same for every pod.
	capacity *rule.Capacity
	noRoom   string

	// charged is the number of bytes that the state of the namespace counts for it.
	charged int64
}

// note is what a rule remembers about a request besides its verdict.
type note struct {
	// known reports whether the rule was evaluated for the request, and stale whether it was so for earlier facts. A request
	// that was not reached keeps the denial of an earlier round: no request passes because of an old verdict.
	known, stale bool

	counted counted

	// missed is the number of successive rounds without time to evaluate the rule.
	missed int

	// nextCheck is when a rule that reads the time is evaluated again, so that the status does not change with every
	// round.
	nextCheck time.Time

	// mismatch is the message about the labels of the pod.
	mismatch string
}

// scope lists the inputs of a verdict besides the pod and the operation. A verdict with the zero value is valid as
// long as the pod does not change.
type scope struct {
	counts, namespace, owner, node bool

	// details means that the verdict depends on the details of the pod as well.
	details bool

	// always means that the verdict depends on the time, on other pods, or on permits.
	always bool
}

// newScope returns the verdict scope of a program.
func newScope(program Program) scope {
	needs := program.Needs()
	return scope{
		counts: program.VerdictsNeedCounts(), namespace: needs.Namespace, owner: needs.Owner, node: needs.Node, details: needs.Details,
		always: needs.Now || needs.Pods || needs.Permits,
	}
}

// Evaluate evaluates a program, always the same one, for the requests of a stage without a valid verdict, and returns the verdicts
// on all requests, which the next call modifies. version identifies the list of requests, which is not modified: two lists of
// one version are equal, and are not compared one by one. 0 is no version.
func (r *Recollection) Evaluate(
	ctx context.Context, program Program, stage appsv1alpha1.TransitionStage, env rule.Environment, requests []rule.Request, version uint64,
) ([]rule.Verdict, *rule.Capacity, error) {
	open := r.open(newScope(program), false, env, requests, version)
	if len(requests) == 0 || len(open) == 0 && !program.NeedsCounts() {
		return r.verdicts, nil, nil
	}
	result, err := program.Evaluate(ctx, stage, env, pick(requests, open))
	if err != nil {
		return nil, nil, err
	}
	for _, i := range open {
		r.set(i, result.Verdicts[requests[i].Key()]) // a missing one withholds
	}
	r.settle()
	return r.verdicts, result.Capacity, nil
}

// open returns the positions of the requests to evaluate: without a verdict, or with one that is not valid any more.
func (r *Recollection) open(reads scope, fallback bool, env rule.Environment, requests []rule.Request, version uint64) (open []int) {
	all := reads.always || r.differs(reads, env)
	r.details = reads.details
	r.align(requests, version)
	r.counts, r.namespace, r.workloads, r.nodes = env.Counts, env.Namespace, env.Workloads, env.Nodes
	if r.ofFallback != fallback {
		for i := range r.notes {
			r.notes[i].known = false
		}
		r.ofFallback, all = fallback, true
	}
	if !all && !r.again {
		return nil
	}
	for i := range r.notes {
		if n := &r.notes[i]; all || n.stale || !n.known || isTransient(r.verdicts[i]) {
			n.stale, open = true, append(open, i)
		}
	}
	r.again = len(open) > 0
	return open
}

// differs reports whether a part of the environment that the rule reads has changed since its last round.
func (r *Recollection) differs(reads scope, env rule.Environment) bool {
	return reads.counts && r.counts != env.Counts || reads.namespace && !sameNamespace(r.namespace, env.Namespace) ||
		reads.owner && !maps.Equal(r.workloads, env.Workloads) || reads.node && !maps.Equal(r.nodes, env.Nodes)
}

// align keeps the verdicts and notes of these requests, and forgets all others.
func (r *Recollection) align(requests []rule.Request, version uint64) {
	if version != 0 && version == r.version || isList(r.requests, requests) {
		return
	}
	verdicts, notes := make([]rule.Verdict, len(requests)), make([]note, len(requests))
	find := finder(r.requests)
	for i := range requests {
		at, ok := find(i, &requests[i])
		if !ok {
			r.again = true
			continue
		}
		last := &r.requests[at]
		verdicts[i], notes[i] = r.verdicts[at], r.notes[at]
		if last.Attempt != requests[i].Attempt {
			notes[i].counted = counted{}
		}
		if last.Pod != requests[i].Pod {
			notes[i].mismatch = ""
		}
		if !sameFacts(last, &requests[i], r.details) {
			notes[i].stale, r.again = true, true
		}
	}
	r.requests, r.verdicts, r.notes, r.version = requests, verdicts, notes, version
}

// set sets the verdict on a request that was evaluated.
func (r *Recollection) set(i int, verdict rule.Verdict) {
	r.verdicts[i] = verdict
	r.notes[i].known, r.notes[i].stale, r.notes[i].missed = true, false, 0
}

// miss sets the verdict on a request that was not reached, which stays denied as it was.
func (r *Recollection) miss(i int, verdict rule.Verdict) {
	n := &r.notes[i]
	if verdict.Would != "" || !n.known || r.verdicts[i].Outcome == rule.Passed {
		r.verdicts[i] = verdict
	}
	n.known, n.stale = true, true
	n.missed++
}

// settle ends the evaluation of a round.
func (r *Recollection) settle() {
	r.again = false
	for i := range r.notes {
		r.again = r.again || r.notes[i].stale || isTransient(r.verdicts[i])
	}
}

// explain explains a code, as rule.Explain does.
func (r *Recollection) explain(i int, code rule.Code, entry appsv1alpha1.TransitionRule, request rule.Request, capacity *rule.Capacity) string {
	switch code {
	case rule.CodeNoRoom:
		if capacity == nil || r.capacity != capacity {
			r.capacity, r.noRoom = capacity, rule.Explain(code, entry, request, capacity)
		}
		return r.noRoom
	case rule.CodeLabelMismatch:
		if r.notes[i].mismatch == "" {
			r.notes[i].mismatch = rule.Explain(code, entry, request, capacity)
		}
		return r.notes[i].mismatch
	default:
		return rule.Explain(code, entry, request, capacity)
	}
}

// Sizes of recollection parts besides their texts, as a test measures them.
const (
	recollectionBytes = 512
	rememberedBytes   = 480
)

// bytes returns about how many bytes a recollection takes. Pods are not counted, and lists that are shared with
// other rules are counted for each.
func (r *Recollection) bytes() int64 {
	bytes := recollectionBytes + len(r.requests)*rememberedBytes + len(r.noRoom)
	for i := range r.requests {
		request, verdict := &r.requests[i], &r.verdicts[i]
		bytes += len(request.ID) + len(request.Type) + len(request.Attempt) + len(request.Task.Message) +
			len(verdict.Message) + len(verdict.Details) + len(r.notes[i].mismatch)
	}
	return int64(bytes)
}

// finder looks up requests in a list. Lists usually have the same order, so finder first tries the position after the
// position of the previous request, and makes a map only if the orders differ.
func finder(known []rule.Request) func(int, *rule.Request) (int, bool) {
	type key struct {
		pod   types.UID
		stage appsv1alpha1.TransitionStage
		id    string
	}
	keyOf := func(request *rule.Request) key {
		return key{pod: request.Pod.UID, stage: request.Stage, id: request.ID}
	}
	var index map[key]int
	shift := 0
	return func(i int, request *rule.Request) (int, bool) {
		if at := i + shift; at >= 0 && at < len(known) && isSame(&known[at], request) {
			return at, true
		}
		if index == nil {
			index = make(map[key]int, len(known))
			for at := range known {
				index[keyOf(&known[at])] = at
			}
		}
		at, ok := index[keyOf(request)]
		if ok {
			shift = at - i
		}
		return at, ok
	}
}

// isList reports whether two lists are the same list.
func isList(a, b []rule.Request) bool {
	return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0]
}

// isSame compares keys. It does not read a pod if both are the same pointer.
func isSame(a, b *rule.Request) bool {
	return a.ID == b.ID && a.Stage == b.Stage && (a.Pod == b.Pod || a.Pod.UID == b.Pod.UID)
}

// sameFacts reports whether a rule reads equal facts from both requests, with the details of their pods or without.
func sameFacts(a, b *rule.Request, details bool) bool {
	version := b.Pod.VersionWith(details)
	return a.Type == b.Type && a.Cause == b.Cause && a.Requester == b.Requester && a.Attempt == b.Attempt && a.Task == b.Task && a.Approval.Equals(b.Approval) &&
		(a.Pod == b.Pod || a.Pod.VersionWith(details) == version && version != "")
}

func sameNamespace(a, b rule.Namespace) bool {
	return a.Name == b.Name && maps.Equal(a.Labels, b.Labels)
}

// isTransient reports whether the evaluation failed, or the module requires another evaluation: the next verdict may
// differ although nothing has changed.
func isTransient(verdict rule.Verdict) bool {
	switch verdict.Code {
	case rule.CodeEvaluationFailed, rule.CodeTimeout, rule.CodePolicyTooExpensive, rule.CodeNotReached:
		return true
	default:
		return verdict.RetryAfter > 0
	}
}

func pick(requests []rule.Request, positions []int) []rule.Request {
	if len(positions) == len(requests) {
		return requests
	}
	picked := make([]rule.Request, 0, len(positions))
	for _, i := range positions {
		picked = append(picked, requests[i])
	}
	return picked
}

const (
	// defaultNextCheck is the delay after which a rule that reads the time is evaluated again, unless it
	// returns a delay.
	defaultNextCheck = 15 * time.Second

	// The delay that a rule returns is bounded by these.
	shortestNextCheck = time.Second
	longestNextCheck  = 5 * time.Minute
)

// schedule returns the next check of a withheld request. A check is set again when it is due or when the rule
// requires it sooner.
func (n *note) schedule(verdict rule.Verdict, now time.Time) time.Time {
	wait := cmp.Or(verdict.RetryAfter, defaultNextCheck)
	next := now.Add(min(max(wait, shortestNextCheck), longestNextCheck))
	if !n.nextCheck.After(now) || next.Before(n.nextCheck.Add(-shortestNextCheck)) {
		n.nextCheck = next
	}
	return n.nextCheck
}

// remark is what a rule remembers about one request: an entry of its recollection.
type remark struct {
	of *Recollection
	at int
}

// inStage returns the requests of a stage, of both if it is empty. Usually all are, and the list is
// returned without a copy.
func inStage(requests []rule.Request, stage appsv1alpha1.TransitionStage) []rule.Request {
	elsewhere := func(request rule.Request) bool { return stage != "" && request.Stage != stage }
	if !slices.ContainsFunc(requests, elsewhere) {
		return requests
	}
	return slices.DeleteFunc(slices.Clone(requests), elsewhere)
}
