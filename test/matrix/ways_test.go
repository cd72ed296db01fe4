package matrix_test

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/stage/stagetest"
)

// Texts of several rows.
const (
	aSuspension = "suspended"
	aScaleIn    = "scale-in"
	undone      = "undone"
	orphaned    = "its owner is deleted with orphans"
	paused      = "the strategy becomes OnDelete"
)

// ways returns the rows whose request ends while the rule withholds pods. All pods are approved right after that.
func ways() []row {
	return slices.Concat(deploymentWays(), replicaSetWays(), statefulSetWays(), otherWays(), podWays())
}

func restart(kind string) act { return kubectl("rollout", "restart", kind+"/web") }
func undo(kind string) act    { return kubectl("rollout", "undo", kind+"/web") }

func scale(kind string, replicas int) act {
	return kubectl("scale", kind+"/web", fmt.Sprintf("--replicas=%d", replicas))
}

func merge(object, patch string) act {
	return kubectl("patch", object, "--type=merge", "--patch="+patch)
}

func deleteOwner(object, cascade string) act {
	return kubectl("delete", object, "--cascade="+cascade)
}

// kept returns a row that ends with so many pods in service: hold is withheld, and back ends it.
func kept(actor, request, way string, workload setup, hold, back act, pods int) row {
	return row{
		actor: actor, request: request, way: way, rule: stagetest.Approved, setup: workload, act: then(hold, waiting, back), after: approveAll,
		pods: pods, keeps: true,
	}
}

// gone returns a row that ends with so many pods, fewer than before.
func gone(actor, request, way string, workload setup, hold, back act, pods int) row {
	r := kept(actor, request, way, workload, hold, back, pods)
	r.keeps = false
	return r
}

// others returns the row with all pods replaced at the end, and so many available meanwhile.
func (r row) others(least int) row {
	r.replaces, r.keeps, r.least = true, false, least
	return r
}

// atLeast returns the row with so many pods available meanwhile.
func (r row) atLeast(least int) row {
	r.least = least
	return r
}

// passing returns the row for pods that are removed without a lifecycle.
func (r row) passing() row {
	r.passes = true
	return r
}

// restoring returns the row with a request that ends what the way back has changed.
func (r row) restoring(request act) row {
	r.restore = request
	return r
}

// followed returns the row with other requests after its way back.
func (r row) followed(by ...act) row {
	r.after = then(by...)
	return r
}

// approveOthers approves the pods that do not wait.
func approveOthers(ctx context.Context, c *cell) error {
	for _, pod := range c.waiting(false) {
		if err := c.patch(ctx, pod, `{"metadata":{"labels":{"`+stagetest.ApprovedLabelKey+`":"true"}}}`); err != nil {
			return err
		}
	}
	return nil
}

// raiseCosts makes the waiting pods costly, and waits until others wait.
func raiseCosts(ctx context.Context, c *cell) error {
	raised := c.waiting(true)
	for _, pod := range raised {
		if err := c.patch(ctx, pod, `{"metadata":{"annotations":{"`+corev1.PodDeletionCost+`":"1000"}}}`); err != nil {
			return err
		}
	}
	return c.Await(ctx, "another pod to wait", func() bool {
		waits, released := 0, 0
		for _, pod := range c.Pods {
			switch isCostly := pod.Annotations[corev1.PodDeletionCost] == "1000"; {
			case stagetest.IsWaiting(pod) && !isCostly:
				waits++
			case !stagetest.IsWaiting(pod) && isCostly:
				released++
			}
		}
		return waits > 0 && released == len(raised)
	})
}

// costlyStays waits until another pod has gone, and restores the cost of the pod that stays.
func costlyStays(ctx context.Context, c *cell) error {
	costly := func(pod *corev1.Pod) bool { return pod.Annotations[corev1.PodDeletionCost] == "1000" }
	if err := c.Await(ctx, "the end of another pod", func() bool { return len(c.Pods) == 3 }); err != nil {
		return err
	}
	pods := slices.DeleteFunc(c.waiting(false), func(pod *corev1.Pod) bool { return !costly(pod) })
	if len(pods) != 1 {
		return fmt.Errorf("%d costly pods are left, want the pod that waited first", len(pods))
	}
	return c.patch(ctx, pods[0], `{"metadata":{"annotations":{"`+corev1.PodDeletionCost+`":null}}}`)
}

func deploymentWays() []row {
	const kind = "deployment"
	four, roll, shrink := deployment(4), restart(kind), scale(kind, 2)
	twice := merge("deployment/web", `{"spec":{"template":{"metadata":{"annotations":{"matrix.podops.dev/second":"true"}}}}}`)
	return []row{
		kept("Deployment", aRollout, undone, four, roll, undo(kind), 4),
		kept("Deployment", aRollout, "a next rollout", four, roll, twice, 4).others(3),
		kept("Deployment", aRollout, "undone while it is paused", four, roll, then(
			kubectl("rollout", "pause", "deployment/web"), merge("deployment/web", `{"spec":{"template":{"metadata":{"annotations":null}}}}`),
			kubectl("rollout", "resume", "deployment/web")), 4),
		kept("Deployment", aRollout, "the rule is deleted", four, roll, deleteRule, 4).others(3),
		kept("Deployment", aRollout, "scaled out", four, roll, scale(kind, 6), 6).others(3),
		kept("Deployment", aScaleIn, "scaled out to more than before", four, shrink, scale(kind, 5), 5),
		gone("Deployment", aScaleIn, "scaled out to fewer than before", four, shrink, scale(kind, 3), 3),
		kept("Deployment", aScaleIn, "a rollout", four, shrink, roll, 2).others(1),
		gone("Deployment", aScaleIn, "another pod is approved", four, scale(kind, 3), approveOthers, 3).followed(),
		gone("Deployment", aScaleIn, "its pod gets a higher deletion cost", four, scale(kind, 3), raiseCosts, 3).followed(approveAll, costlyStays),
		gone("Deployment", aScaleIn, "its owner is deleted", four, shrink, deleteOwner("deployment/web", "background"), 0).passing(),
	}
}

func replicaSetWays() []row {
	const kind = "replicaset"
	four, shrink := replicaSet(4), scale(kind, 2)
	return []row{
		kept("ReplicaSet", aScaleIn, "scaled out again", four, shrink, scale(kind, 4), 4),
		kept("ReplicaSet", aScaleIn, "its deletes are rejected, then scaled out again", four, shrink,
			then(freeze, approveAll, frozen, scale(kind, 4), serving(4), thaw), 4).atLeast(2),
		kept("ReplicaSet", aScaleIn, orphaned, four, shrink, deleteOwner("replicaset/web", "orphan"), 4),
		gone("ReplicaSet", aScaleIn, "its deletes are rejected for a while", four, shrink, then(freeze, approveAll, frozen, thaw), 2),
	}
}

func statefulSetWays() []row {
	const kind, object = "statefulset", "statefulset/web"
	three, roll, shrink := statefulSet(3), restart(kind), scale(kind, 1)
	strategy := func(patch string) act { return merge(object, `{"spec":{"updateStrategy":`+patch+`}}`) }
	normal := strategy(`{"type":"RollingUpdate","rollingUpdate":{"partition":0}}`)
	return []row{
		kept("StatefulSet", aRollout, undone, three, roll, undo(kind), 3),
		kept("StatefulSet", aRollout, "the partition is raised", three, roll, strategy(`{"rollingUpdate":{"partition":3}}`), 3).restoring(normal),
		kept("StatefulSet", aRollout, paused, three, roll, strategy(`{"type":"OnDelete","rollingUpdate":null}`), 3).restoring(normal),
		kept("StatefulSet", aRollout, "a next rollout", three, roll, merge(object, `{"spec":{"template":{"metadata":{"annotations":{"matrix.podops.dev/second":"true"}}}}}`), 3).others(2),
		kept("StatefulSet", aRollout, orphaned, three, roll, deleteOwner(object, "orphan"), 3),
		gone("StatefulSet", aRollout, aScaleIn, three, roll, shrink, 1).atLeast(0).others(0),
		kept("StatefulSet", aRollout, "its deletes are rejected, then undone", three, roll, then(freeze, approveAll, frozen, undo(kind), serving(3), thaw), 3).atLeast(2),
		kept("StatefulSet", aScaleIn, "scaled out again", three, shrink, scale(kind, 3), 3),
		gone("StatefulSet", aScaleIn, "its owner is deleted", three, shrink, deleteOwner(object, "background"), 0).passing(),
	}
}

func otherWays() []row {
	const object = "daemonset/web"
	strategy := func(kind string) act { return merge(object, `{"spec":{"updateStrategy":{"type":"`+kind+`"}}}`) }
	suspend := func(value bool) act { return merge("job/web", fmt.Sprintf(`{"spec":{"suspend":%t}}`, value)) }
	return []row{
		kept("DaemonSet", aRollout, undone, daemonSet, restart("daemonset"), undo("daemonset"), nodes),
		kept("DaemonSet", aRollout, paused, daemonSet, restart("daemonset"), strategy("OnDelete"), nodes).restoring(strategy("RollingUpdate")),
		kept("DaemonSet", aRollout, orphaned, daemonSet, restart("daemonset"), deleteOwner(object, "orphan"), nodes),
		kept("DaemonSet", "a node loses its label", "the node is labelled again", labelledDaemonSet, labelNode(false), labelNode(true), nodes),
		kept("Job", aSuspension, "resumed", job(nil, 1), suspend(true), suspend(false), 1),
		gone("Job", aSuspension, "its owner is deleted", job(nil, 1), suspend(true), deleteOwner("job/web", "background"), 0).passing(),
	}
}

func podWays() []row {
	label := onFirst("label", "pod", "POD", appsv1alpha1.ToDeleteLabelKey+"=true")
	unlabel := onFirst("label", "pod", "POD", appsv1alpha1.ToDeleteLabelKey+"-")
	operation := func(kind appsv1alpha1.PodOperationActionType) act {
		return func(ctx context.Context, c *cell) error { return c.Create(ctx, c.operation(kind)) }
	}
	cancel := merge("podoperation/web", `{"spec":{"cancel":true}}`)
	return []row{
		kept("label `to-delete`", "", "removed", deployment(2), label, unlabel, 2),
		kept("PodOperation", "Delete", "cancelled", deployment(2), operation(appsv1alpha1.ActionDelete), cancel, 2),
		kept("PodOperation", "Delete", "deleted", deployment(2), operation(appsv1alpha1.ActionDelete), kubectl("delete", "podoperation/web", "--wait=false"), 2),
		kept("PodOperation", "Restart", "cancelled", deployment(2), operation(appsv1alpha1.ActionRestart), cancel, 2),
	}
}

func approveAll(ctx context.Context, c *cell) error {
	go c.approving(ctx)
	return nil
}

// serving waits until exactly so many pods serve.
func serving(pods int) act {
	return func(ctx context.Context, c *cell) error { return c.awaitAvailable(ctx, pods) }
}

func deleteRule(ctx context.Context, c *cell) error {
	return c.Delete(ctx, &appsv1alpha1.PodTransitionRule{ObjectMeta: c.Meta("web")})
}

// labelledDaemonSet creates a DaemonSet whose nodes have the name of the cell as a label.
func labelledDaemonSet(ctx context.Context, c *cell) error {
	if err := c.kubectl(ctx, "label", "nodes", "--all", c.Namespace+"=yes"); err != nil {
		return err
	}
	template := c.Template()
	template.Spec.NodeSelector = map[string]string{c.Namespace: "yes"}
	return c.create(ctx, nodes, &appsv1.DaemonSet{ObjectMeta: c.Meta("web"), Spec: appsv1.DaemonSetSpec{Selector: stagetest.Selected(), Template: template}})
}

// labelNode adds or removes the label of labelledDaemonSet on the node of the first pod.
func labelNode(add bool) act {
	return func(ctx context.Context, c *cell) error {
		label := c.Namespace + "-"
		if add {
			label = c.Namespace + "=yes"
		}
		return onFirst("label", "node", "NODE", label)(ctx, c)
	}
}

// operation returns a PodOperation on all pods of the cell.
func (c *cell) operation(kind appsv1alpha1.PodOperationActionType) *appsv1alpha1.PodOperation {
	return &appsv1alpha1.PodOperation{ObjectMeta: c.Meta("web"), Spec: appsv1alpha1.PodOperationSpec{
		Target: appsv1alpha1.PodOperationTarget{Selector: stagetest.Selected()}, Action: appsv1alpha1.PodOperationAction{Type: kind},
	}}
}
