package operator

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// maxSharedBytes bounds the encoded containers in sharedContainers: those of some thousand pod templates.
const maxSharedBytes = 2 << 20

// sharedContainers lets slim pods with equal containers share one list, since each pod of a template has the same.
type sharedContainers struct {
	mu    sync.Mutex
	lists map[string][]corev1.Container // by their encoding
	bytes int
}

// transform makes a pod slim, and replaces its containers by a list that equals them.
func (s *sharedContainers) transform(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	slimPod(pod)
	if len(pod.Spec.Containers) == 0 {
		return pod, nil
	}
	key, err := (&corev1.PodSpec{Containers: pod.Spec.Containers}).Marshal()
	if err != nil {
		return nil, fmt.Errorf("encoding the containers of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if list, ok := s.lists[string(key)]; ok {
		pod.Spec.Containers = list
		return pod, nil
	}
	if s.lists == nil || s.bytes+len(key) > maxSharedBytes {
		s.lists, s.bytes = map[string][]corev1.Container{}, 0 // pods keep their lists, and later ones share new lists
	}
	s.lists[string(key)], s.bytes = pod.Spec.Containers, s.bytes+len(key)
	return pod, nil
}
