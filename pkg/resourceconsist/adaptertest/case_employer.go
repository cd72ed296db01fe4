package adaptertest

func employerCases() []caseSpec {
	return []caseSpec{
		{name: "employer-update", property: "a change of the employer itself reaches the provider", op: UpdateEmployer, run: employerUpdate},
		{name: "employer-deletion", property: "the provider keeps nothing of a deleted employer", run: employerDeletion},
		{name: "employer-deletion-failing", property: "a deletion of an employer that fails is finished later",
			needs: []Kind{Fail}, op: DeleteEmployees, run: employerDeletionFailing},
		{name: "neighbours", property: "changes for one employer do not affect another", needs: []Kind{Neighbours}, run: neighbours},
	}
}

func employerUpdate(w *scenario) {
	w.want(w.serving(1)...)
	w.converge("an employee serves")
	w.changeEmployer()
	todo, err := w.mustRead().employers()
	if err != nil {
		w.t.Fatalf("comparing employers: %v", err)
	}
	if len(todo.Create)+len(todo.Update)+len(todo.Delete) == 0 {
		w.t.Errorf("the employer has changed, and the expected item still equals the current item")
	}
	w.converge("an employee still serves")
	w.passes(1)
	if todo, err = w.mustRead().employers(); err != nil || len(todo.Create)+len(todo.Update)+len(todo.Delete) > 0 {
		w.t.Errorf("the change of the employer did not reach the provider: there is still %+v to do (error: %v)", todo, err)
	}
	w.replay(UpdateEmployer)
}

func (w *scenario) changeEmployer() {
	w.t.Helper()
	changer, can := w.Cluster.(EmployerChanger)
	if !can {
		w.t.Fatalf("Config.Ops has %q, and the cluster cannot change an employer: give it the method Change", UpdateEmployer)
	}
	changer.Change(w.t, w.employer)
}

func employerDeletion(w *scenario) {
	w.want(w.serving(3)...)
	w.converge("three employees serve")
	w.dismiss()
	w.converge("the employer is being deleted")
	w.untilRemains("the employer is being deleted", nil)
}

func employerDeletionFailing(w *scenario) {
	w.want(w.serving(3)...)
	w.converge("three employees serve")
	w.dismiss()
	w.Provider.Inject(w.t, Fault{Kind: Fail, Op: DeleteEmployees})
	w.passes(3)
	w.Provider.Mend(w.t)
	w.converge("the employer is being deleted, and the provider works again")
	w.untilRemains("the employer is being deleted, and the provider works again", nil)
}

func neighbours(w *scenario) {
	other := w.beside("api")
	w.want(w.serving(2)...)
	w.converge("two employees of the first employer serve")
	other.want(other.serving(2)...)
	other.converge("two employees of the second employer serve")
	w.wantUndisturbed("a second employer has come")
	w.converge("two employees of the first employer still serve")
	other.wantUndisturbed("the first employer was reconciled")
	other.dismiss()
	other.converge("the second employer is being deleted")
	other.untilRemains("the second employer is being deleted", nil)
	w.wantUndisturbed("the second employer is gone")
}

// wantUndisturbed expects the state of the provider to be as wanted, without any reconcile.
func (w *scenario) wantUndisturbed(after string) {
	w.t.Helper()
	truth := w.Provider.Traffic(w.t, w.employer)
	for _, name := range w.names() {
		if wanted, actual := w.wanted[name], truth[name]; wanted.serves() != actual.On {
			w.t.Errorf("%s: %s of employer %s now has %+v", after, name, w.employer, actual)
		}
	}
}
