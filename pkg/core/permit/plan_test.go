package permit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
)

const namespace = "shop"

// epoch is when the oldest request began.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// waiting returns a request to take an available pod offline: minute is when it began. The UID
// of the pod is its name, and its resourceVersion is 10.
func waiting(pod string, minute int) permit.Candidate { return waitingAs(pod, "a", minute) }

func waitingAs(pod, id string, minute int) permit.Candidate {
	return permit.Candidate{Request: rule.Request{
		Pod: &rule.PodFact{
			UID: types.UID(pod), Namespace: namespace, Name: pod, ResourceVersion: "10", Version: "10", Available: true,
		},
		Stage: appsv1alpha1.StagePreCheck, ID: id, Type: "upgrade", Since: epoch.Add(time.Duration(minute) * time.Minute),
	}}
}

// under puts a candidate under rules, as "<object>/<rule>": it needs a slot of each, and
// each object selects the pod.
func under(c permit.Candidate, rules ...string) permit.Candidate {
	for _, rule := range rules {
		object, name, _ := strings.Cut(rule, "/")
		c.Needs = append(c.Needs, ruleID(object, name))
		c = selectedBy(c, object)
	}
	return c
}

// selectedBy adds an object that selects the pod, and has no rule for the request.
func selectedBy(c permit.Candidate, object string) permit.Candidate {
	for _, known := range c.Budgets {
		if known == object {
			return c
		}
	}
	c.Budgets = append(c.Budgets, object)
	return c
}

func unavailable(c permit.Candidate) permit.Candidate {
	fact := *c.Request.Pod
	fact.Available = false
	c.Request.Pod = &fact
	return c
}

func ruleID(object, name string) rule.RuleID {
	return rule.RuleID{Ruleset: types.NamespacedName{Namespace: namespace, Name: object}, Rule: name}
}

// budget returns the budget of an object with one rule "max".
func budget(object string, slots int, live ...string) permit.Budget {
	b := permit.Budget{Ruleset: object, Slots: map[string]int{"max": slots}, Live: map[types.UID]appsv1alpha1.ReservedPod{}}
	for _, pod := range live {
		b.Live[types.UID(pod)] = reserved(pod)
	}
	return b
}

func reserved(pod string) appsv1alpha1.ReservedPod {
	return appsv1alpha1.ReservedPod{UID: types.UID(pod), Name: pod, ResourceVersion: "10"}
}

// outcome is a readable form of a plan.
type outcome struct {
	Granted    []string            // "<pod>/<id>", in order
	Denied     []string            // "<pod>/<id> <object>/<rule> <code>", in order
	Reserve    map[string][]string // pods by object
	Records    map[string][]string // objects by pod
	Invalidate []types.UID
}

func outcomeOf(plan permit.Plan) outcome {
	got := outcome{Invalidate: plan.Invalidate}
	for _, request := range plan.Grants {
		got.Granted = append(got.Granted, request.Pod.Name+"/"+request.ID)
	}
	for _, denial := range plan.Denied {
		got.Denied = append(got.Denied, fmt.Sprintf("%s/%s %s %s",
			denial.Request.Pod.Name, denial.Request.ID, denial.Rule, denial.Verdict.Code))
	}
	for object, list := range plan.Reserve {
		if got.Reserve == nil {
			got.Reserve = map[string][]string{}
		}
		got.Reserve[object] = []string{}
		for _, pod := range list {
			got.Reserve[object] = append(got.Reserve[object], pod.Name)
		}
	}
	for uid, objects := range plan.NeedsRecords {
		if got.Records == nil {
			got.Records = map[string][]string{}
		}
		got.Records[string(uid)] = objects
	}
	return got
}

func TestNext(t *testing.T) {
	for name, tc := range map[string]struct {
		budgets    []permit.Budget
		candidates []permit.Candidate
		want       outcome
	}{
		"no pod waits": {budgets: []permit.Budget{budget("web", 1)}},
		"a pod under no budget passes and is in no record": {
			candidates: []permit.Candidate{waiting("p", 0)},
			want:       outcome{Granted: []string{"p/a"}},
		},
		"slots go to the oldest requests": {
			budgets: []permit.Budget{budget("web", 2)},
			candidates: []permit.Candidate{
				under(waiting("p", 3), "web/max"), under(waiting("q", 1), "web/max"), under(waiting("r", 2), "web/max"),
			},
			want: outcome{
				Granted: []string{"q/a", "r/a"}, Denied: []string{"p/a web/max NoRoom"},
				Reserve: map[string][]string{"web": {"q", "r"}},
				Records: map[string][]string{"q": {"web"}, "r": {"web"}},
			},
		},
		"of requests of the same time the first name goes": {
			budgets:    []permit.Budget{budget("web", 1)},
			candidates: []permit.Candidate{under(waiting("q", 0), "web/max"), under(waiting("p", 0), "web/max")},
			want: outcome{
				Granted: []string{"p/a"}, Denied: []string{"q/a web/max NoRoom"},
				Reserve: map[string][]string{"web": {"p"}}, Records: map[string][]string{"p": {"web"}},
			},
		},
		"a pod that is unavailable already takes no slot": {
			budgets:    []permit.Budget{budget("web", 0)},
			candidates: []permit.Candidate{unavailable(under(waiting("p", 0), "web/max"))},
			want:       outcome{Granted: []string{"p/a"}},
		},
		"a PostCheck takes no slot, for any pod": {
			budgets: []permit.Budget{budget("web", 0)},
			candidates: []permit.Candidate{func() permit.Candidate {
				c := selectedBy(waiting("p", 0), "web")
				c.Request.Stage = appsv1alpha1.StagePostCheck
				return c
			}(), under(waitingAs("p", "b", 1), "web/max")},
			want: outcome{Granted: []string{"p/a"}, Denied: []string{"p/b web/max NoRoom"}},
		},
		"a pod under two objects needs a slot of both, and takes none if one has none left": {
			budgets: []permit.Budget{budget("db", 0), budget("web", 1)},
			candidates: []permit.Candidate{
				under(waiting("p", 0), "db/max", "web/max"), under(waiting("q", 1), "web/max"),
			},
			want: outcome{
				Granted: []string{"q/a"}, Denied: []string{"p/a db/max NoRoom"},
				Reserve: map[string][]string{"web": {"q"}}, Records: map[string][]string{"q": {"web"}},
			},
		},
		"two objects with one slot each choose the same pod": {
			budgets: []permit.Budget{budget("db", 1), budget("web", 1)},
			candidates: []permit.Candidate{
				under(waiting("p", 0), "db/max", "web/max"), under(waiting("q", 1), "db/max", "web/max"),
			},
			want: outcome{
				Granted: []string{"p/a"}, Denied: []string{"q/a db/max NoRoom"},
				Reserve: map[string][]string{"db": {"p"}, "web": {"p"}}, Records: map[string][]string{"p": {"db", "web"}},
			},
		},
		"a pod takes a slot of every rule of its objects, even of rules that it does not need": {
			budgets: []permit.Budget{
				{Ruleset: "web", Slots: map[string]int{"all": 1, "deletes": 1}},
			},
			candidates: []permit.Candidate{under(waiting("p", 0), "web/deletes"), under(waiting("q", 1), "web/all")},
			want: outcome{
				Granted: []string{"p/a"}, Denied: []string{"q/a web/all NoRoom"},
				Reserve: map[string][]string{"web": {"p"}}, Records: map[string][]string{"p": {"web"}},
			},
		},
		"a pod that needs no slot takes one nevertheless": {
			budgets:    []permit.Budget{budget("web", 1)},
			candidates: []permit.Candidate{selectedBy(waiting("p", 0), "web"), under(waiting("q", 1), "web/max")},
			want: outcome{
				Granted: []string{"p/a"}, Denied: []string{"q/a web/max NoRoom"},
				Reserve: map[string][]string{"web": {"p"}}, Records: map[string][]string{"p": {"web"}},
			},
		},
		"the ids of a pod share one slot": {
			budgets:    []permit.Budget{budget("web", 1)},
			candidates: []permit.Candidate{under(waitingAs("p", "b", 1), "web/max"), under(waitingAs("p", "a", 0), "web/max")},
			want: outcome{
				Granted: []string{"p/a", "p/b"},
				Reserve: map[string][]string{"web": {"p"}}, Records: map[string][]string{"p": {"web"}},
			},
		},
		"an id without a slot does not hold back the other id of its pod": {
			budgets: []permit.Budget{{Ruleset: "web", Slots: map[string]int{"upgrades": 0, "deletes": 1}}},
			candidates: []permit.Candidate{
				under(waitingAs("p", "a", 0), "web/upgrades"), under(waitingAs("p", "b", 1), "web/deletes"),
			},
			want: outcome{
				Granted: []string{"p/b"}, Denied: []string{"p/a web/upgrades NoRoom"},
				Reserve: map[string][]string{"web": {"p"}}, Records: map[string][]string{"p": {"web"}},
			},
		},
		"a pod that is reserved has its slot, and comes before older requests": {
			budgets: []permit.Budget{budget("db", 1, "q"), budget("web", 1)},
			candidates: []permit.Candidate{
				under(waiting("p", 0), "db/max", "web/max"), under(waiting("q", 9), "db/max", "web/max"),
			},
			want: outcome{
				Granted: []string{"q/a"}, Denied: []string{"p/a web/max NoRoom"},
				Reserve: map[string][]string{"web": {"q"}}, Records: map[string][]string{"q": {"db", "web"}},
			},
		},
		"a pod that is reserved everywhere adds to no record": {
			budgets:    []permit.Budget{budget("web", 0, "p")},
			candidates: []permit.Candidate{under(waiting("p", 0), "web/max")},
			want:       outcome{Granted: []string{"p/a"}, Records: map[string][]string{"p": {"web"}}},
		},
		"pods that are reserved are invalidated when pods failed and their rule has too few pods without them": {
			budgets:    []permit.Budget{budget("web", -1, "p", "q")},
			candidates: []permit.Candidate{under(waiting("p", 0), "web/max"), under(waiting("q", 1), "web/max"), selectedBy(waiting("r", 2), "web")},
			want: outcome{
				Granted: []string{"r/a"}, Denied: []string{"p/a web/max NoRoom", "q/a web/max NoRoom"},
				Reserve: map[string][]string{"web": {"p", "q", "r"}}, Records: map[string][]string{"r": {"web"}},
				Invalidate: []types.UID{"p", "q"},
			},
		},
		"new reservations are added to the live ones": {
			budgets:    []permit.Budget{budget("web", 1, "q")},
			candidates: []permit.Candidate{under(waiting("p", 0), "web/max"), under(waiting("q", 0), "web/max")},
			want: outcome{
				Granted: []string{"q/a", "p/a"},
				Reserve: map[string][]string{"web": {"p", "q"}}, Records: map[string][]string{"p": {"web"}, "q": {"web"}},
			},
		},
		"a reserved pod that is denied by another object is invalidated": {
			budgets:    []permit.Budget{budget("db", 1, "p"), budget("web", 0)},
			candidates: []permit.Candidate{under(waiting("p", 0), "db/max", "web/max")},
			want:       outcome{Denied: []string{"p/a web/max NoRoom"}, Invalidate: []types.UID{"p"}},
		},
		"reserved pods that are no candidates are invalidated, once and in order": {
			budgets: []permit.Budget{budget("db", 1, "q", "p"), budget("web", 1, "q")},
			want:    outcome{Invalidate: []types.UID{"p", "q"}},
		},
		"an unknown rule has no slot": {
			budgets:    []permit.Budget{budget("web", 1)},
			candidates: []permit.Candidate{under(waiting("p", 0), "other/max"), under(waiting("q", 0), "web/other")},
			want:       outcome{Denied: []string{"p/a other/max NoRoom", "q/a web/other NoRoom"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, outcomeOf(permit.Next(tc.budgets, tc.candidates, nil, epoch))); diff != "" {
				t.Errorf("plan differs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNextWithAFullRecord shows that a full record denies the remaining pods without naming
// a rule: they follow in the next batch.
func TestNextWithAFullRecord(t *testing.T) {
	full := budget("web", 10)
	for i := range appsv1alpha1.MaxStatusReserved - 1 {
		name := fmt.Sprintf("live-%03d", i)
		full.Live[types.UID(name)] = reserved(name)
	}
	candidates := []permit.Candidate{under(waiting("p", 0), "web/max"), under(waiting("q", 1), "web/max"), unavailable(under(waiting("r", 2), "web/max"))}
	for uid := range full.Live {
		candidates = append(candidates, under(waiting(string(uid), 5), "web/max"))
	}
	plan := permit.Next([]permit.Budget{full}, candidates, nil, epoch)
	if got := len(plan.Reserve["web"]); got != appsv1alpha1.MaxStatusReserved {
		t.Errorf("%d pods are reserved, want %d", got, appsv1alpha1.MaxStatusReserved)
	}
	if got, want := len(plan.Grants), appsv1alpha1.MaxStatusReserved+1; got != want {
		t.Errorf("%d permits, want %d: all live ones, p, and r, which needs none", got, want)
	}
	if diff := cmp.Diff([]string{"q/a web/ NoRoom"}, outcomeOf(plan).Denied); diff != "" {
		t.Errorf("denials differ (-want +got):\n%s", diff)
	}
	if len(plan.Invalidate) != 0 {
		t.Errorf("invalidated %v", plan.Invalidate)
	}
}
