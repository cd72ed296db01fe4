package apiserver

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// writes delivers Writes in the order in which they were added, one at a time. add may be called with locks held;
// flush may not.
type writes struct {
	deliver func(Write)

	mu         sync.Mutex
	pending    []Write
	delivering bool
}

func (w *writes) add(write Write) {
	if w.deliver == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = append(w.pending, write)
}

// flush delivers what is pending, unless another request is doing so.
func (w *writes) flush() {
	for {
		w.mu.Lock()
		if w.delivering || len(w.pending) == 0 {
			w.mu.Unlock()
			return
		}
		pending := w.pending
		w.pending, w.delivering = nil, true
		w.mu.Unlock()

		for _, write := range pending {
			w.deliver(write)
		}

		w.mu.Lock()
		w.delivering = false
		w.mu.Unlock()
	}
}

// committed adds the Write of a change.
func (s *Server) committed(ctx context.Context, t *table, c change) {
	request, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return
	}
	request.changes++
	if s.writes.deliver == nil {
		return
	}
	write := request.write(c.time)
	version := s.converter.storageVersion(t.resource.Group)
	write.Before, _ = s.converter.external(c.before, version)
	write.After, _ = s.converter.external(c.after, version)
	write.Code = http.StatusOK
	object := c.after
	if c.before == nil {
		write.Code = http.StatusCreated
	}
	if object == nil {
		object = c.before
	}
	if accessor, err := meta.Accessor(object); err == nil {
		write.Name, write.Namespace = accessor.GetName(), accessor.GetNamespace()
	}
	s.writes.add(write)
}

// unchanged returns the Write of a request that changed nothing.
func (s *Server) unchanged(c *call, response *buffer) Write {
	write := c.write(time.Now())
	write.Code = max(response.code, http.StatusOK)
	if write.Code < http.StatusBadRequest || s.writes.deliver == nil {
		return write
	}
	status := &metav1.Status{}
	if err := runtime.DecodeInto(legacyscheme.Codecs.UniversalDeserializer(), response.body.Bytes(), status); err == nil {
		write.Message = status.Message
	}
	return write
}

func (c *call) write(now time.Time) Write {
	return Write{
		Time: now, User: c.user.GetName(), Verb: c.info.Verb,
		Resource: c.info.Resource, Subresource: c.info.Subresource,
		Namespace: c.info.Namespace, Name: c.info.Name,
	}
}
