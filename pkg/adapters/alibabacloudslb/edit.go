package alibabacloudslb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// verb is a change of a backend, in the order in which changes are made: changes that stop
// traffic come first. A pod whose backend changes gets the other backend before the former goes.
type verb int

const (
	verbRemove verb = iota
	verbSetWeight
	verbAdd
)

// edit is one change for one pod.
type edit struct {
	id      string
	verb    verb
	group   string
	backend Backend
}

// editsToReach returns the changes of a pod behind a managed Service from its registration to
// the expected state. It fails when a pod should be added whose server is unknown.
func editsToReach(want PodExtraStatus, m member, r *registration, serviceID string, settings Settings) ([]edit, error) {
	if r == nil {
		r = &registration{}
	}
	edits := removals(m.id, r.stale)
	for _, pair := range settings.Groups {
		if present := r.wanted[pair]; len(present) > 0 {
			edits = append(edits, editsOfPresent(want, m.id, pair.Group, present, settings)...)
			continue
		}
		if want.Traffic != TrafficOn {
			continue
		}
		if m.serverErr != nil {
			return nil, m.serverErr
		}
		if m.server.Type != ServerECS && m.server.IP == "" {
			return nil, fmt.Errorf("pod %s has no address yet", m.name)
		}
		edits = append(edits, edit{id: m.id, verb: verbAdd, group: pair.Group, backend: Backend{
			ServerID: m.server.ID, ServerIP: m.server.IP, Type: m.server.Type, Port: pair.Port,
			Weight: want.Weight, Description: serverDescription(serviceID, m.id, m.name),
		}})
	}
	return edits, nil
}

func editsOfPresent(want PodExtraStatus, id, group string, present []Backend, settings Settings) []edit {
	var edits []edit
	for _, backend := range present {
		switch {
		case want.Traffic != TrafficOn && settings.OffByRemoval:
			edits = append(edits, edit{id: id, verb: verbRemove, group: group, backend: backend})
		case backend.Weight != want.Weight:
			backend.Weight = want.Weight
			edits = append(edits, edit{id: id, verb: verbSetWeight, group: group, backend: backend})
		}
	}
	return edits
}

// editsToLeave returns the changes that remove a pod from every group.
func editsToLeave(id string, r *registration, settings Settings) []edit {
	if r == nil {
		return nil
	}
	edits := removals(id, r.stale)
	for _, pair := range settings.Groups {
		for _, backend := range r.wanted[pair] {
			edits = append(edits, edit{id: id, verb: verbRemove, group: pair.Group, backend: backend})
		}
	}
	return edits
}

func removals(id string, places []groupBackend) []edit {
	var edits []edit
	for _, p := range places {
		edits = append(edits, edit{id: id, verb: verbRemove, group: p.group, backend: p.backend})
	}
	return edits
}

// carryOut makes the changes in batches and returns the errors, by pod. It splits a batch
// that the API rejects because of one server until the others succeed. After
// another failure it does not try the rest: throttled calls would only prolong the
// throttling. A pod that is added loses its former backends last, and keeps them if an add fails.
func carryOut(ctx context.Context, api API, edits []edit) map[string]error {
	added := map[string]bool{}
	for _, e := range edits {
		added[e.id] = added[e.id] || e.verb == verbAdd
	}
	isLast := func(e edit) bool { return e.verb == verbRemove && added[e.id] }
	failed := map[string]error{}
	stopped := carryOutAll(ctx, api, slices.DeleteFunc(slices.Clone(edits), isLast), failed, nil)
	last := slices.DeleteFunc(slices.Clone(edits), func(e edit) bool { return !isLast(e) || failed[e.id] != nil })
	_ = carryOutAll(ctx, api, last, failed, stopped) // failed has its errors
	return failed
}

// carryOutAll makes changes, unless stopped is an error, adds the errors to failed, and returns why the rest was not tried.
func carryOutAll(ctx context.Context, api API, edits []edit, failed map[string]error, stopped error) error {
	for _, batch := range batches(edits) {
		err := stopped
		if err == nil {
			err = carryOutBatch(ctx, api, batch, failed)
		}
		if err == nil {
			continue
		}
		for _, e := range batch {
			if failed[e.id] == nil {
				failed[e.id] = err
			}
		}
		if stopped == nil && !isGroupMissing(err) {
			stopped = fmt.Errorf("not tried after: %w", err)
		}
	}
	return stopped
}

// batches sorts edits by verb and group and splits them by MaxBatch. It keeps the order
// within.
func batches(edits []edit) [][]edit {
	sorted := slices.Clone(edits)
	slices.SortStableFunc(sorted, func(x, y edit) int {
		if x.verb != y.verb {
			return int(x.verb - y.verb)
		}
		return strings.Compare(x.group, y.group)
	})
	var cut [][]edit
	for len(sorted) > 0 {
		first, n := sorted[0], 1
		for n < len(sorted) && n < MaxBatch && sorted[n].verb == first.verb && sorted[n].group == first.group {
			n++
		}
		cut = append(cut, sorted[:n])
		sorted = sorted[n:]
	}
	return cut
}

// carryOutBatch adds the rejected edits to failed, and returns an error for a failure of
// another cause.
func carryOutBatch(ctx context.Context, api API, batch []edit, failed map[string]error) error {
	err := send(ctx, api, batch)
	switch {
	case err == nil:
		return nil
	case !aboutOneServer(err):
		return err
	case len(batch) > 1:
		half := len(batch) / 2
		return errors.Join(carryOutBatch(ctx, api, batch[:half], failed), carryOutBatch(ctx, api, batch[half:], failed))
	case !settled(ctx, api, batch[0], err):
		failed[batch[0].id] = err
	}
	return nil
}

func send(ctx context.Context, api API, batch []edit) error {
	backends := make([]Backend, 0, len(batch))
	for _, e := range batch {
		backends = append(backends, e.backend)
	}
	group := batch[0].group
	switch batch[0].verb {
	case verbAdd:
		return api.Add(ctx, group, backends)
	case verbSetWeight:
		return api.SetWeight(ctx, group, backends)
	default:
		return api.Remove(ctx, group, backends)
	}
}

// settled reports whether a rejected change is in effect already, as after a stale read or
// a lost reply. When the code does not show it, it reads the group: the API does not
// document the answer to a repeated change.
func settled(ctx context.Context, api API, e edit, refusal error) bool {
	switch e.verb {
	case verbAdd:
		return meansPresent(refusal) || isThere(ctx, api, e, true)
	case verbRemove:
		return meansAbsent(refusal) || isThere(ctx, api, e, false)
	default:
		return false
	}
}

func isThere(ctx context.Context, api API, e edit, want bool) bool {
	backends, err := api.Group(ctx, e.group)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(backends, func(b Backend) bool { return b.key() == e.backend.key() }) == want
}
