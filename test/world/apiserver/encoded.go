package apiserver

import (
	"bytes"
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// encoded is an event object that every watch shares, as in the watch cache of Kubernetes: it is encoded once for
// each form that clients accept.
type encoded struct {
	object runtime.Object
	metav1.Object

	mu    sync.Mutex
	forms map[runtime.Identifier]form
}

// form is an object as encoded, or the error of encoding it.
type form struct {
	data []byte
	err  error
}

var _ runtime.CacheableObject = (*encoded)(nil)

// newEncoded returns an object with its forms; an object without metadata as it is.
func newEncoded(object runtime.Object) runtime.Object {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return object
	}
	return &encoded{object: object, Object: accessor, forms: map[runtime.Identifier]form{}}
}

// CacheEncode implements runtime.CacheableObject.
func (e *encoded) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	known := e.form(id, encode)
	if known.err != nil {
		return known.err
	}
	_, err := w.Write(known.data)
	return err
}

func (e *encoded) form(id runtime.Identifier, encode func(runtime.Object, io.Writer) error) form {
	e.mu.Lock()
	defer e.mu.Unlock()
	known, ok := e.forms[id]
	if !ok {
		var buffer bytes.Buffer
		known.err = encode(e.GetObject(), &buffer)
		known.data = buffer.Bytes()
		e.forms[id] = known
	}
	return known
}

// GetObject implements runtime.CacheableObject. The copy may be changed while it is encoded.
func (e *encoded) GetObject() runtime.Object { return e.object.DeepCopyObject() }

// GetObjectKind implements runtime.Object.
func (e *encoded) GetObjectKind() schema.ObjectKind { return e.object.GetObjectKind() }

// DeepCopyObject implements runtime.Object. The object is never changed.
func (e *encoded) DeepCopyObject() runtime.Object { return e }
