package policies_test

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/rule"
)

func with(change func(*rule.PodFact), of *rule.PodFact) *rule.PodFact {
	change(of)
	return of
}

func annotated(key, value string) *rule.PodFact {
	return with(func(p *rule.PodFact) { p.Annotations = labels(key, value) }, pod("web-0", nil))
}

func on(node string, of *rule.PodFact) *rule.PodFact {
	return with(func(p *rule.PodFact) { p.Node = node }, of)
}

// pooled returns an environment in which the node n1 belongs to a pool.
func pooled(pool string, now time.Time) rule.Environment {
	return rule.Environment{Now: now, Nodes: map[string]*rule.Node{"n1": {Labels: labels("example.com/pool", pool)}}}
}

// versioned returns a pod whose image has a version as its tag.
func versioned(name string, state rule.RevisionState, version string) *rule.PodFact {
	return with(func(p *rule.PodFact) {
		p.Revision.State = state
		p.Details.Containers = []corev1.Container{{Name: "app", Image: "ghcr.io/acme/web:" + version}}
	}, pod(name, nil))
}

// detailCases are the cases of the policies that read details of pods.
func detailCases() map[string]workedCase {
	passed := rule.Verdict{Outcome: rule.Passed}
	detailed := func(details rule.PodDetails, name string) *rule.PodFact {
		return with(func(p *rule.PodFact) { p.Details = details }, pod(name, nil))
	}
	runs := func(image, memory string) *rule.PodFact {
		container := corev1.Container{Name: "postgres", Image: image}
		container.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
		return detailed(rule.PodDetails{Containers: []corev1.Container{container}}, "web-0")
	}
	synced := func(ago time.Duration) *rule.PodFact {
		return detailed(rule.PodDetails{Conditions: []corev1.PodCondition{{
			Type: "example.com/synced", Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(friday().Add(-ago)),
		}}}, "web-1")
	}
	among := func(pods ...*rule.PodFact) rule.Environment { return rule.Environment{Now: friday(), Pods: pods} }
	return map[string]workedCase{
		"all data":        {"condition_settled", pod("web-0", nil), among(synced(10 * time.Minute)), passed},
		"data of late":    {"condition_settled", pod("web-0", nil), among(synced(9 * time.Minute)), withheld(rule.CodeDenied, "pod web-1 must have example.com/synced=True for 10 minutes", time.Minute)},
		"enough memory":   {"memory_limit", runs("postgres:18", "512Mi"), among(), passed},
		"little memory":   {"memory_limit", runs("postgres:18", "512M"), among(), withheld(rule.CodeNotAllowed, "the memory limit of container postgres must be at least 512Mi, not 512M", 0)},
		"few restarts":    {"restart_limit", pod("web-0", nil), among(detailed(rule.PodDetails{Restarts: 2}, "web-1")), passed},
		"many restarts":   {"restart_limit", pod("web-0", nil), among(detailed(rule.PodDetails{Restarts: 3}, "web-1")), withheld(rule.CodeNotAllowed, "pods with more than 2 restarts: web-1", 0)},
		"a trusted image": {"trusted_images", runs("envoy:v1", "1Gi"), among(), passed},
		"another image":   {"trusted_images", runs("ghcr.io/acme-2/web", "1Gi"), among(), withheld(rule.CodeNotAllowed, "images that are not trusted: ghcr.io/acme-2/web (postgres)", 0)},
	}
}

func withheld(code rule.Code, message string, retry time.Duration) rule.Verdict {
	return rule.Verdict{Code: code, Message: message, RetryAfter: retry}
}

// libraryCases are the cases of the policies that look at one fact, or at one fact of each pod.
func libraryCases() map[string]workedCase {
	passed := rule.Verdict{Outcome: rule.Passed}
	notAllowed := func(message string) rule.Verdict { return withheld(rule.CodeNotAllowed, message, 0) }
	denied := func(message string, retry time.Duration) rule.Verdict {
		return withheld(rule.CodeDenied, message, retry)
	}
	calm := rule.Environment{Now: friday()}
	among := func(pods ...*rule.PodFact) rule.Environment {
		return rule.Environment{Now: friday(), Pods: pods, Counts: rule.Counts{Selected: len(pods), Desired: len(pods)}}
	}
	team := func(name string) rule.Environment {
		return rule.Environment{Now: friday(), Namespace: rule.Namespace{Name: "shop", Labels: labels("team", name)}}
	}
	wanting := func(workload rule.Workload) rule.Environment {
		return rule.Environment{Now: friday(), Workloads: map[types.UID]rule.Workload{"u1": workload}}
	}
	monday := rule.Environment{Now: friday().AddDate(0, 0, 3)}
	const approval, ticket, component = "podops.dev/approved-until", "podops.dev/ticket", "app.kubernetes.io/component"
	return map[string]workedCase{
		"a valid approval":       {"approval_expires", annotated(approval, "2026-11-20T12:00:00Z"), calm, passed},
		"an approval that ended": {"approval_expires", annotated(approval, "2026-11-20T11:00:00Z"), calm, notAllowed("the approval ended at 2026-11-20T11:00:00Z")},

		"no backup": {"backup_running", pod("db-0", nil), among(pod("db-0", nil), pod("db-1", nil)), passed},
		"a backup": {
			"backup_running", pod("db-0", nil), among(pod("db-0", nil), pod("copy", labels(component, "backup"))),
			notAllowed("a backup runs: copy"),
		},

		"on a Monday": {"business_hours", pod("web-0", nil), monday, passed},
		"on a Friday": {
			"business_hours", pod("web-0", nil), calm,
			notAllowed("pods go at 09:00-16:00 on Monday, Tuesday, Wednesday, Thursday (Europe/Berlin)"),
		},

		"a Deployment that is not paused": {"not_while_paused", pod("web-0", nil), wanting(rule.Workload{Desired: 3}), passed},
		"a paused Deployment":             {"not_while_paused", pod("web-0", nil), wanting(rule.Workload{Paused: true}), notAllowed("Deployment web is paused")},

		"another node": {
			"few_per_node", on("a", pod("web-0", nil)),
			among(on("a", pod("web-0", nil)), on("b", gone("web-1", nil))), passed,
		},
		"the same node": {
			"few_per_node", on("a", pod("web-0", nil)),
			among(on("a", pod("web-0", nil)), on("a", gone("web-1", nil))), notAllowed("node a waits for: web-1 holds a permit"),
		},

		"four of five": {
			"keep_quorum", pod("e-0", nil),
			among(pod("e-0", nil), pod("e-1", nil), pod("e-2", nil), pod("e-3", nil), pod("e-4", nil)), passed,
		},
		"three of five": {
			"keep_quorum", pod("e-0", nil),
			among(pod("e-0", nil), pod("e-1", nil), pod("e-2", nil), pod("e-3", nil), gone("e-4", nil)),
			notAllowed("3 of 5 pods would be available: no majority with 1 to spare"),
		},

		"an old pod":       {"minimum_age", pod("web-0", nil), calm, passed},
		"a young pod":      {"minimum_age", since(10*time.Minute, pod("web-0", nil)), calm, denied("pod web-0 must be 30 minutes old", 20*time.Minute)},
		"a newer version":  {"no_downgrade", versioned("web-0", rule.RevisionOutdated, "1.9.0"), among(versioned("web-1", rule.RevisionNewest, "1.10.0")), passed},
		"an older version": {"no_downgrade", versioned("web-0", rule.RevisionOutdated, "1.10.0"), among(versioned("web-1", rule.RevisionNewest, "1.9.0")), notAllowed("version 1.10.0 is newer than that of: web-1")},

		"a pool with a window at night": {
			"node_pool_window", on("n1", pod("web-0", nil)), pooled("gpu", friday()), notAllowed("pods of the pool gpu go at 22:00-04:00 (Europe/Berlin)"),
		},
		"a pool with a window now": {"node_pool_window", on("n1", pod("web-0", nil)), pooled("web", friday().Add(time.Hour)), passed},

		"an owner of the list":      {"owner_pattern", with(func(p *rule.PodFact) { p.Owner.Name = "web-front" }, pod("web-0", nil)), calm, passed},
		"an owner outside the list": {"owner_pattern", pod("web-0", nil), calm, notAllowed("the owner Deployment/web matches none of: Deployment/web-*, {StatefulSet,DaemonSet}/cache")},

		"a pod that has proved itself": {"soak_time", pod("web-0", nil), among(pod("web-0", nil), pod("web-1", nil)), passed},
		"a pod that has not": {
			"soak_time", pod("web-0", nil), among(pod("web-0", nil), since(10*time.Minute, pod("web-1", nil))),
			denied("pod web-1 must be available for 15 minutes", 5*time.Minute),
		},

		"a requester who is not known": {"requested_by", pod("web-0", nil), calm, notAllowed("the requester is not known")},

		"a team of the list": {"team_list", pod("web-0", nil), team("search"), passed},
		"another team":       {"team_list", pod("web-0", nil), team("billing"), notAllowed("team billing is not in the list: checkout, search")},

		"a ticket":       {"ticket_required", annotated(ticket, "OPS-12"), calm, passed},
		"another ticket": {"ticket_required", annotated(ticket, "OPS-"), calm, notAllowed("the ticket 'OPS-' does not match OPS-[0-9]+|CHG[0-9]{7}")},
	}
}
