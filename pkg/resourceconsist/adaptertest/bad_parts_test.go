package adaptertest

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rc "github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/service"
)

type (
	verbFunc func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error)
	readFunc func(ctx context.Context, employer client.Object) ([]rc.IEmployee, error)
)

// changed is the template with some of its methods replaced.
type changed struct {
	*Template
	expected, current      readFunc
	create, update, remove verbFunc
}

func (c *changed) GetExpectedEmployee(ctx context.Context, employer client.Object) ([]rc.IEmployee, error) {
	return replaced(c.expected, c.Template.GetExpectedEmployee)(ctx, employer)
}

func (c *changed) GetCurrentEmployee(ctx context.Context, employer client.Object) ([]rc.IEmployee, error) {
	return replaced(c.current, c.Template.GetCurrentEmployee)(ctx, employer)
}

func (c *changed) CreateEmployees(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
	return replacedVerb(c.create, c.Template.CreateEmployees)(ctx, employer, items)
}

func (c *changed) UpdateEmployees(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
	return replacedVerb(c.update, c.Template.UpdateEmployees)(ctx, employer, items)
}

func (c *changed) DeleteEmployees(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
	return replacedVerb(c.remove, c.Template.DeleteEmployees)(ctx, employer, items)
}

func replaced(by, original readFunc) readFunc {
	if by != nil {
		return by
	}
	return original
}

func replacedVerb(by, original verbFunc) verbFunc {
	if by != nil {
		return by
	}
	return original
}

// verbs changes the three verbs for employees in the same way.
func verbs(spoil func(good verbFunc) verbFunc) func(*Template, *FakeProvider) rc.ReconcileAdapter {
	return func(t *Template, _ *FakeProvider) rc.ReconcileAdapter {
		return &changed{Template: t, create: spoil(t.CreateEmployees), update: spoil(t.UpdateEmployees), remove: spoil(t.DeleteEmployees)}
	}
}

// stopping stops at the first failure.
func stopping(good verbFunc) verbFunc {
	return func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
		for i, item := range items {
			if _, _, err := good(ctx, employer, []rc.IEmployee{item}); err != nil {
				return items[:i], items[i:], err
			}
		}
		return items, nil, nil
	}
}

func (s server) bare() server { return s }

// dressed wraps every employee in another type, which the verbs unwrap.
func dressed(dress func(server) rc.IEmployee) func(*Template, *FakeProvider) rc.ReconcileAdapter {
	read := func(good readFunc) readFunc {
		return func(ctx context.Context, employer client.Object) ([]rc.IEmployee, error) {
			bare, err := good(ctx, employer)
			worn := make([]rc.IEmployee, len(bare))
			for i, item := range bare {
				worn[i] = dress(item.(server))
			}
			return worn, err
		}
	}
	verb := func(good verbFunc) verbFunc {
		return func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
			return each(ctx, items, func(item interface{ bare() server }) error {
				_, _, err := good(ctx, employer, []rc.IEmployee{item.bare()})
				return err
			})
		}
	}
	return func(t *Template, _ *FakeProvider) rc.ReconcileAdapter {
		return &changed{
			Template: t, expected: read(t.GetExpectedEmployee), current: read(t.GetCurrentEmployee),
			create: verb(t.CreateEmployees), update: verb(t.UpdateEmployees), remove: verb(t.DeleteEmployees),
		}
	}
}

type (
	content     struct{ server }
	discontent  struct{ server }
	oneSided    struct{ server }
	addressless struct{ server }
	weightless  struct{ server }
	trusting    struct{ server }
	welcoming   struct{ server }
	renamed     struct {
		server
		id string
	}
)

func bareOf(e rc.IEmployee) (server, bool) {
	dressed, is := e.(interface{ bare() server })
	if !is {
		return server{}, false
	}
	return dressed.bare(), true
}

func (c content) EmployeeEqual(e rc.IEmployee) (bool, error) { _, is := bareOf(e); return is, nil }

func (d discontent) EmployeeEqual(rc.IEmployee) (bool, error) { return false, nil }

// EmployeeEqual accepts traffic that goes to an employee that should have none.
func (o oneSided) EmployeeEqual(e rc.IEmployee) (bool, error) {
	other, is := bareOf(e)
	other.On = other.On && o.On
	return is && other == o.server, nil
}

// GetEmployeeId is the name, which the pod keeps when its address changes.
func (a addressless) GetEmployeeId() string { return a.Name } //nolint:staticcheck // the name is the interface's

func (a addressless) EmployeeEqual(e rc.IEmployee) (bool, error) {
	other, is := bareOf(e)
	other.Address, other.ID = a.Address, a.ID
	return is && other == a.server, nil
}

func (w weightless) EmployeeEqual(e rc.IEmployee) (bool, error) {
	other, is := bareOf(e)
	other.Weight = w.Weight
	return is && other == w.server, nil
}

func (t trusting) EmployeeEqual(e rc.IEmployee) (bool, error) { return e.(trusting) == t, nil }

func (w welcoming) EmployeeEqual(e rc.IEmployee) (bool, error) {
	other, is := bareOf(e)
	return !is || other == w.server, nil
}

func (r renamed) GetEmployeeId() string { return r.id } //nolint:staticcheck // the name is the interface's

func (r renamed) EmployeeEqual(e rc.IEmployee) (bool, error) {
	other, is := bareOf(e)
	return is && other == r.server, nil
}

// identified changes the ids of servers, and accepts servers without an address.
func identified(id func(server) string) func(*Template, *FakeProvider) rc.ReconcileAdapter {
	return func(t *Template, p *FakeProvider) rc.ReconcileAdapter {
		bad := dressed(func(s server) rc.IEmployee { return renamed{server: s, id: id(s)} })(t, p).(*changed)
		known := bad.expected
		bad.expected = func(ctx context.Context, employer client.Object) ([]rc.IEmployee, error) {
			servers, err := known(ctx, employer)
			pods, listing := service.Selected(ctx, t.Client, employer)
			for i := range pods {
				if s := (server{FakeServer{ID: pods[i].Name}}); pods[i].Status.PodIP == "" {
					servers = append(servers, renamed{server: s, id: id(s)})
				}
			}
			return servers, firstOf(err, listing)
		}
		return bad
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// remembering reads an employer's servers once, and then returns the servers that it has sent.
func remembering(t *Template, _ *FakeProvider) rc.ReconcileAdapter {
	var mu sync.Mutex
	history := map[string]map[string]rc.IEmployee{}
	note := func(good verbFunc, change func(servers map[string]rc.IEmployee, item rc.IEmployee)) verbFunc {
		return func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
			succeeded, failed, err := good(ctx, employer, items)
			mu.Lock()
			defer mu.Unlock()
			for _, item := range succeeded {
				change(history[employer.GetName()], item)
			}
			return succeeded, failed, err
		}
	}
	set := func(servers map[string]rc.IEmployee, item rc.IEmployee) { servers[item.GetEmployeeId()] = item }
	unset := func(servers map[string]rc.IEmployee, item rc.IEmployee) {
		if s := item.(server); s.On {
			s.On = false
			servers[s.ID] = s
			return
		}
		delete(servers, item.GetEmployeeId())
	}
	return &changed{
		Template: t, create: note(t.CreateEmployees, set), update: note(t.UpdateEmployees, set), remove: note(t.DeleteEmployees, unset),
		current: func(ctx context.Context, employer client.Object) ([]rc.IEmployee, error) {
			mu.Lock()
			defer mu.Unlock()
			if history[employer.GetName()] == nil {
				servers, err := t.GetCurrentEmployee(ctx, employer)
				if err != nil {
					return nil, err
				}
				history[employer.GetName()] = map[string]rc.IEmployee{}
				for _, s := range servers {
					set(history[employer.GetName()], s)
				}
			}
			return slices.Collect(maps.Values(history[employer.GetName()])), nil
		},
	}
}

// overwriting replaces the list of servers by its last read and the new servers. A
// concurrent call loses its write.
func overwriting(t *Template, p *FakeProvider) rc.ReconcileAdapter {
	var mu sync.Mutex
	seen := map[string][]rc.IEmployee{}
	return &changed{
		Template: t,
		current: func(ctx context.Context, employer client.Object) ([]rc.IEmployee, error) {
			servers, err := t.GetCurrentEmployee(ctx, employer)
			mu.Lock()
			defer mu.Unlock()
			seen[employer.GetName()] = servers
			return servers, err
		},
		create: func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
			mu.Lock()
			defer mu.Unlock()
			list := map[string]bool{}
			for _, item := range slices.Concat(seen[employer.GetName()], items) {
				list[item.GetEmployeeId()] = true
			}
			found, err := p.Servers(ctx, employer.GetName())
			for _, s := range found {
				if !list[s.ID] {
					err = firstOf(err, p.RemoveServer(ctx, employer.GetName(), s.ID))
				}
			}
			if err != nil {
				return nil, items, err
			}
			return t.CreateEmployees(ctx, employer, items)
		},
	}
}

// onlyOnce fails to create a server that exists.
func onlyOnce(t *Template, p *FakeProvider) rc.ReconcileAdapter {
	return &changed{Template: t, create: func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
		return each(ctx, items, func(s server) error { return p.AddServer(ctx, employer.GetName(), s.FakeServer) })
	}}
}

// greedy removes from every pool the servers that are not employees of the employer at
// hand.
func greedy(t *Template, p *FakeProvider) rc.ReconcileAdapter {
	return &changed{Template: t, current: func(ctx context.Context, employer client.Object) ([]rc.IEmployee, error) {
		if employer.GetName() == "api" {
			servers, err := p.Servers(ctx, "web")
			if err != nil {
				return nil, err
			}
			for _, s := range servers {
				if err := p.RemoveServer(ctx, "web", s.ID); err != nil {
					return nil, err
				}
			}
		}
		return t.GetCurrentEmployee(ctx, employer)
	}}
}

// stubborn expects terminating pods to be on.
func stubborn(t *Template, _ *FakeProvider) rc.ReconcileAdapter {
	return &changed{Template: t, expected: func(ctx context.Context, employer client.Object) ([]rc.IEmployee, error) {
		servers, err := t.GetExpectedEmployee(ctx, employer)
		pods, listing := service.Selected(ctx, t.Client, employer)
		for i, item := range servers {
			s := item.(server)
			s.On = s.On || slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.Name == s.Name && pod.DeletionTimestamp != nil })
			servers[i] = s
		}
		return servers, firstOf(err, listing)
	}}
}

// selectsAll returns every pod of the namespace as selected.
type selectsAll struct{ *Template }

func (e *selectsAll) GetSelectedEmployeeNames(ctx context.Context, employer client.Object) ([]string, error) {
	var pods corev1.PodList
	err := e.Client.List(ctx, &pods, client.InNamespace(employer.GetNamespace()))
	names := make([]string, len(pods.Items))
	for i := range pods.Items {
		names[i] = pods.Items[i].Name
	}
	return names, err
}

// poolKeeper never deletes pools.
type poolKeeper struct{ *Template }

func (*poolKeeper) DeleteEmployer(_ context.Context, _ client.Object, pools []rc.IEmployer) ([]rc.IEmployer, []rc.IEmployer, error) {
	return pools, nil, nil
}

// rigid never changes a pool.
type rigid struct{ *Template }

func (*rigid) UpdateEmployer(_ context.Context, _ client.Object, pools []rc.IEmployer) ([]rc.IEmployer, []rc.IEmployer, error) {
	return pools, nil, nil
}

// restless never finds its pool equal.
type restless struct{ *Template }

type uneasy struct{ pool }

func (uneasy) EmployerEqual(rc.IEmployer) (bool, error) { return false, nil }

func (r *restless) GetExpectedEmployer(ctx context.Context, employer client.Object) ([]rc.IEmployer, error) {
	pools, err := r.Template.GetExpectedEmployer(ctx, employer)
	for i, p := range pools {
		pools[i] = uneasy{p.(pool)}
	}
	return pools, err
}

func (r *restless) CreateEmployer(ctx context.Context, employer client.Object, pools []rc.IEmployer) ([]rc.IEmployer, []rc.IEmployer, error) {
	return each(ctx, pools, func(p uneasy) error {
		_, _, err := r.Template.CreateEmployer(ctx, employer, []rc.IEmployer{p.pool})
		return err
	})
}

func (r *restless) UpdateEmployer(_ context.Context, _ client.Object, pools []rc.IEmployer) ([]rc.IEmployer, []rc.IEmployer, error) {
	return pools, nil, nil
}

// blind returns no pool while the provider does not answer.
type blind struct{ *changed }

func (b *blind) GetCurrentEmployer(ctx context.Context, employer client.Object) ([]rc.IEmployer, error) {
	pools, err := b.Template.GetCurrentEmployer(ctx, employer)
	return pools, ignore(err, err)
}

// unmoved always returns the first expected state of a pool.
type unmoved struct{ *Template }

func (*unmoved) GetExpectedEmployer(_ context.Context, employer client.Object) ([]rc.IEmployer, error) {
	return []rc.IEmployer{pool{Name: employer.GetName()}}, nil
}
