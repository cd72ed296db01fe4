package opa

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/rule"
)

// termCache converts pods to terms. Each version of a pod is converted once and shared by all rules.
// The keys of a term are sorted when it is built, and nothing modifies it afterwards, so evaluations
// may read it at the same time.
type termCache struct {
	keys inputKeys

	// memory holds versionedPod by podKey.
	memory *memory
}

// podKey is the cache key of a pod in one of its two forms.
type podKey struct {
	uid   types.UID
	whole bool
}

// versionedPod is the term of a pod at one resource version. A rule.PodFact depends on nothing
// else.
type versionedPod struct {
	version string
	term    *ast.Term
}

// inputKeys are the keys of the input, as terms.
type inputKeys struct {
	stage, counts, requests, rule, parameters *ast.Term
	selected, desired, available, reserved    *ast.Term
	pod, pods, operation, id, kind, since     *ast.Term
	cause, revision, current                  *ast.Term
	name, namespace, uid, labels, skipped     *ast.Term
	annotations, owner, ownerKind, node       *ast.Term
	created, ready, availableSince, permitted *ast.Term
	now, permits, at                          *ast.Term
	task, state, class, retryDue, answered    *ast.Term
}

func newTermCache(remembered *memory) *termCache {
	return &termCache{
		memory: remembered,
		keys: inputKeys{
			stage: ast.StringTerm("stage"), counts: ast.StringTerm("counts"), requests: ast.StringTerm("requests"),
			rule: ast.StringTerm("rule"), parameters: ast.StringTerm("parameters"),
			selected: ast.StringTerm("selected"), desired: ast.StringTerm("desired"),
			available: ast.StringTerm("available"), reserved: ast.StringTerm("reserved"),
			pod: ast.StringTerm("pod"), pods: ast.StringTerm("pods"), operation: ast.StringTerm("operation"),
			id: ast.StringTerm("id"), kind: ast.StringTerm("type"), since: ast.StringTerm("since"),
			cause:    ast.StringTerm("cause"),
			revision: ast.StringTerm("revision"), current: ast.StringTerm("current"),
			name: ast.StringTerm("name"), namespace: ast.StringTerm("namespace"), uid: ast.StringTerm("uid"),
			labels: ast.StringTerm("labels"), skipped: ast.StringTerm("skip_rules"),
			annotations: ast.StringTerm("annotations"), owner: ast.StringTerm("owner"),
			ownerKind: ast.StringTerm("kind"), node: ast.StringTerm("node"),
			created: ast.StringTerm("created"), ready: ast.StringTerm("ready"),
			availableSince: ast.StringTerm("available_since"), permitted: ast.StringTerm("permitted"),
			now: ast.StringTerm("now"), permits: ast.StringTerm("permits"), at: ast.StringTerm("at"),
			task: ast.StringTerm("task"), state: ast.StringTerm("state"),
			class: ast.StringTerm("class"), retryDue: ast.StringTerm("retry_due"),
			answered: ast.StringTerm("answered"),
		},
	}
}

// pod returns the document of a pod for built-in rules, or the whole document that users' modules
// read. The term of its last version is cached by UID. A pod without UID or version is converted
// each time, because it cannot be distinguished from another pod.
func (f *termCache) pod(pod *rule.PodFact, whole bool) *ast.Term {
	build := f.builtInPod
	if whole {
		build = f.customPod
	}
	if pod.UID == "" || pod.Version == "" {
		return build(pod)
	}
	key := podKey{uid: pod.UID, whole: whole}
	if known, ok := f.memory.Get(key); ok && known.(versionedPod).version == pod.Version {
		return known.(versionedPod).term
	}
	built := build(pod)
	f.memory.Add(pod.Namespace, key, versionedPod{version: pod.Version, term: built}, podBytes(pod, whole))
	return built
}

// builtInPod returns the fields that the library reads. It sets all of them, so that a rule never
// treats an unknown value as absent.
func (f *termCache) builtInPod(pod *rule.PodFact) *ast.Term {
	return sorted(ast.ObjectTerm(
		[2]*ast.Term{f.keys.name, ast.StringTerm(pod.Name)},
		[2]*ast.Term{f.keys.namespace, ast.StringTerm(pod.Namespace)},
		[2]*ast.Term{f.keys.uid, ast.StringTerm(string(pod.UID))},
		[2]*ast.Term{f.keys.labels, stringsTerm(pod.Labels)},
		[2]*ast.Term{f.keys.skipped, listTerm(pod.SkipRules)},
		[2]*ast.Term{f.keys.available, ast.InternedTerm(pod.Available)},
	))
}

// customPod returns every field of a pod in the schema of the input.
func (f *termCache) customPod(pod *rule.PodFact) *ast.Term {
	return f.podTermOf(pod, pod.Available, pod.AvailableSince, pod.Permitted)
}

// cachedPod returns customPod from the cache of pods.
func (f *termCache) cachedPod(pod *rule.PodFact) *ast.Term { return f.pod(pod, true) }

// committedPod returns a pod that is about to become unavailable, in the form in which rules see
// it.
func (f *termCache) committedPod(pod *rule.PodFact) *ast.Term {
	return f.podTermOf(pod, false, time.Time{}, true)
}

func (f *termCache) podTermOf(pod *rule.PodFact, available bool, since time.Time, permitted bool) *ast.Term {
	return sorted(ast.ObjectTerm(
		[2]*ast.Term{f.keys.name, ast.StringTerm(pod.Name)},
		[2]*ast.Term{f.keys.namespace, ast.StringTerm(pod.Namespace)},
		[2]*ast.Term{f.keys.uid, ast.StringTerm(string(pod.UID))},
		[2]*ast.Term{f.keys.labels, stringsTerm(pod.Labels)},
		[2]*ast.Term{f.keys.annotations, stringsTerm(pod.Annotations)},
		[2]*ast.Term{f.keys.owner, ast.ObjectTerm(
			[2]*ast.Term{f.keys.ownerKind, ast.StringTerm(pod.Owner.Kind)},
			[2]*ast.Term{f.keys.name, ast.StringTerm(pod.Owner.Name)},
			[2]*ast.Term{f.keys.uid, ast.StringTerm(string(pod.Owner.UID))},
		)},
		[2]*ast.Term{f.keys.revision, ast.ObjectTerm(
			[2]*ast.Term{f.keys.current, ast.StringTerm(pod.Revision.Current)},
			[2]*ast.Term{f.keys.state, ast.StringTerm(string(cmp.Or(pod.Revision.State, rule.RevisionUnknown)))},
		)},
		[2]*ast.Term{f.keys.node, ast.StringTerm(pod.Node)},
		[2]*ast.Term{f.keys.created, timeTerm(pod.Created)},
		[2]*ast.Term{f.keys.ready, ast.InternedTerm(pod.Ready)},
		[2]*ast.Term{f.keys.available, ast.InternedTerm(available)},
		[2]*ast.Term{f.keys.availableSince, timeTerm(since)},
		[2]*ast.Term{f.keys.permitted, ast.InternedTerm(permitted)},
		[2]*ast.Term{f.keys.skipped, listTerm(pod.SkipRules)},
	))
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

// objectOf parses a JSON object; an empty document is an empty object.
func objectOf(document json.RawMessage) (*ast.Term, error) {
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

// env is the environment of all requests of one round, as terms.
type env struct {
	now, namespace, counts, permits *ast.Term

	pods []podTerm
}

type podTerm struct {
	uid  types.UID
	term *ast.Term
}

// env converts the parts of the environment that a rule needs. The other parts are empty.
func (f *termCache) env(from rule.Environment, needs Needs) env {
	made := env{now: ast.InternedTerm(0), counts: f.counts(rule.Counts{}), permits: ast.ArrayTerm()}
	if needs.Now {
		made.now = timeTerm(from.Now)
	}
	labels := map[string]string{}
	if needs.Namespace {
		labels = from.Namespace.Labels
	}
	made.namespace = sorted(ast.ObjectTerm(
		[2]*ast.Term{f.keys.name, ast.StringTerm(from.Namespace.Name)},
		[2]*ast.Term{f.keys.labels, stringsTerm(labels)},
	))
	if needs.Counts {
		made.counts = f.counts(from.Counts)
	}
	if needs.Permits {
		made.permits = f.permits(from.Permits)
	}
	if needs.Pods {
		made.pods = make([]podTerm, 0, len(from.Pods))
		for _, pod := range from.Pods {
			translate := f.cachedPod
			if from.Committed[pod.UID] {
				translate = f.committedPod
			}
			made.pods = append(made.pods, podTerm{uid: pod.UID, term: translate(pod)})
		}
	}
	return made
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

// permits returns the most recent permits, oldest first.
func (f *termCache) permits(from []rule.Permit) *ast.Term {
	from = from[max(0, len(from)-maxPermits):]
	terms := make([]*ast.Term, 0, len(from))
	for _, permit := range from {
		terms = append(terms, ast.ObjectTerm(
			[2]*ast.Term{f.keys.pod, ast.StringTerm(permit.Pod)},
			[2]*ast.Term{f.keys.at, timeTerm(permit.At)},
		))
	}
	return sorted(ast.ArrayTerm(terms...))
}

func (f *termCache) counts(counts rule.Counts) *ast.Term {
	return sorted(ast.ObjectTerm(
		[2]*ast.Term{f.keys.selected, ast.InternedTerm(counts.Selected)},
		[2]*ast.Term{f.keys.desired, ast.InternedTerm(counts.Desired)},
		[2]*ast.Term{f.keys.available, ast.InternedTerm(counts.Available)},
		[2]*ast.Term{f.keys.reserved, ast.InternedTerm(counts.Reserved)},
	))
}
