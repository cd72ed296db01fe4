package haproxy

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/adapters/haproxy/runtimeapi"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/service"
)

// Servers is a list of a backend's servers.
type Servers = []resourceconsist.IEmployee

// CreateEmployees adds servers, and turns on the servers that should take traffic.
func (a *Adapter) CreateEmployees(ctx context.Context, employer client.Object, toCreates Servers) (Servers, Servers, error) {
	service, err := service.Of(employer)
	if err != nil {
		return nil, toCreates, err
	}
	at, err := a.wanted(service)
	if err == nil {
		err = a.record(ctx, service, at)
	}
	if err != nil {
		return nil, toCreates, err
	}
	return a.carryOut(ctx, service, at, toCreates, work.add, work.rest)
}

// UpdateEmployees turns the traffic of servers on or off. A server that still has requests,
// or waits for its check, is continued by the next call.
func (a *Adapter) UpdateEmployees(ctx context.Context, employer client.Object, toUpdates Servers) (Servers, Servers, error) {
	return a.atCurrent(ctx, employer, toUpdates, work.update, work.rest)
}

// DeleteEmployees takes traffic off servers, and removes servers without open requests.
func (a *Adapter) DeleteEmployees(ctx context.Context, employer client.Object, toDeletes Servers) (Servers, Servers, error) {
	return a.atCurrent(ctx, employer, toDeletes, work.leave, work.remove)
}

// step changes one server, based on the last state that HAProxy reported for its backend.
type step func(work, context.Context, *server) error

func (a *Adapter) atCurrent(ctx context.Context, employer client.Object, items Servers, first, second step) (Servers, Servers, error) {
	service, err := service.Of(employer)
	if err != nil {
		return nil, items, err
	}
	at, placed, err := a.current(service)
	switch {
	case err != nil:
		return nil, items, err
	case !placed:
		return items, nil, nil
	}
	return a.carryOut(ctx, service, at, items, first, second)
}

// carryOut makes the first step for all servers, reads them again, and makes the next step for
// the servers whose step succeeded: most requests end during the first step of the others.
func (a *Adapter) carryOut(ctx context.Context, service *corev1.Service, at location, items Servers, steps ...step) (succeeded, failed Servers, err error) {
	succeeded = items
	for i, one := range steps {
		if i > 0 && len(succeeded) == 0 {
			break
		}
		done, left, stepErr := a.stepAll(ctx, service, at, succeeded, one)
		succeeded, failed, err = done, append(failed, left...), errors.Join(err, stepErr)
	}
	return succeeded, failed, err
}

func (a *Adapter) stepAll(ctx context.Context, svc *corev1.Service, at location, items Servers, one step) (Servers, Servers, error) {
	there, err := a.servers(ctx, svc, at)
	if err != nil {
		return nil, items, err
	}
	// Each expected server carries its own problem; the settings have defaults here.
	set, _ := readSettings(svc)
	w := work{Adapter: a, api: a.clientFor(at), at: at, set: set, there: there, moving: moving(items, there), most: max(1, len(items)/movesAtOnce)}
	return service.Each(ctx, items, func(ctx context.Context, item resourceconsist.IEmployee) error {
		s, ok := item.(*server)
		if !ok {
			return fmt.Errorf("employee %s: got a %T", item.GetEmployeeId(), item)
		}
		if err := one(w, ctx, s); err != nil {
			return fmt.Errorf("pod %s: %w", s.pod, err)
		}
		return nil
	})
}

// work is one step of a verb.
type work struct {
	*Adapter

	api   *runtimeapi.Client
	at    location
	set   settings
	there map[string]runtimeapi.Server

	// moving are the servers that are not checked at their address yet, and most is how many may be.
	moving map[string]bool
	most   int
}

// movesAtOnce divides the servers in a call: a fourth of them changes its address at once. The others serve at the former
// address until the checks of these have passed.
const movesAtOnce = 4

// moving returns the servers that wait for a check.
func moving(items Servers, there map[string]runtimeapi.Server) map[string]bool {
	names := map[string]bool{}
	for _, item := range items {
		s, ok := item.(*server)
		if !ok || !s.extra.On {
			continue
		}
		if now, exists := there[s.name]; exists && now.HasCheck && !now.Passed && now.State != runtimeapi.StateReady {
			names[s.name] = true
		}
	}
	return names
}

// mustStay reports whether a server that serves keeps its address for now. While a check runs, it has no result.
func (w work) mustStay(now runtimeapi.Server, want *server) bool {
	serves := now.State == runtimeapi.StateReady && now.Running
	return now.Address != want.extra.Address && serves && now.HasCheck && len(w.moving) >= w.most
}

// add adds a server, in maintenance, and then updates it.
func (w work) add(ctx context.Context, want *server) error {
	if want.extra.On && want.problem != nil {
		return want.problem
	}
	if _, there := w.there[want.name]; !there {
		err := w.api.Add(ctx, w.at.backend, runtimeapi.NewServer{
			Name: want.name, Address: want.extra.Address, Weight: want.extra.Weight, CheckEvery: w.set.checkEvery,
		})
		if err != nil {
			return err
		}
		w.there[want.name] = runtimeapi.Server{
			Name: want.name, Address: want.extra.Address, Weight: want.extra.Weight,
			State: runtimeapi.StateMaint, HasCheck: w.set.checkEvery > 0,
		}
	}
	return w.update(ctx, want)
}

// update brings a server as close to the expected state as it can go at once. A server that
// HAProxy lost is added by a later call.
func (w work) update(ctx context.Context, want *server) error {
	now, there := w.there[want.name]
	switch {
	case !want.extra.On:
		return w.leave(ctx, want)
	case want.problem != nil:
		return want.problem
	case !there:
		return fmt.Errorf("%w: HAProxy was restarted", runtimeapi.ErrNoServer)
	}
	if w.mustStay(now, want) {
		return nil
	}
	now, err := w.adjust(ctx, now, want)
	if err != nil {
		return err
	}
	if now.HasCheck && !now.Passed && now.State != runtimeapi.StateReady {
		return w.awaitCheck(ctx, now)
	}
	if now.State == runtimeapi.StateReady {
		return nil
	}
	return w.api.SetState(ctx, w.at.backend, want.name, runtimeapi.StateReady)
}

// adjust sets the address and the weight of a server. Its address can change only in maintenance,
// and an earlier check does not count for the new address.
func (w work) adjust(ctx context.Context, now runtimeapi.Server, want *server) (runtimeapi.Server, error) {
	if now.Address != want.extra.Address {
		if err := w.api.SetState(ctx, w.at.backend, now.Name, runtimeapi.StateMaint); err != nil {
			return now, err
		}
		if err := w.api.SetAddress(ctx, w.at.backend, now.Name, want.extra.Address); err != nil {
			return now, err
		}
		now.State, now.Passed = runtimeapi.StateMaint, false
		if now.HasCheck {
			w.moving[now.Name] = true
		}
	}
	if now.Weight != want.extra.Weight {
		if err := w.api.SetWeight(ctx, w.at.backend, now.Name, want.extra.Weight); err != nil {
			return now, err
		}
	}
	return now, nil
}

// awaitCheck drains a server, so that it is checked and gets no requests.
func (w work) awaitCheck(ctx context.Context, now runtimeapi.Server) error {
	if now.State == runtimeapi.StateMaint {
		if err := w.api.SetState(ctx, w.at.backend, now.Name, runtimeapi.StateDrain); err != nil {
			return err
		}
	}
	if now.Checked {
		return nil
	}
	return w.api.EnableCheck(ctx, w.at.backend, now.Name)
}

// leave stops new requests to a server.
func (w work) leave(ctx context.Context, one *server) error {
	if now, there := w.there[one.name]; !there || now.State != runtimeapi.StateReady {
		return nil
	}
	if err := w.api.SetState(ctx, w.at.backend, one.name, runtimeapi.StateDrain); err != nil {
		return ignoreMissing(err)
	}
	w.drains.start(w.at, one.name, w.clock.Now())
	return nil
}

// rest puts a draining server without open requests, or whose drain timeout is over, into
// maintenance: sticky sessions cannot return then.
func (w work) rest(ctx context.Context, one *server) error {
	now, there := w.there[one.name]
	if one.extra.On || !there || now.State != runtimeapi.StateDrain || (now.Sessions > 0 && !w.isOverdue(one)) {
		return nil
	}
	return ignoreMissing(w.api.SetState(ctx, w.at.backend, one.name, runtimeapi.StateMaint))
}

// remove removes a draining server without open requests. When its drain timeout is over,
// open requests are cut.
func (w work) remove(ctx context.Context, one *server) error {
	now, there := w.there[one.name]
	overdue := w.isOverdue(one)
	switch {
	case !there:
		return nil
	case now.Sessions > 0 && !overdue:
		return nil
	}
	if err := w.api.SetState(ctx, w.at.backend, one.name, runtimeapi.StateMaint); err != nil {
		return ignoreMissing(err)
	}
	if now.Sessions > 0 {
		if err := w.api.EndSessions(ctx, w.at.backend, one.name); err != nil {
			return ignoreMissing(err)
		}
	}
	err := w.api.Delete(ctx, w.at.backend, one.name)
	if errors.Is(err, runtimeapi.ErrBusy) && !overdue {
		// Connections take a moment to close. The next call removes the server.
		return nil
	}
	if err == nil {
		w.drains.forget(w.at, one.name)
	}
	return ignoreMissing(err)
}

func (w work) isOverdue(one *server) bool {
	return w.drains.elapsed(w.at, one.name, w.clock.Now()) >= w.set.drainTimeout
}

// ignoreMissing ignores ErrNoServer: a server that does not exist needs no change.
func ignoreMissing(err error) error {
	if errors.Is(err, runtimeapi.ErrNoServer) {
		return nil
	}
	return err
}
