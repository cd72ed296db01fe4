package opa

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/rule"
)

// termCache converts pods to terms. Each version of a pod is converted once and shared by all rules.
// The keys of a term are sorted when it is built, and nothing modifies it afterwards, so evaluations
// may read it at the same time.
type termCache struct {
	// memory holds versionedPod by podKey.
	memory *memory
}

// podKey is the cache key of a pod, with or without its details.
type podKey struct {
	uid     types.UID
	details bool
}

// versionedPod is the term of a pod at one resource version. A rule.PodFact depends on nothing
// else.
type versionedPod struct {
	version string
	term    *ast.Term
}

// fieldNames are all field names of the input, as terms.
//
//nolint:gochecknoglobals // terms of constants, which nothing modifies
var fieldNames = func() map[string]*ast.Term {
	terms := map[string]*ast.Term{}
	for _, name := range []string{
		"actor", "annotations", "answered", "approval", "approved_by", "at", "author", "available", "available_since", "cause", "class", "conditions",
		"container", "counts", "created", "current", "denied_by", "desired", "digest", "groups", "groups_truncated", "id", "images", "kind", "labels",
		"limits", "method", "name", "namespace", "node", "now", "operation", "owner", "parameters", "paused", "permits", "permitted", "pod", "pods",
		"ready", "ready_since", "reason", "registry", "repository", "request", "requests", "reserved", "resources", "restarts", "retry_due", "revision",
		"rule", "selected", "since", "skip_rules", "stage", "started", "state", "status", "tag", "task", "text", "type", "uid", "unschedulable", "user",
		"value", "zone",
	} {
		terms[name] = ast.StringTerm(name)
	}
	return terms
}()

// named returns a field of the input; its name is one of fieldNames.
func named(name string, value *ast.Term) [2]*ast.Term { return [2]*ast.Term{fieldNames[name], value} }

// pod returns the document of a pod that users' modules read, with its details for modules that name one. The term of its
// last version is cached by UID. A pod without UID or version is converted each time, because it cannot be distinguished
// from another pod.
func (f *termCache) pod(pod *rule.PodFact, details bool) *ast.Term {
	version := pod.VersionWith(details)
	if pod.UID == "" || version == "" {
		return customPod(pod, details)
	}
	key := podKey{uid: pod.UID, details: details}
	if known, ok := f.memory.Get(key); ok && known.(versionedPod).version == version {
		return known.(versionedPod).term
	}
	built := customPod(pod, details)
	f.memory.Add(pod.Namespace, key, versionedPod{version: version, term: built}, podBytes(pod, details))
	return built
}

// builtInPod returns the fields that the library reads. It sets all of them, so that a rule never
// treats an unknown value as absent.
func builtInPod(pod *rule.PodFact) *ast.Term {
	return sorted(ast.ObjectTerm(
		named("name", ast.StringTerm(pod.Name)),
		named("namespace", ast.StringTerm(pod.Namespace)),
		named("uid", ast.StringTerm(string(pod.UID))),
		named("labels", stringsTerm(pod.Labels)),
		named("skip_rules", listTerm(pod.SkipRules)),
		named("available", ast.InternedTerm(pod.Available)),
	))
}

// customPod returns every field of a pod in the schema of the input, with its details if they are needed.
func customPod(pod *rule.PodFact, details bool) *ast.Term {
	return encodePod(pod, details, pod.Available, pod.AvailableSince, pod.Permitted)
}

// committedPod returns a pod that is about to become unavailable, in the form in which rules see
// it.
func committedPod(pod *rule.PodFact, details bool) *ast.Term {
	return encodePod(pod, details, false, time.Time{}, true)
}

func encodePod(pod *rule.PodFact, details bool, available bool, since time.Time, permitted bool) *ast.Term {
	var fields [][2]*ast.Term
	if details {
		fields = detailFields(pod.Details)
	}
	return sorted(ast.ObjectTerm(append(fields,
		named("name", ast.StringTerm(pod.Name)),
		named("namespace", ast.StringTerm(pod.Namespace)),
		named("uid", ast.StringTerm(string(pod.UID))),
		named("labels", stringsTerm(pod.Labels)),
		named("annotations", stringsTerm(pod.Annotations)),
		named("owner", ast.ObjectTerm(ownerFields(pod.Owner)...)),
		named("revision", ast.ObjectTerm(
			named("current", ast.StringTerm(pod.Revision.Current)),
			named("state", ast.StringTerm(string(cmp.Or(pod.Revision.State, rule.RevisionUnknown)))),
		)),
		named("node", ast.StringTerm(pod.Node)),
		named("created", timeTerm(pod.Created)),
		named("ready", ast.InternedTerm(pod.Ready)),
		named("available", ast.InternedTerm(available)),
		named("available_since", timeTerm(since)),
		named("permitted", ast.InternedTerm(permitted)),
		named("skip_rules", listTerm(pod.SkipRules)),
	)...))
}

// ownerFields returns the fields that name a workload.
func ownerFields(owner rule.Owner) [][2]*ast.Term {
	return [][2]*ast.Term{
		named("kind", ast.StringTerm(owner.Kind)), named("name", ast.StringTerm(owner.Name)), named("uid", ast.StringTerm(string(owner.UID))),
	}
}

// stringsTerm returns a map of strings as a term; {} for nil.
func stringsTerm(values map[string]string) *ast.Term {
	entries := make([][2]*ast.Term, 0, len(values))
	for name, value := range values {
		entries = append(entries, [2]*ast.Term{ast.StringTerm(name), ast.StringTerm(value)})
	}
	return ast.ObjectTerm(entries...)
}

func listTerm(values []string) *ast.Term {
	terms := make([]*ast.Term, 0, len(values))
	for _, value := range values {
		terms = append(terms, ast.StringTerm(value))
	}
	return ast.ArrayTerm(terms...)
}

// timeTerm returns a time in Unix nanoseconds; 0 for the zero time.
func timeTerm(at time.Time) *ast.Term {
	if at.IsZero() {
		return ast.InternedTerm(0)
	}
	return ast.NumberTerm(json.Number(fmt.Sprint(at.UnixNano())))
}

// parseObject parses a JSON object; an empty document is an empty object.
func parseObject(document json.RawMessage) (*ast.Term, error) {
	if len(document) == 0 {
		return ast.ObjectTerm(), nil
	}
	value, err := ast.ValueFromReader(bytes.NewReader(document))
	if err != nil {
		return nil, err
	}
	if _, ok := value.(ast.Object); !ok {
		return nil, fmt.Errorf("it is of type %s, not an object", ast.ValueName(value))
	}
	return sorted(ast.NewTerm(value)), nil
}

// sorted sorts the keys of all objects in a term, and returns the term.
func sorted(term *ast.Term) *ast.Term {
	sortKeys(term)
	return term
}

// sortKeys sorts the keys of all objects in a term or a module. OPA sorts the keys of an object in
// place when they are first read in order, while Copy, which a with modifier calls, reads them
// without that lock: evaluations that share an object whose keys are not sorted race, and the copy
// may lack a key.
func sortKeys(in any) {
	// The visitor reads the keys of each object in order.
	ast.WalkTerms(in, func(*ast.Term) bool { return false })
}

// env is the environment of one round's requests, as terms.
type env struct {
	now, namespace, counts, permits *ast.Term

	pods []podTerm

	// workloads are the known workloads; nil for a module that does not read the owner.
	workloads map[types.UID]rule.Workload

	// nodes are the known nodes; nil for a module that does not read the node.
	nodes map[string]*rule.Node

	// details reports whether pods have their details.
	details bool
}

type podTerm struct {
	uid  types.UID
	term *ast.Term
}

// env converts the parts of the environment that a rule needs. The other parts are empty.
func (f *termCache) env(from rule.Environment, needs Needs) env {
	made := env{details: needs.Details, now: ast.InternedTerm(0), counts: countsTerm(rule.Counts{}), permits: ast.ArrayTerm()}
	if needs.Now {
		made.now = timeTerm(from.Now)
	}
	labels := map[string]string{}
	if needs.Namespace {
		labels = from.Namespace.Labels
	}
	made.namespace = sorted(ast.ObjectTerm(
		named("name", ast.StringTerm(from.Namespace.Name)),
		named("labels", stringsTerm(labels)),
	))
	if needs.Counts {
		made.counts = countsTerm(from.Counts)
	}
	if needs.Permits {
		made.permits = permitsTerm(from.Permits)
	}
	if made.workloads = from.Workloads; needs.Owner && made.workloads == nil {
		made.workloads = map[types.UID]rule.Workload{}
	}
	if made.nodes = from.Nodes; needs.Node && made.nodes == nil {
		made.nodes = map[string]*rule.Node{}
	}
	if needs.Pods {
		made.pods = make([]podTerm, 0, len(from.Pods))
		for _, pod := range from.Pods {
			translate := f.pod
			if from.Committed[pod.UID] {
				translate = committedPod
			}
			made.pods = append(made.pods, podTerm{uid: pod.UID, term: translate(pod, needs.Details)})
		}
	}
	return made
}

// owner returns the workload of a pod, whose numbers are known. A pod without a workload wants itself.
func (a env) owner(owner rule.Owner) *ast.Term {
	workload := rule.Workload{Desired: 1}
	if owner.UID != "" {
		workload = a.workloads[owner.UID]
	}
	return sorted(ast.ObjectTerm(append(ownerFields(owner),
		named("desired", ast.InternedTerm(workload.Desired)),
		named("revision", ast.StringTerm(workload.Revision)),
		named("paused", ast.InternedTerm(workload.Paused)),
	)...))
}

// node returns the node of a pod, which is known; all fields are empty for a pod that is bound to none.
func (a env) node(name string) *ast.Term {
	node := cmp.Or(a.nodes[name], &rule.Node{})
	return sorted(ast.ObjectTerm(
		named("name", ast.StringTerm(name)),
		named("labels", stringsTerm(node.Labels)),
		named("zone", ast.StringTerm(node.Labels[corev1.LabelTopologyZone])),
		named("unschedulable", ast.InternedTerm(node.Unschedulable)),
		named("conditions", stringsTerm(node.Conditions)),
	))
}

// others returns all pods except the pod with the UID.
func (a env) others(uid types.UID) *ast.Term {
	terms := make([]*ast.Term, 0, len(a.pods))
	for _, pod := range a.pods {
		if pod.uid != uid {
			terms = append(terms, pod.term)
		}
	}
	return ast.ArrayTerm(terms...)
}

// maxPermits bounds input.permits, as documented in the schema of the input.
const maxPermits = 100

// permitsTerm returns the most recent permits, oldest first.
func permitsTerm(from []rule.Permit) *ast.Term {
	from = from[max(0, len(from)-maxPermits):]
	terms := make([]*ast.Term, 0, len(from))
	for _, permit := range from {
		terms = append(terms, ast.ObjectTerm(
			named("pod", ast.StringTerm(permit.Pod)),
			named("at", timeTerm(permit.At)),
		))
	}
	return sorted(ast.ArrayTerm(terms...))
}

func countsTerm(counts rule.Counts) *ast.Term {
	return sorted(ast.ObjectTerm(
		named("selected", ast.InternedTerm(counts.Selected)),
		named("desired", ast.InternedTerm(counts.Desired)),
		named("available", ast.InternedTerm(counts.Available)),
		named("reserved", ast.InternedTerm(counts.Reserved)),
	))
}
