package matrix_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/golden"
	"github.com/podops-dev/podops/test/stage/stagetest"
)

// cluster is what the rows share.
type cluster = stagetest.Cluster

const (
	// bound is how long a row may take from its request to its end. On an idle machine each takes a few seconds.
	bound = 2 * time.Minute

	// calm is for how long the end must last.
	calm = 3 * time.Second

	// atOnce is how many rows run at a time.
	atOnce = 8
)

// row is one way to remove pods.
type row struct {
	actor, request string
	rule           func() appsv1alpha1.TransitionRule
	setup          setup
	act            act

	// way is how the request ends that act has sent, and after what follows. Both are empty for a row of ways to
	// remove pods.
	way   string
	after act

	// restart is not nil for a row during which the manager is killed and started, between act and after.
	restart *place

	// pods are how many pods there are at the end, and least how many are available at any time.
	pods, least int

	// keeps is true if no pod may be removed, and replaces if all pods are others of one revision at the end.
	keeps, replaces bool

	// passes is true if pods are removed without a lifecycle.
	passes bool

	// either are senders of which any may carry out requests: the first that does.
	either []string

	// restore ends what the row has changed beside the pods, before the workload continues.
	restore act

	// alone is true for a row that takes a node away from all others.
	alone bool
}

const (
	aRollout        = "rolling update"
	aCheckedRollout = "rolling update, a PostCheck rule holds new pods"
)

// rows returns the matrix.
func rows() []row {
	orphan, background, foreground := "--cascade=orphan", "--cascade=background", "--cascade=foreground"
	return []row{
		{actor: "Deployment", request: aRollout, rule: stagetest.OneAtATime, setup: deployment(3), act: restart("deployment"), pods: 3, least: 2, replaces: true},
		{actor: "Deployment", request: "scale-in", rule: stagetest.OneAtATime, setup: deployment(4), act: scale("deployment", 2), pods: 2, least: 1},
		{actor: "Deployment", request: "scale-in, then scale-out while pods wait", rule: stagetest.Approved, setup: deployment(4),
			act: then(scale("deployment", 2), waiting, scale("deployment", 4)), pods: 4, least: 4, keeps: true},
		{actor: "Deployment", request: "rolling update, paused while pods wait, then resumed", rule: stagetest.Approved, setup: deployment(3),
			act:  then(restart("deployment"), waiting, kubectl("rollout", "pause", "deployment/web"), approve, kubectl("rollout", "resume", "deployment/web")),
			pods: 3, least: 2, replaces: true},
		{actor: "Deployment", request: "rolling update, undone while pods wait", rule: stagetest.Approved, setup: deployment(3),
			act: then(restart("deployment"), waiting, kubectl("rollout", "undo", "deployment/web"), approveNew), pods: 3, least: 3, keeps: true},
		{actor: "ReplicaSet", request: "scale-in", rule: stagetest.OneAtATime, setup: replicaSet(4), act: scale("replicaset", 2), pods: 2, least: 1},
		{actor: "StatefulSet", request: aRollout, rule: stagetest.OneAtATime, setup: statefulSet(3), act: restart("statefulset"), pods: 3, least: 2, replaces: true,
			either: []string{"PodOps", "statefulset-controller"}},
		{actor: "StatefulSet", request: "rolling update, with a pod without the label", rule: stagetest.OneAtATime, setup: statefulSet(3),
			act: then(onFirst("label", "pod", "POD", "kusionstack.io/control-"), restart("statefulset")), pods: 3, least: 2, replaces: true,
			either: []string{"PodOps", "statefulset-controller"}},
		{actor: "StatefulSet", request: "scale-in", rule: stagetest.OneAtATime, setup: statefulSet(3), act: scale("statefulset", 1), pods: 1,
			either: []string{"PodOps", "statefulset-controller"}},
		{actor: "DaemonSet", request: aRollout, rule: stagetest.OneAtATime, setup: daemonSet, act: restart("daemonset"), pods: nodes, least: nodes - 1, replaces: true},
		{actor: "Deployment", request: aCheckedRollout, rule: stagetest.OneAtATime, setup: deployment(3),
			act: then(checksNew, restart("deployment"), approveHeld(3)), restore: checksNothing, pods: 3, least: 2, replaces: true},
		{actor: "StatefulSet", request: aCheckedRollout, rule: stagetest.OneAtATime, setup: statefulSet(2),
			act: then(checksNew, restart("statefulset"), approveHeld(2)), restore: checksNothing, pods: 2, least: 1, replaces: true,
			either: []string{"PodOps", "statefulset-controller"}},
		{actor: "DaemonSet", request: aCheckedRollout, rule: stagetest.OneAtATime, setup: daemonSet,
			act: then(checksNew, restart("daemonset"), approveHeld(nodes)), restore: checksNothing, pods: nodes, least: nodes - 1, replaces: true},
		{actor: "kubectl delete pod", request: "of a Deployment, a PostCheck rule holds new pods", rule: stagetest.OneAtATime, setup: deployment(2),
			act: then(checksNew, onFirst("delete", "pod", "POD", "--wait=false"), approveHeld(1)), restore: checksNothing, pods: 2, least: 1},
		{actor: "Job", request: "suspended", rule: stagetest.OneAtATime, setup: job(nil, 1),
			act: kubectl("patch", "job/web", "--type=merge", `--patch={"spec":{"suspend":true}}`)},
		{actor: "kubectl delete pod", request: "of a Deployment", rule: stagetest.OneAtATime, setup: deployment(2), act: onFirst("delete", "pod", "POD", "--wait=false"), pods: 2, least: 1},
		{actor: "kubectl delete pod", request: "of a StatefulSet", rule: stagetest.OneAtATime, setup: statefulSet(2), act: onFirst("delete", "pod", "POD", "--wait=false"), pods: 2, least: 1},
		{actor: "kubectl delete pod", request: "completed", rule: stagetest.Approved, setup: job(map[string]string{"test.podops.dev/complete-after": "1ms"}, 0),
			act: onFirst("delete", "pod", "POD", "--wait=false"), passes: true},
		{actor: "kubectl delete pod", request: "`--force --grace-period=0`", rule: stagetest.Approved, setup: deployment(2),
			act: onFirst("delete", "pod", "POD", "--force", "--grace-period=0"), pods: 2, least: 1, passes: true},
		{actor: "kubectl drain", request: "", rule: stagetest.OneAtATime, setup: deployment(4), act: drain(), pods: 4, least: 3},
		{actor: "kubectl drain", request: "`--dry-run=server`", rule: stagetest.OneAtATime, setup: deployment(4), act: refused(drain("--dry-run=server", "--timeout=2s")), pods: 4, least: 4, keeps: true},
		{actor: "kubectl drain", request: "`--disable-eviction`", rule: stagetest.OneAtATime, setup: deployment(2), act: drain("--disable-eviction", "--timeout=20s"), pods: 2, least: 1},
		{actor: "eviction", request: "with one PodDisruptionBudget", rule: stagetest.OneAtATime, setup: withBudgets(deployment(3), 1), act: evict(""), pods: 3, least: 2},
		{actor: "eviction", request: "with two PodDisruptionBudgets", rule: stagetest.OneAtATime, setup: withBudgets(deployment(3), 2), act: refused(evict("")), pods: 3, least: 3, keeps: true},
		{actor: "eviction", request: "with the UID of an earlier pod", rule: stagetest.OneAtATime, setup: deployment(2), act: refused(evict(types.UID("2f3c1f6e-0000-4000-8000-000000000000"))), pods: 2, least: 2, keeps: true},
		{actor: "DeleteCollection", request: "of bare pods", rule: stagetest.OneAtATime, setup: pods(2), act: deleteAll},
		{actor: "deletion of the owner", request: "in the background", rule: stagetest.Approved, setup: statefulSet(2), act: kubectl("delete", "statefulset/web", background), passes: true},
		{actor: "deletion of the owner", request: "in the foreground", rule: stagetest.Approved, setup: statefulSet(2), act: kubectl("delete", "statefulset/web", foreground), passes: true},
		{actor: "deletion of the owner", request: "with orphans", rule: stagetest.Approved, setup: statefulSet(2), act: kubectl("delete", "statefulset/web", orphan), pods: 2, least: 2, keeps: true},
		{actor: "deletion of the namespace", request: "", rule: stagetest.Approved, setup: statefulSet(2), act: deleteNamespace, passes: true},
		{actor: "kube-scheduler", request: "preemption", rule: stagetest.Approved, setup: portOwner, act: preempt, pods: 1, passes: true},
		{actor: "NoExecute taint", request: "", rule: stagetest.Approved, setup: statefulSet(1), act: taint, pods: 1, passes: true, alone: true},
		{actor: "loss of a node", request: "its Node is deleted", rule: stagetest.Approved, setup: deployment(2), act: onFirst("delete", "node", "NODE"), pods: 2, passes: true, alone: true},
	}
}

// nodes is the number of nodes of the cluster.
const nodes = 4

// drain drains the node of the first pod, and uncordons it.
func drain(flags ...string) act {
	return func(ctx context.Context, c *cell) error {
		node := c.first().Spec.NodeName
		err := onFirst(append([]string{"drain", "NODE", "CELL"}, flags...)...)(ctx, c)
		if after := c.kubectl(ctx, "uncordon", node); after != nil {
			return after
		}
		return err
	}
}

// deleteAll repeats a request for all pods until none is left, as its clients do.
func deleteAll(ctx context.Context, c *cell) error {
	for {
		err := deleteCollection(ctx, c)
		if err == nil || !isStatus(err, 429) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("deleting the collection: %w", ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// taint adds a NoExecute taint to the node of the first pod until the pod is gone.
func taint(ctx context.Context, c *cell) error {
	pod := c.first()
	node := pod.Spec.NodeName
	if err := c.kubectl(ctx, "taint", "node", node, "matrix.podops.dev/broken=true:NoExecute"); err != nil {
		return err
	}
	err := c.Await(ctx, "the taint manager", func() bool { _, gone := c.removed[pod.UID]; return gone })
	if after := c.kubectl(ctx, "taint", "node", node, "matrix.podops.dev/broken-"); after != nil {
		return after
	}
	return err
}

// outcome has the observations of a row.
type outcome struct {
	heldAt, by, end, then string
	took                  time.Duration
}

func TestMatrix(t *testing.T) {
	w := stagetest.Start(t, filepath.Join("..", ".."), "matrix")
	removals, backs, restarts := rows(), ways(), restarted()
	outcomes := play(t, w, slices.Concat(removals, backs), atOnce)
	t.Run("an owner that is counted by its scale", func(t *testing.T) { testScale(t, w) })
	outcomes = append(outcomes, playRestarted(t, w, restarts)...)
	t.Run("without a manager", func(t *testing.T) { testWithoutManager(t, w) })
	backs = append(backs, restarts...)
	t.Log("\n" + table(removals, outcomes[:len(removals)], true) + "\n" + waysTable(backs, outcomes[len(removals):], true))
	if t.Failed() {
		return
	}
	if slices.ContainsFunc(outcomes, func(o outcome) bool { return o.end == "" }) {
		t.Log("some rows did not run: the tables are not compared")
		return
	}
	page := filepath.Join("..", "..", "docs", "workloads.md")
	golden.CheckBlock(t, page, removalsTable, tableEnds, table(removals, outcomes[:len(removals)], false))
	golden.CheckBlock(t, page, backsTable, tableEnds, waysTable(backs, outcomes[len(removals):], false))
}

// play runs rows, so many at a time, and then each row that must be alone.
func play(t *testing.T, w *cluster, matrix []row, atOnce int) []outcome {
	outcomes := make([]outcome, len(matrix))
	run := func(i int) {
		one := matrix[i]
		defer one.restart.leave()
		t.Run(one.name(), func(t *testing.T) { outcomes[i] = one.run(t, w) })
	}
	var group sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i := range matrix {
		if matrix[i].alone {
			continue
		}
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			run(i)
		})
	}
	group.Wait()
	for i := range matrix {
		if matrix[i].alone {
			run(i)
		}
	}
	return outcomes
}

// name returns the name of the row as a test.
func (r row) name() string {
	name := r.actor + " " + r.request
	if r.way != "" {
		name += ": " + r.way
	}
	return strings.ReplaceAll(name, "/", "-")
}

func (r row) run(t *testing.T, w *cluster) outcome {
	ctx, cancel := context.WithTimeout(t.Context(), 3*bound)
	defer cancel()
	must := func(doing string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", doing, err)
		}
	}
	c, err := newCell(ctx, w, r.rule())
	must("making the namespace", err)
	defer func() {
		_ = w.Delete(context.WithoutCancel(ctx), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}}) // the cluster ends anyway
	}()
	must("creating the workload", r.setup(ctx, c))
	before := c.uids()
	c.measure(before)
	began := time.Now()
	ending, end := context.WithTimeout(ctx, bound)
	defer end()
	must("removing", r.act(ending, c))
	must("waiting for the manager", r.restart.pass(ending))
	if r.after != nil {
		must("continuing", r.after(ending, c))
	}
	must("the end", c.Await(ending, "the end", func() bool { return r.hasEnded(c, before) }))
	o := outcome{took: time.Since(began), end: r.end()}
	must("keeping the end", r.stays(ctx, c, before))
	r.check(t, c, before)
	o.heldAt, err = c.heldAt()
	must("reading the audit log", err)
	by, err := c.carriedOutBy()
	must("reading the audit log", err)
	o.by = r.senders(t, by)
	o.then, err = r.sequel(ctx, c)
	must("continuing", err)
	return o
}

// sequel restores what the row has changed, and checks that the workload continues, and that every pod that it
// removes is permitted to go.
func (r row) sequel(ctx context.Context, c *cell) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	before := c.unguarded()
	if r.restore != nil {
		if err := r.restore(ctx, c); err != nil {
			return "", err
		}
	}
	text, err := c.continues(ctx)
	if after := c.unguarded(); err == nil && !slices.Equal(before, after) {
		return "", fmt.Errorf("pods were removed before an operation was allowed: %v, before that %v", after, before)
	}
	return text, err
}

// senders returns the text for the senders of requests that were carried out.
func (r row) senders(t *testing.T, by []string) string {
	t.Helper()
	if len(r.either) == 0 {
		return text(by)
	}
	for _, name := range by {
		if !slices.Contains(r.either, name) {
			t.Errorf("carried out by %s, want one of %v", name, r.either)
		}
	}
	return strings.Join(r.either, " or ")
}

// text returns names as a list.
func text(names []string) string {
	if len(names) == 0 {
		return "-"
	}
	return strings.Join(names, ", ")
}

// hasEnded reports whether the pods are as they must be at the end. The caller holds the lock.
func (r row) hasEnded(c *cell, before map[types.UID]string) bool {
	here, old := 0, 0
	revisions := map[string]bool{}
	for uid, pod := range c.Pods {
		if pod.Labels["app"] != "web" {
			continue
		}
		here++
		revisions[pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]+pod.Labels[appsv1.ControllerRevisionHashLabelKey]] = true
		if _, was := before[uid]; was {
			old++
		}
	}
	switch {
	case r.keeps:
		return old == len(before) && c.serve(r.pods)
	case r.actor == "kube-scheduler":
		return here == 0 && len(c.removed) == 1
	case r.replaces:
		return old == 0 && len(revisions) == 1 && c.serve(r.pods)
	default:
		return old < len(before) && len(c.removed) > 0 && c.serve(r.pods)
	}
}

// stays checks that the end lasts.
func (r row) stays(ctx context.Context, c *cell, before map[types.UID]string) error {
	for end := time.Now().Add(calm); time.Now().Before(end); time.Sleep(stagetest.Polling) {
		c.Lock()
		ok := r.hasEnded(c, before)
		c.Unlock()
		if !ok && ctx.Err() == nil {
			return fmt.Errorf("the end did not last:\n%s", c.Describe())
		}
	}
	return nil
}

// end returns how the row ends.
func (r row) end() string {
	switch {
	case r.keeps:
		return "back in service"
	case r.replaces || r.pods > 0 && r.actor != "kube-scheduler" && r.request != "scale-in":
		return "gone, replaced"
	default:
		return "gone"
	}
}

// check checks that no pod was removed too early or in vain.
func (r row) check(t *testing.T, c *cell, before map[types.UID]string) {
	t.Helper()
	unguarded := c.unguarded()
	c.Lock()
	least, wanted := c.least, 0
	for uid := range before {
		if _, gone := c.removed[uid]; gone {
			wanted++
		}
	}
	c.Unlock()
	if least < r.least {
		t.Errorf("%d pods were available at a time, want at least %d", least, r.least)
	}
	if r.keeps && wanted > 0 {
		t.Errorf("%d pods were removed that were wanted", wanted)
	}
	if !r.passes && len(unguarded) > 0 {
		t.Errorf("pods were removed before an operation was allowed: %v", unguarded)
	}
	if r.passes && len(unguarded) == 0 {
		t.Error("no pod was removed without a lifecycle: the row is held by now")
	}
	if t.Failed() {
		t.Log("\n" + c.Story())
	}
}

// table returns the outcomes of ways to remove pods as a table of Markdown.
func table(matrix []row, outcomes []outcome, seconds bool) string {
	return markdown([]string{"Actor", "Request", "Held at", "Carried out by", "Ends", "Then"}, seconds, outcomes, func(i int) []string {
		r, o := matrix[i], outcomes[i]
		return []string{r.actor, r.request, o.heldAt, o.by, o.end, o.then}
	})
}

// waysTable returns the outcomes of ways back as a table of Markdown.
func waysTable(matrix []row, outcomes []outcome, seconds bool) string {
	return markdown([]string{"Actor", "Request", "Way back", "Ends", "Then"}, seconds, outcomes, func(i int) []string {
		r, o := matrix[i], outcomes[i]
		return []string{r.actor, r.request, r.way, o.end, o.then}
	})
}

func markdown(columns []string, seconds bool, outcomes []outcome, cells func(int) []string) string {
	var text strings.Builder
	line := func(cells []string) { fmt.Fprintf(&text, "| %s |\n", strings.Join(cells, " | ")) }
	if seconds {
		columns = append(columns, "Seconds")
	}
	line(columns)
	fmt.Fprintf(&text, "|%s\n", strings.Repeat("---|", len(columns)))
	for i, o := range outcomes {
		row := cells(i)
		if seconds {
			row = append(row, fmt.Sprintf("%.1f", o.took.Seconds()))
		}
		line(row)
	}
	return text.String()
}

// Tables of docs/workloads.md, by the comment before them.
const (
	removalsTable = "<!-- table of make test-matrix -->\n"
	backsTable    = "<!-- ways back of make test-matrix -->\n"
	tableEnds     = "<!-- end of the table -->\n"
)
