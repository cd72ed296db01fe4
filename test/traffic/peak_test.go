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
	p, now := &peak{}, time.Unix(100, 0)
	expect := func(wantLasting, wantMoment int) {
		t.Helper()
		if lasting, moment := p.most(now); lasting != wantLasting || moment != wantMoment {
			t.Errorf("got %d lasting and %d at a moment, want %d and %d", lasting, moment, wantLasting, wantMoment)
		}
	}
	expect(0, 0)
	p.see(pod("a"), now)
	p.see(pod("a"), now)
	p.see(pod("b"), now)
	expect(0, 2)

	// A third pod exists for less than the time that counts.
	now = now.Add(peakLasts)
	p.see(pod("c"), now)
	now = now.Add(peakLasts - time.Millisecond)
	p.see(leaving, now)
	p.gone(pod("b"), now)
	p.gone(pod("b"), now)
	expect(2, 3)

	// Three others exist for as long as that.
	p.see(pod("d"), now)
	p.see(pod("e"), now)
	now = now.Add(peakLasts)
	p.gone(pod("e"), now)
	expect(3, 3)
}
