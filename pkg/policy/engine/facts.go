package engine

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/policy"
)

// facts builds the input of rules out of terms that are made once: a pod is translated when it is
// first asked about at a version, and shared by all rules afterwards. Terms are not
// modified once they are built, so evaluations may read them at the same time.
type facts struct {
	words words

	// pods holds *ast.Term by podKey.
	pods *lru.Cache
}

// podKey is a pod at one point of its life. What a policy.PodFact says depends on nothing else.
type podKey struct {
	uid     types.UID
	version string
}

// words are the keys of the input, as terms.
type words struct {
	stage, counts, requests               *ast.Term
	selected, desired, available          *ast.Term
	reserved, pod, operation, id, kind    *ast.Term
	name, namespace, uid, labels, skipped *ast.Term
}

func newFacts(pods int) *facts {
	return &facts{
		pods: lru.New(pods),
		words: words{
			stage: ast.StringTerm("stage"), counts: ast.StringTerm("counts"), requests: ast.StringTerm("requests"),
			selected: ast.StringTerm("selected"), desired: ast.StringTerm("desired"),
			available: ast.StringTerm("available"), reserved: ast.StringTerm("reserved"),
			pod: ast.StringTerm("pod"), operation: ast.StringTerm("operation"),
			id: ast.StringTerm("id"), kind: ast.StringTerm("type"),
			name: ast.StringTerm("name"), namespace: ast.StringTerm("namespace"), uid: ast.StringTerm("uid"),
			labels: ast.StringTerm("labels"), skipped: ast.StringTerm("skip_rules"),
		},
	}
}

// key is one request: as policy spells it, and as the input does.
type key struct {
	name string
	term *ast.Term
}

// input is the document that a rule sees, and the keys of its requests in the given order.
// No two requests may have the same key: OPA would build an object that has it twice.
func (f *facts) input(
	stage appsv1alpha1.TransitionStage, counts policy.Counts, requests []policy.Request,
) ([]key, ast.Value) {
	keys := make([]key, 0, len(requests))
	entries := make([][2]*ast.Term, 0, len(requests))
	for _, request := range requests {
		name := request.Key()
		term := ast.StringTerm(name)
		keys = append(keys, key{name: name, term: term})
		entries = append(entries, [2]*ast.Term{term, ast.ObjectTerm(
			[2]*ast.Term{f.words.pod, f.pod(request.Pod)},
			[2]*ast.Term{f.words.operation, ast.ObjectTerm(
				[2]*ast.Term{f.words.id, ast.StringTerm(request.ID)},
				[2]*ast.Term{f.words.kind, ast.StringTerm(request.Type)},
			)},
		)})
	}
	return keys, ast.NewObject(
		[2]*ast.Term{f.words.stage, ast.StringTerm(string(stage))},
		[2]*ast.Term{f.words.counts, ast.ObjectTerm(
			[2]*ast.Term{f.words.selected, ast.InternedTerm(counts.Selected)},
			[2]*ast.Term{f.words.desired, ast.InternedTerm(counts.Desired)},
			[2]*ast.Term{f.words.available, ast.InternedTerm(counts.Available)},
			[2]*ast.Term{f.words.reserved, ast.InternedTerm(counts.Reserved)},
		)},
		[2]*ast.Term{f.words.requests, ast.ObjectTerm(entries...)},
	)
}

// pod is the document of a pod, remembered by UID and version. Without both of them it
// cannot be told from another one and is built each time.
func (f *facts) pod(pod *policy.PodFact) *ast.Term {
	if pod.UID == "" || pod.Version == "" {
		return f.build(pod)
	}
	key := podKey{uid: pod.UID, version: pod.Version}
	if known, ok := f.pods.Get(key); ok {
		return known.(*ast.Term)
	}
	built := f.build(pod)
	f.pods.Add(key, built)
	return built
}

// build fills every field, so that a rule never takes "none" for "not known".
func (f *facts) build(pod *policy.PodFact) *ast.Term {
	labels := make([][2]*ast.Term, 0, len(pod.Labels))
	for name, value := range pod.Labels {
		labels = append(labels, [2]*ast.Term{ast.StringTerm(name), ast.StringTerm(value)})
	}
	skipped := make([]*ast.Term, 0, len(pod.SkipRules))
	for _, rule := range pod.SkipRules {
		skipped = append(skipped, ast.StringTerm(rule))
	}
	return ast.ObjectTerm(
		[2]*ast.Term{f.words.name, ast.StringTerm(pod.Name)},
		[2]*ast.Term{f.words.namespace, ast.StringTerm(pod.Namespace)},
		[2]*ast.Term{f.words.uid, ast.StringTerm(string(pod.UID))},
		[2]*ast.Term{f.words.labels, ast.ObjectTerm(labels...)},
		[2]*ast.Term{f.words.skipped, ast.ArrayTerm(skipped...)},
		[2]*ast.Term{f.words.available, ast.InternedTerm(pod.Available)},
	)
}
