package live

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
)

// freshFor is the time for which a response of the API server counts for objects that are not
// watched: Leases, Namespaces, events.
const freshFor = 5 * time.Second

// reader reads watched kinds from the cache, and others from the API server, at most once in freshFor.
type reader struct {
	cached client.Reader
	direct client.Reader

	// refused are the kinds that the user may not list. It is not modified after the start.
	refused map[schema.GroupVersionKind]error

	mu     sync.Mutex
	memory map[string]remembered // bounded by the few objects that snapshots read
}

// remembered is a response of the API server.
type remembered struct {
	object runtime.Object
	err    error
	at     time.Time
}

// mayList returns the error of a kind that the user may not list in a namespace, and any other error.
func (r *reader) mayList(ctx context.Context, kind schema.GroupVersionKind, namespaces []string) (refused, err error) {
	for _, namespace := range namespaces {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := r.direct.List(ctx, list, client.InNamespace(namespace), client.Limit(1))
		switch {
		case isRefused(err):
			return err, nil
		case err != nil:
			return nil, err
		}
	}
	return nil, nil
}

// Get reads an object.
func (r *reader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	kind, err := apiutil.GVKForObject(object, command.Scheme())
	if err != nil {
		return err
	}
	if refused, ok := r.refused[kind]; ok {
		return refused
	}
	if _, metadata := object.(*metav1.PartialObjectMetadata); !metadata && isWatched(kind) {
		return r.cached.Get(ctx, key, object, options...)
	}
	return r.remember(fmt.Sprintf("%s %s", kind, key), object, func() error { return r.direct.Get(ctx, key, object, options...) })
}

// List reads a list, as a whole: the cache has no pages.
func (r *reader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	kind, err := apiutil.GVKForObject(list, command.Scheme())
	if err != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	if refused, ok := r.refused[kind]; ok {
		return refused
	}
	request := (&client.ListOptions{}).ApplyOptions(options)
	if _, metadata := list.(*metav1.PartialObjectMetadataList); metadata || !isWatched(kind) {
		key := fmt.Sprintf("%s %s %v %v %s", kind, request.Namespace, request.FieldSelector, request.LabelSelector, request.Continue)
		return r.remember(key, list, func() error { return r.direct.List(ctx, list, options...) })
	}
	whole := &client.ListOptions{Namespace: request.Namespace, LabelSelector: request.LabelSelector, UnsafeDisableDeepCopy: request.UnsafeDisableDeepCopy}
	if err := r.cached.List(ctx, list, whole); err != nil {
		return err
	}
	list.SetContinue("")
	return nil
}

// remember reads an object unless the last response still counts. read fills the object.
func (r *reader) remember(key string, object runtime.Object, read func() error) error {
	r.mu.Lock()
	last, known := r.memory[key]
	r.mu.Unlock()
	if known && time.Since(last.at) < freshFor {
		if last.err == nil {
			reflect.ValueOf(object).Elem().Set(reflect.ValueOf(last.object.DeepCopyObject()).Elem())
		}
		return last.err
	}
	now := remembered{err: read(), at: time.Now()}
	now.object = object.DeepCopyObject()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memory[key] = now
	return now.err
}

func isWatched(kind schema.GroupVersionKind) bool {
	namespaced, clusterwide := watched()
	for _, object := range append(namespaced, clusterwide...) {
		if known, err := apiutil.GVKForObject(object, command.Scheme()); err == nil && known == kind {
			return true
		}
	}
	return false
}
