package plan

// Pod is what decides about the finalizer of one employer on one pod.
type Pod struct {
	// Selected: the employer is not going away, and selects the pod.
	Selected bool

	// Controlled: the pod is under PodOps.
	Controlled bool

	// Terminating: a deletion timestamp is set. No finalizer can be added.
	Terminating bool

	// Preparing: the lifecycle waits for traffic to go off. WantsTraffic: it should be
	// on.
	Preparing, WantsTraffic bool

	// Has: the finalizer is on the pod. Expects: the pod's annotation says that this
	// employer puts it there.
	Has, Expects bool

	// Unreadable: the annotation cannot be read. It is left as it is.
	Unreadable bool

	// Taken: the annotation says that another employer puts the same finalizer on the
	// pod, and that one came first.
	Taken bool
}

// Protection is what to change on one pod, in one write. The zero value changes nothing.
type Protection struct {
	// Expect and Forget change the annotation, Add and Remove the finalizer.
	Expect, Forget, Add, Remove bool

	// Collides: the employer would need a finalizer that is another's. It protects the
	// pod of nobody then.
	Collides bool

	// Pending: the finalizer will have to change once the provider confirms it.
	Pending bool
}

// IsEmpty reports whether nothing has to be written.
func (p Protection) IsEmpty() bool { return !p.Expect && !p.Forget && !p.Add && !p.Remove }

// Protect decides about one pod.
//
// The finalizer goes on when the provider confirms that traffic is on, for a pod that
// wants it. It goes off when the provider confirms that traffic is off, for a pod that
// prepares, terminates, has left PodOps, or is not selected any more. A pod that is
// merely unready keeps it: nobody operates on it. What the pod expects is recorded while
// it is selected, and forgotten no sooner than the finalizer goes.
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

// employed: the employer selects the pod, and PodOps looks after it.
func (p Pod) employed() bool { return p.Selected && p.Controlled }

// goes: the pod must not have the finalizer once its traffic is off.
func (p Pod) goes() bool { return p.Preparing || p.Terminating || !p.employed() }

// comes: the pod must have the finalizer once its traffic is on.
func (p Pod) comes() bool {
	return p.employed() && p.WantsTraffic && !p.Preparing && !p.Terminating && !p.Unreadable
}
