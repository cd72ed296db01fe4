package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
	"github.com/podops-dev/podops/pkg/view/rolloutview"
)

const (
	// maxWorkloads, maxPods and maxPodsOfWorkload bound a state, and with it the page.
	maxWorkloads      = 200
	maxPods           = 2000
	maxPodsOfWorkload = 1000 // 500 with a surge of 100 %
)

// State is the content of the page at one moment.
type State struct {
	// Context is the context of the kubeconfig, and Namespace the namespace; empty for all.
	Context   string `json:"context"`
	Namespace string `json:"namespace"`

	Time metav1.MicroTime `json:"time"`

	// Stale is why the objects are older than Time; empty while the API server answers.
	Stale string `json:"stale,omitempty"`

	// Phases are all phases, in their order.
	Phases []rolloutview.Phase `json:"phases"`

	// Workloads are sorted: the states that need attention come first.
	Workloads []rolloutview.View `json:"workloads"`

	// Timelines are the phases of each workload's pods, by "<Kind>/<namespace>/<name>".
	Timelines map[string][]Track `json:"timelines"`

	// Notes are lines about objects that are not shown.
	Notes []string `json:"notes"`
}

// buildViews returns the views of the workloads in snapshots that PodOps controls, and notes about the rest.
func buildViews(snapshots []*clusterstate.Snapshot, now time.Time) (views []rolloutview.View, notes []string) {
	for _, snapshot := range snapshots {
		for _, resource := range snapshot.Unreadable {
			notes = append(notes, fmt.Sprintf("%s of namespace %s are left out: %s", resource.Resource, snapshot.Namespace, resource.Reason))
		}
		for _, workload := range listWorkloads(snapshot) {
			view := rolloutview.Of(snapshot, workload, now)
			view.Notes = nil // all views of a namespace have the same
			views = append(views, view)
		}
	}
	slices.SortStableFunc(views, func(a, b rolloutview.View) int {
		return cmp.Or(cmp.Compare(urgency(a), urgency(b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return bounded(views, notes)
}

// podsByView returns the pods of views, by "<Kind>/<namespace>/<name>" of their workloads.
func podsByView(snapshots []*clusterstate.Snapshot, views []rolloutview.View) map[string][]*corev1.Pod {
	read := map[string]*clusterstate.Snapshot{}
	for _, snapshot := range snapshots {
		read[snapshot.Namespace] = snapshot
	}
	pods := make(map[string][]*corev1.Pod, len(views))
	for _, view := range views {
		pods[view.Kind+"/"+view.Namespace+"/"+view.Name] = view.PodsIn(read[view.Namespace])
	}
	return pods
}

// bounded leaves out pods and workloads beyond the bounds of a state, and notes that.
func bounded(views []rolloutview.View, notes []string) ([]rolloutview.View, []string) {
	pods, most := 0, min(len(views), maxWorkloads)
	for i := range views[:most] {
		if left := limitPods(&views[i]); left > 0 {
			notes = append(notes, fmt.Sprintf("%d more pods of %s %s are not shown", left, views[i].Kind, views[i].Name))
		}
		if pods += len(views[i].AllPods()); pods > maxPods {
			most = i
			break
		}
	}
	if left := len(views) - most; left > 0 {
		notes = append(notes, fmt.Sprintf("%d more workloads are not shown; --namespace shows the workloads of one namespace", left))
	}
	return views[:most], notes
}

// limitPods leaves out pods of a view beyond maxPodsOfWorkload, and returns their number. Pods that wait come
// first in each revision.
func limitPods(view *rolloutview.View) (left int) {
	room := maxPodsOfWorkload
	for i := range view.Revisions {
		pods := view.Revisions[i].Pods
		kept := min(room, len(pods))
		room -= kept
		left += len(pods) - kept
		view.Revisions[i].Pods = pods[:kept]
	}
	return left
}

func urgency(view rolloutview.View) int {
	return slices.Index([]rolloutview.State{rolloutview.StateWithheld, rolloutview.StateProgressing, rolloutview.StateComplete}, view.State)
}

// listWorkloads returns the workloads of a namespace with pods that PodOps controls, or with a template of such
// pods. A ReplicaSet of a Deployment is part of the Deployment.
func listWorkloads(snapshot *clusterstate.Snapshot) []metav1.Object {
	controlled := map[any]bool{}
	for _, pod := range snapshot.Pods {
		if owner := metav1.GetControllerOf(pod); owner != nil && appsv1alpha1.IsControlled(pod.Labels) {
			controlled[owner.UID] = true
		}
	}
	var workloads []metav1.Object
	add := func(object metav1.Object, template *corev1.PodTemplateSpec) {
		if controlled[object.GetUID()] || appsv1alpha1.IsControlled(template.Labels) {
			workloads = append(workloads, object)
		}
	}
	for _, object := range snapshot.Deployments {
		add(object, &object.Spec.Template)
	}
	for _, object := range snapshot.StatefulSets {
		add(object, &object.Spec.Template)
	}
	for _, object := range snapshot.DaemonSets {
		add(object, &object.Spec.Template)
	}
	for _, object := range snapshot.ReplicaSets {
		if metav1.GetControllerOf(object) == nil {
			add(object, &object.Spec.Template)
		}
	}
	return workloads
}
