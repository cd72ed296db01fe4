package podindex

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// PodStore returns the store that a reflector writes pods to, from one goroutine and in the
// order of resourceVersions.
func (x *Index) PodStore() cache.ReflectorStore { return podStore{index: x} }

type podStore struct{ index *Index }

var _ cache.ReflectorBookmarkStore = podStore{}

// Add stores a pod that the watch reported.
func (s podStore) Add(object any) error { return s.Update(object) }

// Update stores a pod that the watch reported.
func (s podStore) Update(object any) error {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("index of pods got a %T", object)
	}
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	s.index.setPod(p)
	s.index.seen = p.ResourceVersion
	return nil
}

// Delete removes a pod that was deleted, or that no longer matches the watch.
func (s podStore) Delete(object any) error {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("index of pods got a %T", object)
	}
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	s.index.deletePod(p.Namespace, p.UID)
	s.index.seen = p.ResourceVersion
	return nil
}

// Replace stores the pods of a list and removes all others.
func (s podStore) Replace(objects []any, resourceVersion string) error {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	listed := map[types.UID]bool{}
	for _, object := range objects {
		p, ok := object.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("index of pods got a %T", object)
		}
		listed[p.UID] = true
		s.index.setPod(p)
	}
	for name, n := range s.index.namespaces {
		for uid := range n.pods {
			if !listed[uid] {
				s.index.deletePod(name, uid)
			}
		}
	}
	s.index.seen = resourceVersion
	for name := range s.index.namespaces {
		s.index.notify(name)
	}
	return nil
}

// Bookmark records that no pod has changed up to a resourceVersion.
func (s podStore) Bookmark(resourceVersion string) error {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	s.index.seen = resourceVersion
	return nil
}

// Resync does nothing: nothing in the index depends on time.
func (s podStore) Resync() error { return nil }
