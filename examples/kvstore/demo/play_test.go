package main

import "testing"

// TestThePlay plays all acts of the demo under load: no operation fails, no acknowledged write is lost, and the
// history is linearizable.
func TestThePlay(t *testing.T) {
	s := newShow(t)
	if err := s.startOperator(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.newNamespace(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	for _, a := range s.acts() {
		if !t.Run(a.name, func(t *testing.T) {
			if err := a.play(t.Context()); err != nil {
				t.Error(err)
			}
		}) {
			return
		}
	}
}
