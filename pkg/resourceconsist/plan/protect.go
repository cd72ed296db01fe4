package plan

// Pod holds the inputs for the decision on the finalizer of one employer on one pod.
type Pod struct {
	// Selected is true when the employer is not being deleted and selects the pod.
	Selected bool

	// Controlled is true when the pod is a controlled pod.
	Controlled bool

	// Terminating is true when the pod has a deletion timestamp: no finalizer can be added.
	Terminating bool

	// Preparing is true while the lifecycle waits for traffic to go off, WantsTraffic while
	// traffic should be on.
	Preparing, WantsTraffic bool

	// Has is true when the pod has the finalizer, Expects when the pod's annotation maps
	// this employer to it.
	Has, Expects bool

	// Unreadable is true when the annotation cannot be parsed. It is not changed then.
	Unreadable bool

	// Taken is true when the annotation maps another employer to the same finalizer, and
	// that employer has precedence.
	Taken bool
}

// Protection holds the changes of one pod, in one write. The zero value changes nothing.
type Protection struct {
	// Expect and Forget change the annotation, Add and Remove the finalizer.
	Expect, Forget, Add, Remove bool

	// Collides is true when the employer would need a finalizer that belongs to another
	// employer. The pod then has no protection by this employer.
	Collides bool

	// Pending is true when the finalizer must change once the provider confirms it.
	Pending bool
}

// IsEmpty reports whether nothing has to be written.
func (p Protection) IsEmpty() bool { return !p.Expect && !p.Forget && !p.Add && !p.Remove }

// Protect decides about one pod.
//
// It adds the finalizer when the provider confirms that traffic is on, for a pod that
// should have traffic. It removes the finalizer when the provider confirms that traffic is
// off, for a pod that is preparing, terminating, no longer controlled, or no longer
// selected. A pod that is merely unready keeps it: no operation waits for the pod. The
// expectation is recorded while the pod is selected, and removed together with the
// finalizer or later.
func Protect(pod Pod, traffic State) Protection {
	if pod.Taken {
		return Protection{Collides: pod.Selected}
	}
	mustGo, mustCome := pod.Has && pod.goes(), !pod.Has && pod.comes()
	out := Protection{
		Remove: mustGo && traffic == Off,
		Add:    mustCome && traffic == On,
	}
	out.Pending = mustGo != out.Remove || mustCome != out.Add
	if pod.Unreadable {
		return out
	}
	out.Expect = pod.employed() && !pod.Terminating && !pod.Expects
	out.Forget = pod.Expects && !pod.employed() && (!pod.Has || out.Remove)
	return out
}

// employed reports whether the employer selects the pod and the pod is controlled.
func (p Pod) employed() bool { return p.Selected && p.Controlled }

// goes reports whether the finalizer must be removed once the traffic of the pod is off.
func (p Pod) goes() bool { return p.Preparing || p.Terminating || !p.employed() }

// comes reports whether the finalizer must be added once the traffic of the pod is on.
func (p Pod) comes() bool {
	return p.employed() && p.WantsTraffic && !p.Preparing && !p.Terminating && !p.Unreadable
}
