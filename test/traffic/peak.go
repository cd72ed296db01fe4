package main

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// peak measures the largest number of pods that exist at once. A terminating pod does not count: its controller
// has replaced it already. It is safe for concurrent use.
type peak struct {
	mu      sync.Mutex
	there   map[types.UID]bool
	largest int
}

// see counts a pod, unless it is terminating.
func (p *peak) see(pod *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod.DeletionTimestamp != nil {
		delete(p.there, pod.UID)
		return
	}
	if p.there == nil {
		p.there = map[types.UID]bool{}
	}
	p.there[pod.UID] = true
	p.largest = max(p.largest, len(p.there))
}

// gone removes a pod that was deleted.
func (p *peak) gone(pod *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.there, pod.UID)
}

// most returns the largest number so far.
func (p *peak) most() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.largest
}
