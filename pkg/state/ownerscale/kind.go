package ownerscale

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// requestTimeout bounds each request for one owner or one kind.
	requestTimeout = 3 * time.Second

	// listTimeout bounds one list request.
	listTimeout = 15 * time.Second

	// maxWatches bounds the number of kinds that are watched at a time. Only kinds that the role of
	// the manager allows take a watch for longer than one list, so users without rights to roles
	// cannot use it up.
	maxWatches = 64

	// resolveAgain is the time for which an answer of discovery is used for a kind that cannot be
	// scaled.
	resolveAgain = 30 * time.Second

	// idleFor is the time for which a watch outlasts the last owner of its kind.
	idleFor = time.Minute
)

var (
	errNotSynced = errors.New("the objects have not been listed")
	errWatches   = fmt.Errorf("%d kinds are watched already", maxWatches)
)

// watchedKind is one kind of owners in use, and the watch of its metadata.
type watchedKind struct {
	kind Kind
	api  API

	// changed is called when the watch starts or fails, and object when an object has changed.
	changed func(Kind)
	object  func(key Key, spec bool)

	// watches has one element for each watch of all kinds.
	watches chan struct{}

	// idle is the time at which the last owner of the kind lost its last pod; zero while the kind has
	// an owner. It belongs to the Reader.
	idle time.Time

	mu sync.Mutex

	// resource and resolveErr are the last answer of discovery, at a time; zero before the first.
	resource   Resource
	resolveErr error
	resolved   time.Time

	informer cache.SharedIndexInformer
	synced   cache.InformerSynced
	stop     func()

	// failure of the last list or watch; nil after a watch has started.
	failure error
}

// prepare returns the resource, with a watch of it if it is scalable.
func (k *watchedKind) prepare(ctx, running context.Context, now time.Time) (Resource, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if age := now.Sub(k.resolved); k.resolved.IsZero() || !k.resource.Scalable && age >= resolveAgain {
		k.resource, k.resolveErr = k.api.Resolve(ctx, k.kind)
		k.resolved = now
	}
	switch {
	case k.resolveErr != nil:
		return Resource{}, fmt.Errorf("resolving the kind: %w", k.resolveErr)
	case !k.resource.Scalable:
		return k.resource, nil
	case k.stop == nil:
		if err := k.watch(running); err != nil {
			return Resource{}, err
		}
		return Resource{}, errNotSynced
	case k.failure != nil:
		return Resource{}, k.failure
	case !k.synced():
		return Resource{}, errNotSynced
	default:
		return k.resource, nil
	}
}

// forgetResource has the kind resolved again.
func (k *watchedKind) forgetResource() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.resolved = time.Time{}
}

// stored returns the metadata of an object; nil when no object has this name.
func (k *watchedKind) stored(namespace, name string) *metav1.PartialObjectMetadata {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.informer == nil {
		return nil
	}
	found, ok, err := k.informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !ok {
		return nil
	}
	object, _ := found.(*metav1.PartialObjectMetadata)
	return object
}

// watch starts the watch. The caller holds the lock.
func (k *watchedKind) watch(running context.Context) error {
	select {
	case k.watches <- struct{}{}:
	default:
		return errWatches
	}
	ctx, cancel := context.WithCancel(running)
	source := &observed{ListerWatcherWithContext: k.api.Metadata(k.resource), report: k.report}
	k.informer = cache.NewSharedIndexInformer(source, &metav1.PartialObjectMetadata{}, 0, cache.Indexers{})
	// A failure is a condition of the rules that select pods of the kind, and no error of the manager.
	quiet := func(ctx context.Context, _ *cache.Reflector, err error) {
		klog.FromContext(ctx).V(1).Info("Watching owners failed", "kind", k.kind.Kind, "apiVersion", k.kind.APIVersion, "err", err)
	}
	handled, err := k.informer.AddEventHandler(k.handlers())
	if err = errors.Join(err, k.informer.SetTransform(slim), k.informer.SetWatchErrorHandlerWithContext(quiet)); err != nil {
		cancel()
		<-k.watches
		return fmt.Errorf("watching the objects: %w", err)
	}
	k.synced = handled.HasSynced
	var ended sync.WaitGroup
	ended.Go(func() { k.informer.RunWithContext(ctx) })
	ended.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), handled.HasSynced) {
			k.changed(k.kind)
		}
	})
	k.stop = sync.OnceFunc(func() {
		cancel()
		ended.Wait()
		<-k.watches
	})
	return nil
}

// end stops the watch, and forgets the resource.
func (k *watchedKind) end() {
	k.mu.Lock()
	stop := k.stop
	k.informer, k.synced, k.stop, k.failure, k.resolved = nil, nil, nil, nil, time.Time{}
	k.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// report records whether the objects can be listed and watched. Errors of the connection to the API
// server are not recorded: while the API server is unavailable nothing changes.
func (k *watchedKind) report(err error) {
	if status := apierrors.APIStatus(nil); err != nil && !errors.As(err, &status) && !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	k.mu.Lock()
	same := (k.failure == nil) == (err == nil)
	k.failure = err
	k.mu.Unlock()
	if !same {
		k.changed(k.kind)
	}
}

func (k *watchedKind) handlers() cache.ResourceEventHandler {
	changed := func(object any, spec bool) {
		if o, ok := object.(*metav1.PartialObjectMetadata); ok {
			k.object(Key{Namespace: o.Namespace, UID: o.UID}, spec)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { changed(object, true) },
		UpdateFunc: func(before, after any) {
			old, okOld := before.(*metav1.PartialObjectMetadata)
			now, okNow := after.(*metav1.PartialObjectMetadata)
			if !okOld || !okNow || old.ResourceVersion == now.ResourceVersion {
				return
			}
			if old.UID != now.UID {
				changed(old, true)
			}
			changed(now, old.UID != now.UID || old.Generation != now.Generation || (old.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil))
		},
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			changed(object, true)
		},
	}
}

// slim keeps the fields of metadata that a Reader uses.
func slim(object any) (any, error) {
	o, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Generation: o.Generation,
		DeletionTimestamp: o.DeletionTimestamp,
	}}, nil
}

// observed reports each list that fails, and each watch.
type observed struct {
	cache.ListerWatcherWithContext
	report func(error)
}

// List implements cache.ListerWatcher.
func (o *observed) List(options metav1.ListOptions) (runtime.Object, error) {
	return o.ListWithContext(context.Background(), options)
}

// Watch implements cache.ListerWatcher.
func (o *observed) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return o.WatchWithContext(context.Background(), options)
}

// IsWatchListSemanticsUnSupported is true: a list has a timeout, and its error shows at once.
func (o *observed) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext lists the objects.
func (o *observed) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := o.ListerWatcherWithContext.ListWithContext(ctx, options)
	if err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		o.report(err)
	}
	return list, err
}

// WatchWithContext watches the objects.
func (o *observed) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	events, err := o.ListerWatcherWithContext.WatchWithContext(ctx, options)
	if err == nil || !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		o.report(err)
	}
	return events, err
}
