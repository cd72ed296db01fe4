package main

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestPeakCountsPodsThatAreNotTerminating(t *testing.T) {
	pod := func(uid types.UID) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}} }
	leaving := pod("a")
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	p := &peak{}
	p.see(pod("a"))
	p.see(pod("a"))
	p.see(pod("b"))
	p.see(leaving)
	p.see(pod("c"))
	p.gone(pod("b"))
	p.gone(pod("b"))
	p.see(pod("d"))
	if got := p.most(); got != 2 {
		t.Errorf("got %d, want 2", got)
	}
	p.see(pod("e"))
	if got := p.most(); got != 3 {
		t.Errorf("got %d, want 3", got)
	}
}
