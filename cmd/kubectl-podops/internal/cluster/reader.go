// Package cluster reads the objects that verbs show from a cluster, with the rights of the kubeconfig: a
// target of the command line, and the objects around it. Resources that may not be read, or do not exist,
// are noted in the snapshot and stop no verb.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/resourceconsist/trafficadapter"
	"github.com/podops-dev/podops/pkg/runtime/text"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
)

const (
	// DefaultManagerNamespace is the namespace of the manager in the manifests.
	DefaultManagerNamespace = "podops-system"

	// eventSource is the reporting controller of PodOps' events.
	eventSource = "podops"

	// maxEvents bounds the events of a snapshot.
	maxEvents = 500

	// pageSize is the number of objects that one request returns.
	pageSize = 500

	// maxReasonBytes bounds the error of a resource that cannot be read.
	maxReasonBytes = 200
)

// Reader reads snapshots.
type Reader struct {
	client.Reader

	// ManagerNamespace is the namespace of the manager.
	ManagerNamespace string
}

// Snapshot reads a namespace. It fails only if its pods cannot be read.
func (r Reader) Snapshot(ctx context.Context, namespace string) (*clusterstate.Snapshot, error) {
	snapshot := &clusterstate.Snapshot{Namespace: namespace, Manager: clusterstate.Manager{Namespace: r.ManagerNamespace}}
	g := &gathering{reader: r.Reader, errs: map[string]error{}}
	in := client.InNamespace(namespace)
	g.run("pods", listInto(ctx, g, &corev1.PodList{}, &snapshot.Pods, in))
	g.run("deployments", listInto(ctx, g, &appsv1.DeploymentList{}, &snapshot.Deployments, in))
	g.run("replicasets", listInto(ctx, g, &appsv1.ReplicaSetList{}, &snapshot.ReplicaSets, in))
	g.run("statefulsets", listInto(ctx, g, &appsv1.StatefulSetList{}, &snapshot.StatefulSets, in))
	g.run("daemonsets", listInto(ctx, g, &appsv1.DaemonSetList{}, &snapshot.DaemonSets, in))
	g.run("services", listInto(ctx, g, &corev1.ServiceList{}, &snapshot.Services, in))
	g.run("endpointslices", listInto(ctx, g, &discoveryv1.EndpointSliceList{}, &snapshot.EndpointSlices, in))
	g.run("poddisruptionbudgets", listInto(ctx, g, &policyv1.PodDisruptionBudgetList{}, &snapshot.Budgets, in))
	g.run("podtransitionrules", listInto(ctx, g, &appsv1alpha1.PodTransitionRuleList{}, &snapshot.Rules, in))
	g.run("podoperations", listInto(ctx, g, &appsv1alpha1.PodOperationList{}, &snapshot.Operations, in))
	g.run("podtransitionpolicies", listInto(ctx, g, &appsv1alpha1.PodTransitionPolicyList{}, &snapshot.Policies))
	byPodOps := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("reportingComponent", eventSource)}
	g.run("events", listInto(ctx, g, &corev1.EventList{}, &snapshot.Events, in, byPodOps))
	var adapters []*appsv1alpha1.TrafficAdapter
	g.run("trafficadapters", listInto(ctx, g, &appsv1alpha1.TrafficAdapterList{}, &adapters))
	g.run("leases", func() error { return r.manager(ctx, &snapshot.Manager) })
	g.run("namespaces", func() error { return r.breakGlass(ctx, snapshot) })
	g.running.Wait()

	if err := g.errs["pods"]; err != nil {
		return nil, fmt.Errorf("listing the pods of namespace %s: %w", namespace, err)
	}
	slices.SortStableFunc(snapshot.Events, func(a, b *corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	snapshot.Events = snapshot.Events[max(0, len(snapshot.Events)-maxEvents):]
	snapshot.Adapters = collectAdapters(adapters, snapshot.Services)
	snapshot.Unreadable = g.unreadable()
	return snapshot, nil
}

// manager reads the Lease of the manager. A cluster without it has a manager without leader election, or
// no manager.
func (r Reader) manager(ctx context.Context, manager *clusterstate.Manager) error {
	var lease coordinationv1.Lease
	err := r.Get(ctx, client.ObjectKey{Namespace: r.ManagerNamespace, Name: appsv1alpha1.ManagerName}, &lease)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	manager.Lease = true
	if lease.Spec.HolderIdentity != nil {
		manager.Holder = *lease.Spec.HolderIdentity
	}
	if lease.Spec.RenewTime != nil {
		manager.Renewed = lease.Spec.RenewTime.Time
	}
	if lease.Spec.LeaseDurationSeconds != nil {
		manager.Duration = time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
	}
	return nil
}

// breakGlass reads the break-glass annotations of the namespace and the manager's namespace.
func (r Reader) breakGlass(ctx context.Context, snapshot *clusterstate.Snapshot) error {
	for name, reason := range map[string]*string{snapshot.Namespace: &snapshot.BreakGlass, r.ManagerNamespace: &snapshot.ClusterBreakGlass} {
		namespace := &metav1.PartialObjectMetadata{}
		namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		if err := r.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return err
		}
		*reason = podstate.BreakGlass(namespace.Annotations)
	}
	return nil
}

// collectAdapters returns the TrafficAdapters in use, with the Services that each of them matches.
func collectAdapters(objects []*appsv1alpha1.TrafficAdapter, services []*corev1.Service) []clusterstate.Adapter {
	var adapters []clusterstate.Adapter
	for _, object := range objects {
		// Entries without an error are in use, and the condition Ready of the object has the error.
		registration, _ := trafficadapter.Parse(object)
		adapter := clusterstate.Adapter{TrafficAdapter: object}
		for _, service := range services {
			if registration.Matches(service) {
				adapter.Services = append(adapter.Services, service.Name)
			}
		}
		adapters = append(adapters, adapter)
	}
	return adapters
}

// gathering reads several resources at once.
type gathering struct {
	reader  client.Reader
	running sync.WaitGroup

	mu   sync.Mutex
	errs map[string]error
}

// run reads a resource concurrently with the others.
func (g *gathering) run(resource string, read func() error) {
	g.running.Go(func() {
		if err := read(); err != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.errs[resource] = err
		}
	})
}

// unreadable returns the resources that could not be read, sorted.
func (g *gathering) unreadable() []clusterstate.Unreadable {
	var unreadable []clusterstate.Unreadable
	for resource, err := range g.errs {
		reason := err.Error()
		switch {
		case apierrors.IsForbidden(err):
			reason = "you may not read them"
		case meta.IsNoMatchError(err):
			reason = "the cluster does not have them"
		}
		unreadable = append(unreadable, clusterstate.Unreadable{Resource: resource, Reason: text.Line(reason, maxReasonBytes)})
	}
	slices.SortFunc(unreadable, func(a, b clusterstate.Unreadable) int { return cmp.Compare(a.Resource, b.Resource) })
	return unreadable
}

// listInto returns a function that lists a resource page by page into a slice that is sorted by name.
func listInto[T client.Object](ctx context.Context, g *gathering, list client.ObjectList, into *[]T, options ...client.ListOption) func() error {
	return func() (err error) {
		*into, err = ListAll[T](ctx, g.reader, list, options...)
		return err
	}
}

// ListAll returns all objects of a list, sorted by namespace and name. It reads them page by page.
func ListAll[T client.Object](ctx context.Context, reader client.Reader, list client.ObjectList, options ...client.ListOption) ([]T, error) {
	var objects []T
	for next := ""; ; {
		page := list.DeepCopyObject().(client.ObjectList)
		if err := reader.List(ctx, page, append(slices.Clone(options), client.Limit(pageSize), client.Continue(next))...); err != nil {
			return nil, err
		}
		items, err := meta.ExtractList(page)
		if err != nil {
			return nil, fmt.Errorf("reading a list: %w", err)
		}
		for _, item := range items {
			object, ok := item.(T)
			if !ok {
				return nil, errors.New("a list has objects of another kind")
			}
			objects = append(objects, object)
		}
		if next = page.GetContinue(); next == "" {
			break
		}
	}
	slices.SortFunc(objects, func(a, b T) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return objects, nil
}
