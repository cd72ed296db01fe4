package certificates

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// CacheByObject limits the manager's cache to the three objects of this package, each by its
// name. It belongs into cache.Options.ByObject: the manifests grant no right to list or watch
// any other secret or webhook configuration, so a cache without it would never sync.
func CacheByObject(namespace string) map[client.Object]cache.ByObject {
	byObject := map[client.Object]cache.ByObject{&corev1.Secret{}: CacheOfSecret(namespace, SecretName)}
	for _, c := range configurations() {
		byObject[c.object] = cache.ByObject{Field: byName(c.object.GetName())}
	}
	return byObject
}

// CacheOfSecret limits a cache to one Secret.
func CacheOfSecret(namespace, name string) cache.ByObject {
	return cache.ByObject{Namespaces: map[string]cache.Config{namespace: {FieldSelector: byName(name)}}}
}

func byName(name string) fields.Selector {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, name)
}

// SetupWithManager makes the manager run r on every replica, leading or not: at the
// start, at election, and whenever the Secret or an object changes that the CAs are published to.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	all := false
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{r.request()}
	})
	controlled := builder.ControllerManagedBy(mgr).
		Named("certificates").
		Watches(&corev1.Secret{}, enqueue, builder.WithPredicates(named(r.secret.Name))).
		WatchesRawSource(source.Func(r.start)).
		WithOptions(controller.Options{NeedLeaderElection: &all})
	for _, watched := range r.publisher.Watches() {
		controlled = controlled.Watches(watched.Object, enqueue, builder.WithPredicates(watched.Changes))
	}
	return controlled.Complete(r)
}

// start is the source of the first request, because no event arrives when no object
// exists yet, and of the request after the election.
func (r *Reconciler) start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	queue.Add(r.request())
	if r.elected == nil {
		return nil
	}
	go func() {
		select {
		case <-r.elected:
			queue.Add(r.request())
		case <-ctx.Done():
		}
	}()
	return nil
}

// request returns the only request there is: Reconcile always processes all objects.
func (r *Reconciler) request() reconcile.Request {
	return reconcile.Request{NamespacedName: r.secret}
}
