package live

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
	"github.com/podops-dev/podops/pkg/view/timeline"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/cluster"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
)

// syncTimeout bounds the first lists of the informers.
const syncTimeout = 30 * time.Second

// Watch has the objects of namespaces in memory. It is safe for concurrent use.
type Watch struct {
	reader     cluster.Reader
	connection *connection
	changed    chan struct{}
	ended      chan error
}

// watched returns the objects that a Watch has in memory: namespaced objects, and objects of the
// cluster.
func watched() (namespaced, clusterwide []client.Object) {
	return []client.Object{
			&corev1.Pod{}, &appsv1.Deployment{}, &appsv1.ReplicaSet{}, &appsv1.StatefulSet{}, &appsv1.DaemonSet{},
			&corev1.Service{}, &discoveryv1.EndpointSlice{}, &policyv1.PodDisruptionBudget{},
			&appsv1alpha1.PodTransitionRule{}, &appsv1alpha1.PodOperation{},
		}, []client.Object{
			&appsv1alpha1.PodTransitionPolicy{}, &appsv1alpha1.TrafficAdapter{},
		}
}

// Options are the options of a Watch.
type Options struct {
	// ManagerNamespace is the namespace of the manager, and Namespaces are the namespaces to watch.
	ManagerNamespace string
	Namespaces       []string

	// Changes receives every version of every pod that the watch delivers after the first list. It may be nil.
	Changes *timeline.Changes
}

// Start begins to watch namespaces, and returns when their objects are in memory. It ends with ctx. Resources
// that may not be listed are noted in snapshots, and not watched.
func Start(ctx context.Context, env *command.Environment, o Options) (*Watch, error) {
	config, err := env.REST()
	if err != nil {
		return nil, err
	}
	direct, err := env.Client(ctx)
	if err != nil {
		return nil, err
	}
	w := &Watch{changed: make(chan struct{}, 1), ended: make(chan error, 1)}
	w.connection = &connection{now: env.Now, changed: w.notify}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return observed{next, w.connection} })
	shared := true
	options := cache.Options{
		Scheme: command.Scheme(), Mapper: direct.RESTMapper(), DefaultNamespaces: map[string]cache.Config{},
		ReaderFailOnMissingInformer: true, DefaultUnsafeDisableDeepCopy: &shared, DefaultTransform: cache.TransformStripManagedFields(),
	}
	for _, namespace := range o.Namespaces {
		options.DefaultNamespaces[namespace] = cache.Config{}
	}
	objects, err := cache.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("making a cache: %w", err)
	}
	reader := &reader{cached: objects, direct: direct, refused: map[schema.GroupVersionKind]error{}, memory: map[string]remembered{}}
	w.reader = cluster.Reader{Reader: reader, ManagerNamespace: o.ManagerNamespace}
	if err := w.inform(ctx, env, reader, objects, o); err != nil {
		return nil, err
	}
	go func() { w.ended <- objects.Start(ctx) }()
	syncing, stop := context.WithTimeout(ctx, syncTimeout)
	defer stop()
	if !objects.WaitForCacheSync(syncing) {
		return nil, fmt.Errorf("listing the objects of namespace %v: not complete after %s", o.Namespaces, syncTimeout)
	}
	return w, nil
}

// inform adds an informer for each kind that the user may list in every namespace.
func (w *Watch) inform(ctx context.Context, env *command.Environment, reader *reader, objects cache.Cache, o Options) error {
	namespaced, clusterwide := watched()
	for _, object := range slices.Concat(namespaced, clusterwide) {
		kind, err := apiutil.GVKForObject(object, command.Scheme())
		if err != nil {
			return fmt.Errorf("finding the kind of %T: %w", object, err)
		}
		in := o.Namespaces
		if slices.Contains(clusterwide, object) {
			in = []string{""}
		}
		refused, err := reader.mayList(ctx, kind, in)
		if err != nil {
			return fmt.Errorf("listing %s: %w", kind.Kind, err)
		}
		_, pods := object.(*corev1.Pod)
		if refused != nil && pods {
			return fmt.Errorf("listing pods: %w", refused)
		}
		if refused != nil {
			reader.refused[kind] = refused
			continue
		}
		informer, err := objects.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %s: %w", kind.Kind, err)
		}
		record := func(any, bool) {}
		if pods && o.Changes != nil {
			record = func(object any, deleted bool) {
				if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
					object = last.Obj
				}
				if pod, ok := object.(*corev1.Pod); ok {
					o.Changes.Add(timeline.Change{Pod: pod, At: env.Now(), Deleted: deleted})
				}
			}
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(object any, isInInitialList bool) {
				if !isInInitialList {
					record(object, false)
				}
				w.notify()
			},
			UpdateFunc: func(_, object any) { record(object, false); w.notify() },
			DeleteFunc: func(object any) { record(object, true); w.notify() },
		}); err != nil {
			return fmt.Errorf("watching %s: %w", kind.Kind, err)
		}
	}
	return nil
}

func (w *Watch) notify() {
	select {
	case w.changed <- struct{}{}:
	default: // The reader of the channel has not seen the last change yet.
	}
}

// Changed receives a value after objects have changed since the last value was received.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Answers is the text for an API server that answers again.
const Answers = "the API server answers again"

// Lost returns an error while the API server does not answer, and snapshots are as old as its last answer.
func (w *Watch) Lost() error { return w.connection.state() }

// Ended receives the error of the informers when they end: nil with the context.
func (w *Watch) Ended() <-chan error { return w.ended }

// Snapshot returns the objects of a namespace. They are shared, and must not be modified.
func (w *Watch) Snapshot(ctx context.Context, namespace string) (*clusterstate.Snapshot, error) {
	return w.reader.Snapshot(ctx, namespace)
}

// isRefused reports whether an error means that a resource cannot be read with the rights of the user, or
// that the cluster does not have it.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
}
