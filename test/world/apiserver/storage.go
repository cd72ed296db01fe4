package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
)

// objects is the storage of one resource on the database. Objects are encoded and decoded as they are for etcd, which
// shortens times to seconds and finds updates that change nothing.
type objects struct {
	storage.APIObjectVersioner
	server   *Server
	database *database
	table    *table
	codec    runtime.Codec
	newFunc  func() runtime.Object
}

var _ storage.Interface = (*objects)(nil)

func (o *objects) Versioner() storage.Versioner { return o.APIObjectVersioner }

func (o *objects) Create(ctx context.Context, key string, obj, out runtime.Object, _ uint64) error {
	if version, err := o.ObjectResourceVersion(obj); err == nil && version != 0 {
		return storage.ErrResourceVersionSetOnCreate
	}
	if err := o.PrepareObjectForStorage(obj); err != nil {
		return fmt.Errorf("prepare object for storage: %w", err)
	}
	next, err := o.record(obj)
	if err != nil {
		return err
	}
	stored, err := o.swap(ctx, key, 0, next)
	if err != nil {
		return err
	}
	if !stored {
		return storage.NewKeyExistsError(key, 0)
	}
	if out != nil {
		assign(out, next.object)
	}
	return nil
}

func (o *objects) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions,
) error {
	for {
		current, exists, _ := o.database.get(o.table, key)
		if !exists {
			return storage.NewKeyNotFoundError(key, 0)
		}
		object := current.object.DeepCopyObject()
		if err := preconditions.Check(key, object); err != nil {
			return err
		}
		if err := validate(ctx, object); err != nil {
			return err
		}
		removed, err := o.database.swap(ctx, o.table, key, current.revision, record{}, func(revision uint64) error {
			assign(out, current.object)
			return o.UpdateObject(out, revision)
		})
		if err != nil || removed {
			return err
		}
	}
}

func (o *objects) Get(_ context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	current, exists, revision := o.database.get(o.table, key)
	if err := o.notNewer(options.ResourceVersion, revision); err != nil {
		return err
	}
	switch {
	case exists:
		assign(out, current.object)
		return nil
	case options.IgnoreNotFound:
		return runtime.SetZeroValue(out)
	}
	return storage.NewKeyNotFoundError(key, 0)
}

func (o *objects) GetList(_ context.Context, key string, options storage.ListOptions, list runtime.Object) error {
	records, revision := o.database.list(o.table, under(key, options.Recursive))
	if err := o.notNewer(options.ResourceVersion, revision); err != nil {
		return err
	}
	pointer, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	items := reflect.ValueOf(pointer).Elem()
	items.Set(reflect.MakeSlice(items.Type(), 0, len(records)))
	for _, r := range records {
		matches, err := options.Predicate.Matches(r.object)
		if err != nil {
			return err
		}
		if matches {
			items.Set(reflect.Append(items, reflect.ValueOf(r.object).Elem())) // shared, as the watch cache of Kubernetes shares it
		}
	}
	return o.UpdateList(list, revision, "", nil)
}

func (o *objects) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object,
) error {
	for {
		current, exists, _ := o.database.get(o.table, key)
		if !exists && !ignoreNotFound {
			return storage.NewKeyNotFoundError(key, 0)
		}
		object := o.newFunc()
		if exists {
			object = current.object.DeepCopyObject()
		}
		if err := preconditions.Check(key, object); err != nil {
			return err
		}
		changed, _, err := update(object, storage.ResponseMeta{ResourceVersion: current.revision})
		if err != nil {
			return err
		}
		if err := o.PrepareObjectForStorage(changed); err != nil {
			return fmt.Errorf("prepare object for storage: %w", err)
		}
		next, err := o.record(changed)
		if err != nil {
			return err
		}
		if exists && bytes.Equal(next.data, current.data) {
			assign(out, current.object)
			return nil
		}
		stored, err := o.swap(ctx, key, current.revision, next)
		if err != nil {
			return err
		}
		if stored {
			assign(out, next.object)
			return nil
		}
	}
}

func (o *objects) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	var name string
	if user, ok := request.UserFrom(ctx); ok {
		name = user.GetName()
	}
	return newWatcher(ctx, o, name, key, options)
}

func (o *objects) Stats(context.Context) (storage.Stats, error) {
	records, _ := o.database.list(o.table, func(string) bool { return true })
	return storage.Stats{ObjectCount: int64(len(records))}, nil
}

func (o *objects) GetCurrentResourceVersion(context.Context) (uint64, error) {
	_, _, revision := o.database.get(o.table, "")
	return revision, nil
}

func (o *objects) ReadinessCheck() error                               { return nil }
func (o *objects) RequestWatchProgress(context.Context) error          { return nil }
func (o *objects) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }
func (o *objects) CompactRevision() int64                              { return 0 }

// record returns an object as it is stored: what etcd would return of it. An object without field owners gets none with later updates.
func (o *objects) record(object runtime.Object) (record, error) {
	if !slices.Contains(o.server.options.FieldOwners, o.table.resource.Resource) {
		if accessor, err := meta.Accessor(object); err == nil {
			accessor.SetManagedFields(nil)
		}
	}
	data, err := runtime.Encode(o.codec, object)
	if err != nil {
		return record{}, fmt.Errorf("encode object: %w", err)
	}
	decoded, _, err := o.codec.Decode(data, nil, o.newFunc())
	if err != nil {
		return record{}, fmt.Errorf("decode object: %w", err)
	}
	return record{object: decoded, data: data}, nil
}

func (o *objects) swap(ctx context.Context, key string, expected uint64, next record) (bool, error) {
	return o.database.swap(ctx, o.table, key, expected, next, func(revision uint64) error {
		return o.UpdateObject(next.object, revision)
	})
}

// notNewer refuses a resourceVersion that the database has not reached.
func (o *objects) notNewer(resourceVersion string, revision uint64) error {
	wanted, err := o.ParseResourceVersion(resourceVersion)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	if wanted > revision {
		return storage.NewTooLargeResourceVersionError(wanted, revision, 1)
	}
	return nil
}

// under selects a key itself, or, for a recursive request, the keys below it.
func under(key string, recursive bool) func(string) bool {
	if !recursive {
		return func(k string) bool { return k == key }
	}
	prefix := strings.TrimSuffix(key, "/") + "/"
	return func(k string) bool { return strings.HasPrefix(k, prefix) }
}

// assign sets out to a copy of an object of the same type.
func assign(out, object runtime.Object) {
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(object.DeepCopyObject()).Elem())
}
