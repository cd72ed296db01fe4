package main

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// peakLasts is the time for which a number of pods must exist to count. The Deployment controller bounds the sum
// of spec.replicas of its ReplicaSets. When it lowers one ReplicaSet and raises another, their pods are deleted
// and created at the same time, in any order.
const peakLasts = 500 * time.Millisecond

// peak measures the largest number of pods that exist at once. A terminating pod does not count: its controller
// has replaced it already. It is safe for concurrent use.
type peak struct {
	mu    sync.Mutex
	there map[types.UID]bool

	// since[n-1] is since when at least n pods exist.
	since []time.Time

	// moment is the largest number at any moment, lasting the largest number that existed for
	// peakLasts.
	moment, lasting int
}

// see counts a pod, unless it is terminating.
func (p *peak) see(pod *corev1.Pod, now time.Time) {
	if pod.DeletionTimestamp != nil {
		p.gone(pod, now)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.there[pod.UID] {
		return
	}
	if p.there == nil {
		p.there = map[types.UID]bool{}
	}
	p.there[pod.UID] = true
	p.since = append(p.since, now)
	p.moment = max(p.moment, len(p.there))
}

// gone removes a pod that was deleted.
func (p *peak) gone(pod *corev1.Pod, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.there[pod.UID] {
		return
	}
	p.settle(now)
	delete(p.there, pod.UID)
	p.since = p.since[:len(p.there)]
}

// settle counts the numbers of pods that have existed for long enough.
func (p *peak) settle(now time.Time) {
	for n := len(p.since); n > p.lasting; n-- {
		if now.Sub(p.since[n-1]) >= peakLasts {
			p.lasting = n
		}
	}
}

// most returns the largest number that existed for peakLasts, and the largest at any moment.
func (p *peak) most(now time.Time) (lasting, moment int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle(now)
	return p.lasting, p.moment
}
