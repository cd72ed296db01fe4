package world_test

import (
	"time"

	"github.com/podops-dev/podops/test/world"
)

// at returns an act on the workload of a story, some seconds after its beginning.
func at(seconds int, verb string, n int, text string) world.Act {
	return world.Act{At: time.Duration(seconds) * time.Second, Verb: verb, On: "web", N: n, Text: text}
}

// during returns an act that lasts.
func during(seconds int, verb string, n int, text string, lasts time.Duration) world.Act {
	act := at(seconds, verb, n, text)
	act.For = lasts
	return act
}

// approvals is the rule that requires a label.
func approvals() world.Act { return at(0, "rule", 0, "approved") }

// deployment returns a Deployment with the name web.
func deployment(replicas int) world.Workload {
	return world.Workload{Kind: world.Deployment, Name: "web", Replicas: replicas, Start: 2 * time.Second, Stop: time.Second}
}

func of(kind world.Kind, replicas int) world.Workload {
	w := deployment(replicas)
	w.Kind = kind
	return w
}

func with(w world.Workload, change func(*world.Workload)) world.Workload {
	change(&w)
	return w
}

// stories returns every story. Each ends with a rollout, a scale-in and a scale-out of its workload.
func stories() []story {
	all := append(numbers(), refusals()...)
	all = append(all, counterparts()...)
	all = append(all, strangers()...)
	all = append(all, clients()...)
	return append(all, surges()...)
}

// numbers are stories of scale-ins and rollouts that wait, and are withdrawn.
func numbers() []story {
	recreate := func(w *world.Workload) { w.Recreate = true }
	return []story{
		{
			name: "a scale-in is held and withdrawn", workload: deployment(4),
			acts:   []world.Act{approvals(), at(10, "scale", 2, ""), at(40, "scale", 4, "")},
			length: 2 * time.Minute, left: 4,
		},
		{
			name: "a scale-in is held and withdrawn by an autoscaler", workload: deployment(4),
			acts:   []world.Act{approvals(), during(10, "hpa", 2, "", 20*time.Second), during(40, "hpa", 4, "", 30*time.Second)},
			length: 2 * time.Minute, left: 4,
		},
		{
			name: "a rollout with Recreate is held and withdrawn", workload: with(deployment(2), recreate),
			acts:   []world.Act{approvals(), at(10, "image", 0, "v2"), at(40, "undo", 0, ""), at(70, "approve", 0, "")},
			length: 3 * time.Minute, left: 2,
		},
		{
			name: "a scale to 0 with Recreate is held and withdrawn", workload: with(deployment(3), recreate),
			acts:   []world.Act{approvals(), at(10, "scale", 0, ""), at(40, "scale", 3, ""), at(70, "approve", 0, "")},
			length: 3 * time.Minute, left: 3,
		},
		{
			name: "an apply of a ReplicaSet is held and reverted", workload: of(world.ReplicaSet, 4),
			acts:   []world.Act{approvals(), at(10, "scale", 2, "apply"), at(40, "scale", 4, "apply"), at(60, "approve", 0, "")},
			length: 3 * time.Minute, left: 4,
		},
		{
			name: "a ReplicaSet is scaled out while no manager answers", workload: of(world.ReplicaSet, 4),
			acts: []world.Act{
				approvals(), at(10, "scale", 2, "apply"), at(40, "kill", 0, ""), at(45, "scale", 6, ""), at(60, "start", 0, ""), at(110, "approve", 0, ""),
			},
			length: 4 * time.Minute, left: 6,
		},
		{
			name: "a withdrawal comes while the watch of ReplicaSets is late", workload: of(world.ReplicaSet, 4),
			late:   []world.Act{{At: 0, On: "replicasets", N: 4, For: time.Minute}},
			acts:   []world.Act{approvals(), at(10, "scale", 2, ""), at(11, "scale", 4, ""), at(60, "approve", 0, "")},
			length: 3 * time.Minute, left: 4,
		},
		{
			name: "a withdrawal comes while the watch of Deployments is late", workload: deployment(4),
			late:   []world.Act{{At: 15 * time.Second, On: "deployments", N: 30, For: time.Minute}},
			acts:   []world.Act{approvals(), at(10, "scale", 2, ""), at(20, "scale", 4, ""), at(25, "approve", 0, "")},
			length: 3 * time.Minute, left: 4,
		},
		{
			name: "a withdrawal comes while the watch of StatefulSets is late", workload: of(world.StatefulSet, 3),
			late:   []world.Act{{At: 15 * time.Second, On: "statefulsets", N: 30, For: time.Minute}},
			acts:   []world.Act{approvals(), at(10, "scale", 2, ""), at(20, "scale", 3, ""), at(25, "approve", 0, "")},
			length: 3 * time.Minute, left: 3,
		},
		{
			name: "a scale-out comes while the watch of ReplicaSets is late", workload: deployment(2),
			late:   []world.Act{{At: 0, On: "replicasets", N: 10, For: time.Minute}},
			acts:   []world.Act{approvals(), at(0, "approve-always", 0, ""), at(10, "scale", 4, "")},
			length: 3 * time.Minute, left: 4,
		},
		{
			name: "a user deletes one pod of a scale-out while the watch of ReplicaSets is late", workload: deployment(2),
			late:   []world.Act{{At: 0, On: "replicasets", N: 60, For: 90 * time.Second}},
			acts:   []world.Act{approvals(), at(10, "scale", 4, ""), at(20, "delete-pod", 0, ""), at(50, "approve", 0, "")},
			length: 3 * time.Minute, left: 4,
		},
		{
			name: "a rollout begins while the watch of Deployments is late", workload: deployment(4),
			late:   []world.Act{{At: 0, On: "deployments", N: 10, For: time.Minute}},
			acts:   []world.Act{approvals(), at(10, "image", 0, "v2")},
			length: 2 * time.Minute, left: 5,
		},
		{
			name: "a rollout of a DaemonSet that names another pod at each refusal", workload: with(of(world.DaemonSet, 4), func(w *world.Workload) {
				w.Start = 20 * time.Second
			}), nodes: 4,
			acts:   []world.Act{approvals(), at(10, "image", 0, "v2"), at(60, "approve", 0, "")},
			length: 15 * time.Minute, removed: 4, left: 4,
		},
		{
			name: "a pod of a DaemonSet recovers while the deletes of both its pods wait", workload: of(world.DaemonSet, 2), nodes: 2,
			acts:   []world.Act{approvals(), at(5, "image", 0, "v2"), during(40, "fail", 0, "idle", 40*time.Second), at(150, "approve", 0, "")},
			length: 5 * time.Minute, removed: 2, left: 2,
		},
		{
			name: "a rollout of a DaemonSet whose deletes reach two managers", workload: of(world.DaemonSet, 4), nodes: 4, managers: 2,
			acts:   []world.Act{approvals(), at(10, "image", 0, "v2"), at(60, "approve", 0, "")},
			length: 10 * time.Minute, removed: 4, left: 4,
		},
		{
			name: "another pod of a StatefulSet fails while its rollout is held", workload: of(world.StatefulSet, 3),
			acts: []world.Act{
				approvals(), at(10, "image", 0, "v2"), during(40, "fail", 0, "", 5*time.Minute), at(70, "approve", 0, ""),
			},
			length: 4 * time.Minute, left: 3,
		},
		{
			name: "a StatefulSet of one pod is scaled out while its rollout is held, and rolled out again", workload: of(world.StatefulSet, 1),
			acts: []world.Act{
				approvals(), at(10, "image", 0, "v2"), at(30, "scale", 4, ""), at(50, "image", 0, "v3"), at(90, "unrule", 0, "approved"),
			},
			length: 4 * time.Minute, left: 4, removed: 4,
		},
		{
			name: "a StatefulSet is scaled in while its rollout is held", workload: of(world.StatefulSet, 3),
			acts: []world.Act{
				approvals(), at(10, "image", 0, "v2"), at(30, "approve", 0, "waiting"), at(70, "scale", 2, ""), at(100, "approve", 0, ""),
			},
			length: 5 * time.Minute, removed: 4, left: 2,
		},
		{
			name: "new pods fail while a rollout is held",
			workload: with(deployment(4), func(w *world.Workload) {
				w.MaxUnavailable, w.MaxSurge = "0", "50%"
			}),
			acts: []world.Act{
				approvals(), at(10, "image", 0, "v2"), during(60, "fail", 0, "new", 5*time.Minute), during(60, "fail", 1, "new", 5*time.Minute),
				at(100, "approve", 0, ""),
			},
			length: 4 * time.Minute, left: anyNumber,
		},
		{
			name: "a scale-in is held for a quarter of an hour", long: true, workload: with(deployment(4), func(w *world.Workload) { w.ProgressDeadline = 20 }),
			acts:   []world.Act{approvals(), at(10, "scale", 2, "")},
			length: 15 * time.Minute, left: 4,
		},
		{
			name: "a rollout is held for an hour", long: true, workload: with(deployment(4), func(w *world.Workload) { w.ProgressDeadline = 20 }),
			acts:   []world.Act{approvals(), at(10, "image", 0, "v2")},
			length: time.Hour, left: anyNumber,
		},
		{
			name: "a ReplicaSet is lowered while its pod starts", workload: with(deployment(2), func(w *world.Workload) { w.Start = 6 * time.Second }),
			acts:   []world.Act{approvals(), at(10, "scale-set", 3, ""), at(40, "approve", 0, "others")},
			length: 3 * time.Minute, removed: 1, left: 2,
		},
	}
}

// refusals are stories of requests that others refuse.
func refusals() []story {
	return []story{
		{
			name: "a policy denies a scale", workload: of(world.ReplicaSet, 3),
			acts:   []world.Act{during(0, "deny", 0, "scale", time.Minute), at(5, "scale", 0, "")},
			length: 2 * time.Minute, left: 3,
		},
		{
			name: "a scale conflicts", workload: of(world.ReplicaSet, 3),
			acts:   []world.Act{at(5, "scale", 0, "outdated")},
			length: 2 * time.Minute, left: 3,
		},
		{
			name: "a webhook denies a delete", workload: deployment(3),
			acts:   []world.Act{during(0, "deny", 0, "delete", time.Minute), at(5, "delete-pod", 0, "")},
			length: 2 * time.Minute, left: 3, off: 5 * time.Second,
		},
		{
			name: "a webhook denies an eviction", workload: deployment(3),
			acts:   []world.Act{during(0, "deny", 0, "evict", time.Minute), at(5, "evict", 0, "")},
			length: 2 * time.Minute, left: 3, off: 5 * time.Second,
		},
		{
			name: "a webhook denies the steps of a rollout", workload: deployment(4),
			acts:   []world.Act{approvals(), at(10, "image", 0, "v2"), during(40, "deny", 0, "steps", 11*time.Minute), at(45, "approve", 0, "")},
			length: 13 * time.Minute, left: anyNumber, removed: anyNumber,
		},
		{
			name: "a quota rejects the pods of a rollout", workload: deployment(3),
			acts:   []world.Act{at(0, "rule", 0, "max=1"), during(5, "deny", 0, "quota", time.Minute), at(10, "image", 0, "v2")},
			length: 10 * time.Minute, left: 3, removed: 3,
		},
		{
			name: "a webhook of others is slow during a rollout", workload: deployment(3),
			acts:   []world.Act{at(0, "rule", 0, "max=1"), during(5, "deny", 0, "slow", 5*time.Minute), at(10, "image", 0, "v2")},
			length: 10 * time.Minute, left: 3, removed: 3,
		},
	}
}

// counterparts are stories of holds whose counterpart vanishes.
func counterparts() []story {
	return []story{
		{
			name: "a ReplicaSet is orphaned while its pods wait", workload: of(world.ReplicaSet, 3),
			acts:   []world.Act{approvals(), at(10, "scale", 1, ""), at(40, "orphan", 0, ""), at(60, "approve", 0, "")},
			length: 4 * time.Minute, left: 3,
		},
		{
			name: "a Deployment is orphaned while its rollout waits", workload: deployment(3),
			acts:   []world.Act{approvals(), at(10, "image", 0, "v2"), at(40, "orphan", 0, "all"), at(60, "approve", 0, "")},
			length: 4 * time.Minute, left: anyNumber,
		},
		{
			name: "a StatefulSet is orphaned while its rollout waits", workload: of(world.StatefulSet, 3),
			acts:   []world.Act{approvals(), at(10, "image", 0, "v2"), at(40, "orphan", 0, ""), at(60, "approve", 0, "")},
			length: 4 * time.Minute, left: 3,
		},
		{
			name: "a StatefulSet is orphaned while its pods are evicted, and the watch of pods is late", workload: of(world.StatefulSet, 3),
			late: []world.Act{{At: 0, On: "pods", N: 9, For: time.Minute}},
			acts: []world.Act{
				approvals(), {At: 10 * time.Second, Verb: "drain", Text: "uncordon", For: 30 * time.Second}, at(17, "orphan", 0, ""),
			},
			length: 4 * time.Minute, left: 3,
		},
		{
			name: "a DaemonSet is orphaned while its rollout waits", workload: of(world.DaemonSet, 3),
			acts:   []world.Act{approvals(), at(10, "image", 0, "v2"), at(40, "orphan", 0, ""), at(60, "approve", 0, "")},
			length: 4 * time.Minute, left: anyNumber,
		},
		{
			name: "a Deployment is orphaned during its rollout, and comes back", workload: deployment(3),
			acts:   []world.Act{at(10, "image", 0, "v2"), at(12, "orphan", 0, "all"), at(70, "adopt", 0, "")},
			length: 3 * time.Minute, left: anyNumber, removed: anyNumber,
		},
		{
			name: "a Deployment comes back while it is to have fewer pods", workload: deployment(4),
			acts: []world.Act{
				approvals(), at(10, "scale", 3, ""), at(40, "orphan", 0, "all"), at(43, "adopt", 0, ""),
			},
			length: 3 * time.Minute, late: []world.Act{{At: 42 * time.Second, On: "pods", N: 3, For: 20 * time.Second}}, left: 4,
		},
		{
			name: "a pod is released while it waits", workload: of(world.ReplicaSet, 3),
			acts:   []world.Act{approvals(), at(10, "scale", 1, ""), at(40, "release-pod", 0, "waiting"), at(60, "approve", 0, "")},
			length: 4 * time.Minute, left: anyNumber, removed: anyNumber,
		},
		{
			name: "another pod fails while a pod is drained", workload: with(deployment(3), func(w *world.Workload) {
				w.Balanced, w.Drain = true, 20*time.Second
			}),
			acts: []world.Act{
				at(0, "budget", 2, ""), {At: 10 * time.Second, Verb: "drain", Text: "uncordon", For: 5 * time.Minute},
				during(15, "fail", 0, "idle", 7*time.Minute),
			},
			length: 8 * time.Minute, left: anyNumber, removed: anyNumber,
		},
		{
			name: "a Deployment gets the label while a revision without it is rolled out", workload: with(deployment(5), func(w *world.Workload) {
				w.Labels, w.MaxUnavailable, w.MaxSurge = world.Mixed, "1", "1"
			}),
			acts:   []world.Act{approvals(), at(0, "rule", 0, "share=25%"), at(5, "image", 0, "v4"), at(60, "template", 0, "")},
			length: 4 * time.Minute, left: 7, removed: anyNumber,
		},
		{
			name: "a Deployment is paused at the last step of a rollout that is held", workload: deployment(3),
			acts:   []world.Act{approvals(), at(1, "approve", 2, ""), at(5, "image", 0, "v2"), at(90, "pause", 0, "")},
			length: 12 * time.Minute, left: anyNumber, removed: anyNumber,
		},
		{
			name: "a Deployment is scaled in and out again while new pods do not start", workload: with(deployment(2), func(w *world.Workload) {
				w.MaxUnavailable, w.MaxSurge = "0", "1"
			}),
			acts:   []world.Act{approvals(), at(5, "image", 0, "broken"), at(60, "scale", 1, ""), at(61, "scale", 2, "")},
			length: 2 * time.Minute, left: 4, removed: anyNumber,
		},
		{
			name: "a rollout is undone, scaled in and begun again while it waits", workload: deployment(5),
			acts: []world.Act{
				approvals(), at(0, "budget", 4, ""), at(5, "image", 0, "v3"), at(36, "undo", 0, ""), at(132, "scale", 3, ""), at(133, "image", 0, "v3"),
			},
			length: 3 * time.Minute, left: 7, removed: anyNumber,
		},
		{
			name: "the template of a ReplicaSet loses the label while its pods wait", workload: of(world.ReplicaSet, 3),
			acts:   []world.Act{approvals(), at(10, "scale", 1, ""), at(30, "untemplate", 0, ""), at(50, "approve", 0, "")},
			length: 4 * time.Minute, left: 1, removed: 2,
		},
		{
			name: "the template of a ReplicaSet loses the label, and its scale-in is withdrawn", workload: of(world.ReplicaSet, 3),
			acts:   []world.Act{approvals(), at(10, "scale", 1, ""), at(30, "untemplate", 0, ""), at(50, "scale", 3, ""), at(80, "approve", 0, "")},
			length: 4 * time.Minute, left: 3,
		},
		{
			name: "a node is deleted, and pod GC marks its pods as failed", workload: deployment(3), nodes: 1,
			acts:   []world.Act{approvals(), at(10, "lose-node", 0, ""), at(150, "add-node", 0, "")},
			length: 5 * time.Minute, left: 3, removed: 3, unguarded: []string{"its node is deleted or out of service"},
		},
		{
			name: "an owner of another kind is deleted", workload: of(world.Fleet, 3),
			acts:   []world.Act{approvals(), at(10, "delete", 0, "")},
			length: 2 * time.Minute, removed: 3,
			unguarded: []string{"its owner, Fleet.test.podops.dev, which PodOps does not read, is deleted, or no manager of PodOps held the request"},
		},
		{
			name: "a node is selected again while its pod waits", workload: of(world.DaemonSet, 3),
			acts:   []world.Act{approvals(), at(10, "unlabel-node", 0, ""), at(40, "label-node", 0, ""), at(70, "approve", 0, "")},
			length: 4 * time.Minute, left: 3,
		},
		{
			name: "a Job is resumed while its pods wait", workload: of(world.Job, 2),
			acts:   []world.Act{approvals(), at(10, "suspend", 0, ""), at(40, "unsuspend", 0, ""), at(70, "approve", 0, "")},
			length: 4 * time.Minute, left: 2,
		},
		{
			name: "the pods of a Job end while they wait", workload: of(world.Job, 2), // they end after 20 minutes
			acts:   []world.Act{approvals(), at(10, "suspend", 0, "")},
			length: 25 * time.Minute,
		},
	}
}

// strangers are stories of pods without the label.
func strangers() []story {
	none := func(w *world.Workload) { w.Labels = world.None }
	return []story{
		{
			name: "one labelled pod among pods without the label", workload: with(deployment(3), none),
			acts:   []world.Act{at(5, "label-pod", 0, ""), at(6, "cost", 0, "-1"), at(30, "scale", 2, "")},
			length: 15 * time.Minute, left: 2, removed: 1,
		},
		{
			name: "one pod without the label among labelled pods", workload: deployment(4),
			acts:   []world.Act{at(5, "unlabel-pod", 3, ""), at(6, "cost", 0, "-1"), at(30, "scale", 3, "")},
			length: 15 * time.Minute, left: 3, removed: 1,
		},
		{
			name: "a rollout of labelled pods with one without the label", workload: deployment(4),
			acts:   []world.Act{at(0, "rule", 0, "max=1"), at(5, "unlabel-pod", 0, ""), at(30, "image", 0, "v2")},
			length: 15 * time.Minute, left: 4, removed: 4,
		},
		{
			name: "a rollout of a StatefulSet with one pod without the label", workload: of(world.StatefulSet, 4),
			acts:   []world.Act{at(0, "rule", 0, "max=1"), at(5, "unlabel-pod", 0, ""), at(30, "image", 0, "v2")},
			length: 15 * time.Minute, left: 4, removed: 4,
		},
		{
			name:     "pods without the label while a manager hangs",
			workload: with(deployment(3), func(w *world.Workload) { w.Stranger = true }),
			acts:     []world.Act{during(0, "hang", 0, "", time.Minute), at(10, "evict", 0, ""), at(40, "scale", 1, "")},
			length:   2 * time.Minute, left: 1, removed: 3,
		},
	}
}

// slowly has the load balancer drain the pods of a workload for a minute.
func slowly(w *world.Workload) { w.Balanced, w.Drain = true, time.Minute }

// clients are stories of programs that remove many pods.
func clients() []story {
	return []story{
		{
			name: "a drain of a StatefulSet", workload: of(world.StatefulSet, 3),
			acts: []world.Act{
				at(0, "rule", 0, "share=25%"), {At: 10 * time.Second, Verb: "drain", Text: "uncordon", For: 45 * time.Second},
			},
			length: 3 * time.Minute, left: 3, removed: 1, granted: map[string]int{"drain": 1},
		},
		{
			name: "a descheduler that may evict one pod", workload: deployment(6),
			acts:   []world.Act{during(10, "evict-some", 1, "", time.Minute)},
			length: 3 * time.Minute, left: 6, removed: 1, granted: map[string]int{"evict-some": 1},
		},
		{
			name: "pods are approved that a descheduler which may evict one has requested for long", workload: deployment(6),
			acts:   []world.Act{approvals(), during(10, "evict-some", 1, "", 3*time.Minute), at(97, "approve", 0, "")},
			length: 5 * time.Minute, left: 6, removed: 1, granted: map[string]int{"evict-some": 1}, off: time.Second,
		},
		{
			name: "a descheduler that may evict two pods under a rule", workload: deployment(12),
			acts:   []world.Act{at(0, "rule", 0, "share=25%"), during(10, "evict-some", 2, "", time.Minute)},
			length: 3 * time.Minute, left: 12, removed: 2, granted: map[string]int{"evict-some": 2},
		},
		{
			name: "a drain that gave up", workload: deployment(2), nodes: 2,
			acts: []world.Act{
				approvals(), {At: 10 * time.Second, Verb: "drain", Text: "uncordon", For: 5 * time.Second}, at(81, "approve", 0, ""),
			},
			length: 4 * time.Minute, left: 2,
		},
		{
			name: "a drain of an application that fails and recovers", workload: deployment(3), nodes: 1,
			acts: []world.Act{
				at(0, "budget", 2, ""), during(10, "fail", 0, "", 15*time.Second), during(10, "fail", 1, "", 15*time.Second),
				{At: 13 * time.Second, Verb: "drain", Text: "uncordon", For: 4 * time.Minute},
			},
			length: 6 * time.Minute, left: anyNumber, removed: anyNumber, off: time.Second,
		},
		{
			name: "a client goes away while the pod that it evicts is drained", workload: with(deployment(3), slowly), nodes: 1,
			acts:   []world.Act{{At: 10 * time.Second, Verb: "drain", Text: "uncordon", For: 4 * time.Second}},
			length: 4 * time.Minute, left: 3, off: 5 * time.Second,
		},
		{
			name: "a client does not repeat the eviction of a pod that is drained", workload: with(deployment(3), slowly),
			acts:   []world.Act{at(10, "evict", 0, "")},
			length: 4 * time.Minute, left: 3, off: 30 * time.Second,
		},
		{
			name: "pods are approved whose client does not repeat its request", workload: deployment(3),
			acts:   []world.Act{approvals(), at(10, "evict", 0, ""), at(15, "approve", 0, "")},
			length: 4 * time.Minute, left: 3, off: time.Second,
		},
		{
			name: "an owner that names another pod at each refusal", workload: of(world.Fleet, 4),
			acts:   []world.Act{approvals(), at(10, "scale", 3, ""), at(60, "approve", 0, "")},
			length: 4 * time.Minute, left: 3, removed: 1,
		},
		{
			name: "a Rollout under a rule of availability", workload: of(world.Rollout, 8),
			acts:   []world.Act{at(0, "rule", 0, "max=1"), at(10, "image", 0, "v2")},
			length: 10 * time.Minute, left: 8, removed: 8,
		},
		{
			name: "a group of a leader and its workers", workload: of(world.Group, 4),
			acts:   []world.Act{at(0, "rule", 0, "share=25%"), at(10, "image", 0, "v2")},
			length: 15 * time.Minute, left: 12, removed: anyNumber,
		},
		{
			name: "a descheduler that may evict pods of groups of a leader and its workers", long: true, workload: of(world.Group, 5),
			acts:   []world.Act{at(0, "rule", 0, "max=3"), during(10, "evict-some", 9, "", 2*time.Minute)},
			length: 5 * time.Minute, left: 15, removed: anyNumber,
		},
		{
			name: "three deletes under a rule that permits one pod", workload: deployment(4),
			acts: []world.Act{
				at(0, "rule", 0, "max=1"), at(10, "delete-pod", 0, ""), at(10, "delete-pod", 1, ""), at(10, "delete-pod", 2, ""),
			},
			length: 2 * time.Minute, left: 4, removed: 1,
		},
	}
}

// surges are stories of Deployments that start another pod first.
func surges() []story {
	slow := with(deployment(1), func(w *world.Workload) { w.Start = 20 * time.Second })
	spare, drain := at(0, "rule", 0, "max=0,surge=1"), world.Act{At: 10 * time.Second, Verb: "drain", Text: "uncordon", For: 2 * time.Minute}
	return []story{
		{
			name: "the only pod is drained, and its Deployment starts another pod first", workload: slow,
			acts: []world.Act{spare, drain}, length: 5 * time.Minute, left: 1, removed: 1, granted: map[string]int{"drain": 1},
		},
		{
			name: "the only pod is deleted once, and its Deployment starts another pod in vain", workload: slow,
			acts: []world.Act{spare, at(10, "delete-pod", 0, "")}, length: 5 * time.Minute, left: 1, removed: 1,
		},
		{
			name: "three pods are drained from one node, and their Deployment starts others first", workload: deployment(3), nodes: 1,
			acts: []world.Act{spare, {At: 10 * time.Second, Verb: "add-node"}, drain}, length: 6 * time.Minute, left: 3, removed: anyNumber,
		},
		{
			name: "a manager is killed while a Deployment starts another pod first", workload: slow,
			acts:   []world.Act{spare, drain, at(14, "kill", 0, ""), at(20, "start", 0, "")},
			length: 6 * time.Minute, left: 1, removed: anyNumber,
		},
		{
			name: "a rollout begins while a Deployment starts another pod first", workload: slow,
			acts: []world.Act{spare, drain, at(14, "image", 0, "v2")}, length: 6 * time.Minute, left: 1, removed: anyNumber,
		},
		{
			name: "a Deployment is scaled to 0 and back while it starts another pod first", workload: slow,
			acts:   []world.Act{spare, drain, at(14, "scale", 0, ""), at(60, "scale", 1, "")},
			length: 6 * time.Minute, left: 1, removed: anyNumber,
		},
		{
			name: "a rule surges no more while a Deployment starts another pod first", workload: slow,
			acts: []world.Act{spare, drain, at(14, "rule", 0, "max=0")}, length: 6 * time.Minute, left: 1, removed: anyNumber,
		},
		{
			name: "an approval is required while a Deployment starts another pod first", workload: slow,
			acts: []world.Act{spare, drain, at(14, "rule", 0, "approved")}, length: 6 * time.Minute, left: 2, // none may go
		},
		{
			name: "a Deployment is orphaned while it starts another pod first", workload: slow,
			acts: []world.Act{spare, drain, at(14, "orphan", 0, "")}, length: 6 * time.Minute, left: 1, removed: anyNumber,
		},
	}
}
