package adaptertest

import "slices"

// missingAtOnce divides the employees that serve: a fourth of them, and at least one, may be without
// traffic while all of them change.
const missingAtOnce = 4

func sharedCases() []caseSpec {
	return []caseSpec{
		{name: "foreign", property: "entries that others have at the provider are neither changed nor removed", needs: []Kind{Foreign}, run: foreignEntry},
		{name: "moves", property: "while an attribute of all employees changes, at most a fourth of them, or one, has no traffic",
			needs: []Kind{Moves}, run: moves},
	}
}

func foreignEntry(w *scenario) {
	sharer, can := w.Provider.(Sharer)
	if !can {
		w.t.Fatalf("the provider has no AddForeign: implement it, or set the reason in Config.Without[%q]", Foreign)
	}
	employees := w.serving(3)
	w.want(employees[:2]...)
	w.converge("two employees serve")
	sharer.AddForeign(w.t, w.employer)
	before := sharer.Foreign(w.t, w.employer)
	if before == "" {
		w.t.Fatalf("AddForeign has added an entry, and Foreign returns none")
	}
	still := func(after string) {
		w.t.Helper()
		w.converge(after)
		w.passes(1)
		if now := sharer.Foreign(w.t, w.employer); now != before {
			w.t.Errorf("%s, and the entry of another client is %q; it was %q. Return entries of this adapter alone, and change no others.", after, now, before)
		}
	}
	still("two employees still serve")
	employees[0].Off = true
	w.want(employees...)
	still("two employees serve, one is off")
	w.want(employees[2])
	still("two employees are gone")
	w.dismiss()
	still("the employer is being deleted")
}

func moves(w *scenario) {
	mover, can := w.Cluster.(Mover)
	watcher, sees := w.Provider.(Watcher)
	if !can || !sees {
		w.t.Fatalf("the cluster needs Move and the provider Fewest: implement them, or set the reason in Config.Without[%q]", Moves)
	}
	w.want(w.serving(4)...)
	w.converge("four employees serve")
	mover.Move(w.t, w.employer)
	if todo, err := w.mustRead().employees(); err != nil || len(slices.Concat(todo.Create, todo.Update)) < len(w.wanted) {
		w.t.Fatalf("Move changes an attribute of all employees, and the adapter would change %+v (error: %v)", todo, err)
	}
	watcher.Fewest(w.t, w.employer)
	w.converge("all employees have changed, and serve")
	if fewest, least := watcher.Fewest(w.t, w.employer), len(w.wanted)-max(1, len(w.wanted)/missingAtOnce); fewest < least {
		w.t.Errorf("while %d employees changed, %d of them served at some moment; want at least %d. Add before you remove, or change a part of them at a time.",
			len(w.wanted), fewest, least)
	}
}
