package world

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Generate returns the schedule of a seed.
func Generate(seed uint64) Schedule {
	g := generator{rand.New(rand.NewPCG(seed, 1))}
	s := Schedule{Seed: seed, Nodes: 2 + g.IntN(3), Managers: 1 + g.IntN(2)}
	s.BothLead = s.Managers == 2 && g.chance(0.3)
	for i := range 1 + g.IntN(3) {
		s.Workloads = append(s.Workloads, g.workload(i, s.Nodes))
	}
	at := time.Duration(0)
	for _, w := range s.Workloads {
		s.Acts = append(s.Acts, g.rules(w)...)
	}
	for range 3 + g.IntN(10) {
		at += pick(g, time.Second, 2*time.Second, 5*time.Second, 12*time.Second, 30*time.Second, 90*time.Second, 4*time.Minute)
		s.Acts = append(s.Acts, g.act(s, at)...)
	}
	if g.chance(0.25) {
		resource := pick(g, "replicasets", "deployments", "pods", "statefulsets", "podtransitionrules")
		s.Late = append(s.Late, Act{At: g.upTo(at), On: resource, N: 1 + g.IntN(15), For: g.upTo(2 * time.Minute)})
	}
	// Some holds last so long that a bound of Kubernetes passes: progressDeadlineSeconds.
	s.Length = at + pick(g, 20*time.Second, time.Minute, 3*time.Minute, 16*time.Minute)
	return s
}

// generator draws what happens.
type generator struct{ *rand.Rand }

func (g generator) chance(p float64) bool { return g.Float64() < p }

func (g generator) upTo(d time.Duration) time.Duration {
	return (time.Duration(g.Int64N(int64(d) + 1))).Truncate(time.Second)
}

func pick[T any](g generator, choices ...T) T { return choices[g.IntN(len(choices))] }

// workload draws a workload. Deployments come more often than others.
func (g generator) workload(i, nodes int) Workload {
	w := Workload{
		Kind: pick(g, Deployment, Deployment, Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, Fleet, Rollout, Group),
		Name: fmt.Sprintf("web%d", i), Replicas: 1 + g.IntN(5),
	}
	switch {
	case g.chance(0.12):
		w.Stranger = true
	case g.chance(0.08) && (w.Kind == Deployment || w.Kind == ReplicaSet):
		w.Labels = Mixed
	case g.chance(0.3):
		w.Balanced, w.Drain = true, pick(g, 0, 3*time.Second, 20*time.Second)
	}
	switch w.Kind {
	case Deployment:
		w.Recreate = g.chance(0.12)
		if !w.Recreate && g.chance(0.5) {
			w.MaxUnavailable, w.MaxSurge = pick(g, "0", "1", "50%"), pick(g, "1", "25%")
		}
		if g.chance(0.5) {
			w.ProgressDeadline = 20 + g.IntN(60)
		}
	case DaemonSet:
		w.Replicas = nodes
	case Group:
		w.Replicas = 1 + g.IntN(3)
	default: // as drawn
	}
	return w
}

// wholeGroup is the rule that lets a leader go with its workers: under a lower number a Group can never roll out.
const wholeGroup = "max=3"

// rules draws the rules and budgets of a workload, from the beginning on.
func (g generator) rules(w Workload) []Act {
	var acts []Act
	if w.Stranger {
		return nil
	}
	if g.chance(0.6) {
		acts = append(acts, Act{Verb: "rule", On: w.Name, Text: approved})
	}
	if g.chance(0.5) && !w.Recreate {
		kind := pick(g, "max=1", "max=2", "share=25%", "share=50%")
		if w.Kind == Group {
			kind = wholeGroup
		}
		acts = append(acts, Act{Verb: "rule", On: w.Name, Text: kind})
	}
	if g.chance(0.2) && !w.Recreate {
		acts = append(acts, Act{Verb: "budget", On: w.Name, N: max(1, w.Replicas-1)})
	}
	return acts
}

// draws are acts, with how many of 90 acts they are.
func (g generator) draws(s Schedule, on Workload, a Act) []draw {
	at := a.At
	return []draw{
		{18, func() []Act { return g.number(a) }},
		{16, func() []Act { return g.revision(a) }},
		{12, func() []Act {
			return []Act{{At: at, Verb: "approve", On: on.Name, N: g.IntN(3), Text: pick(g, "", "", "waiting", "others")}}
		}},
		{4, func() []Act { return []Act{{At: at, Verb: pick(g, "withdraw", "approve-always"), On: on.Name}} }},
		{6, func() []Act { return g.pods(a) }},
		{8, func() []Act { return g.remove(s, a) }},
		{6, func() []Act { return g.level(a) }},
		{6, func() []Act { return g.pair(a, "pause", "resume", 2*time.Minute) }},
		{4, func() []Act { return g.pair(a, "suspend", "unsuspend", time.Minute) }},
		{6, func() []Act { return g.rule(on, at) }},
		{4, func() []Act { return g.leave(on, at) }},
		{4, func() []Act { return g.pair(a, "untemplate", "template", 2*time.Minute) }},
		{6, func() []Act {
			return []Act{{At: at, Verb: "fail", On: on.Name, N: g.IntN(4), For: 5*time.Second + g.upTo(time.Minute)}}
		}},
	}
}

// draw is a kind of act and its weight.
type draw struct {
	weight int
	acts   func() []Act
}

// act draws what an actor does at a time: one act, or a few that belong together.
func (g generator) act(s Schedule, at time.Duration) []Act {
	on := pick(g, s.Workloads...)
	a := Act{At: at, On: on.Name}
	if g.chance(0.1) {
		return g.trouble(s, a)
	}
	draws, total := g.draws(s, on, a), 0
	for _, d := range draws {
		total += d.weight
	}
	n := g.IntN(total)
	for _, d := range draws {
		if n < d.weight {
			return d.acts()
		}
		n -= d.weight
	}
	return nil
}

// number draws a scale. The way back finds most: a number that is taken back before the pods went.
func (g generator) number(a Act) []Act {
	a.Verb, a.N, a.Text = "scale", 1+g.IntN(6), pick(g, "", "", "apply", serverSide)
	acts := []Act{a}
	if g.chance(0.5) {
		acts = append(acts, Act{At: a.At + g.upTo(40*time.Second), Verb: "scale-back", On: a.On, Text: a.Text})
	}
	return acts
}

// revision draws an image.
func (g generator) revision(a Act) []Act {
	a.Verb, a.Text = "image", pick(g, "v2", "v3", "v4", "broken")
	acts := []Act{a}
	if g.chance(0.4) || a.Text == "broken" {
		acts = append(acts, Act{At: a.At + g.upTo(90*time.Second), Verb: "undo", On: a.On})
	}
	return acts
}

// level draws a client that compares numbers.
func (g generator) level(a Act) []Act {
	a.Verb, a.N, a.For, a.Text = pick(g, "hpa", "gitops"), 1+g.IntN(5), g.upTo(3*time.Minute), pick(g, "", serverSide)
	return []Act{a}
}

// pair draws an act and, within a time, its opposite.
func (g generator) pair(a Act, verb, opposite string, within time.Duration) []Act {
	return []Act{{At: a.At, Verb: verb, On: a.On}, {At: a.At + g.upTo(within), Verb: opposite, On: a.On}}
}

// pods draws an act on one pod.
func (g generator) pods(a Act) []Act {
	a.N, a.Text = g.IntN(4), pick(g, "", "waiting", "idle")
	a.Verb = pick(g, "delete-pod", "evict", "unlabel-pod", "release-pod", "cost")
	if a.Verb == "cost" {
		a.Text = pick(g, "-100", "7", "1000")
	}
	if a.Verb == "unlabel-pod" {
		again := a
		again.At, again.Verb, again.Text = a.At+g.upTo(time.Minute), "label-pod", ""
		return []Act{a, again}
	}
	return []Act{a}
}

// remove draws a client that removes many pods.
func (g generator) remove(s Schedule, a Act) []Act {
	switch g.IntN(4) {
	case 0:
		return []Act{{At: a.At, Verb: "drain", N: g.IntN(s.Nodes), Text: pick(g, "", "uncordon"), For: 10*time.Second + g.upTo(3*time.Minute)}}
	case 1:
		a.Verb, a.N, a.For = "evict-some", 1+g.IntN(2), 20*time.Second+g.upTo(2*time.Minute)
	case 2:
		a.Verb, a.N, a.For = "evict-by-name", g.IntN(3), 20*time.Second+g.upTo(2*time.Minute)
	default:
		a.Verb, a.N = pick(g, "evict", "delete-pod"), g.IntN(3)
	}
	return []Act{a}
}

// rule draws an edit of the rules of a workload.
func (g generator) rule(on Workload, at time.Duration) []Act {
	if on.Stranger {
		return nil
	}
	kind := pick(g, approved, "max=1", "max=3", "share=50%")
	switch {
	case on.Recreate:
		kind = approved
	case on.Kind == Group && kind != approved:
		kind = wholeGroup
	}
	switch g.IntN(4) {
	case 0:
		return []Act{{At: at, Verb: "unrule", On: on.Name, Text: kind}}
	case 1:
		if on.Recreate {
			return nil // it could never roll out
		}
		return []Act{{At: at, Verb: "budget", On: on.Name, N: 1 + g.IntN(3)}}
	case 2:
		return []Act{{At: at, Verb: "unbudget", On: on.Name}}
	default:
		return []Act{{At: at, Verb: "rule", On: on.Name, Text: kind}}
	}
}

// leave draws the deletion of a workload.
func (g generator) leave(on Workload, at time.Duration) []Act {
	a := Act{At: at, Verb: pick(g, "orphan", "orphan", "delete"), On: on.Name, Text: pick(g, "", "all", "foreground")}
	acts := []Act{a}
	if a.Verb == "orphan" && g.chance(0.5) {
		acts = append(acts, Act{At: at + g.upTo(time.Minute), Verb: "adopt", On: on.Name})
	}
	return acts
}

// trouble draws what goes wrong without a person who wants it.
func (g generator) trouble(s Schedule, a Act) []Act {
	switch g.IntN(4) {
	case 0:
		n := g.IntN(s.Managers)
		return []Act{{At: a.At, Verb: pick(g, "kill", "stop"), N: n}, {At: a.At + g.upTo(time.Minute), Verb: "start", N: n}}
	case 1:
		return []Act{{At: a.At, Verb: "hang", N: g.IntN(s.Managers), For: g.upTo(20 * time.Second)}}
	case 2:
		return []Act{{At: a.At, Verb: "deny", Text: pick(g, "scale", "delete", "evict", "quota", "slow"), For: g.upTo(time.Minute)}}
	default:
		n := g.IntN(s.Nodes)
		return []Act{{At: a.At, Verb: "lose-node", N: n}, {At: a.At + g.upTo(2*time.Minute), Verb: "add-node", N: n}}
	}
}
