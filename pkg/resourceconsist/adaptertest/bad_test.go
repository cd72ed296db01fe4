package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	rc "github.com/podops-dev/podops/pkg/resourceconsist"
)

// badAdapters returns the template with one mistake each, of a kind that adapters have
// made.
func badAdapters() map[string]badAdapter {
	return map[string]badAdapter{
		"returns an empty list when a read fails": {
			caughtBy: "fail-read-employees",
			message:  "returned no error",
			spoil: func(t *Template, _ *FakeProvider) rc.ReconcileAdapter {
				return &changed{Template: t, current: func(ctx context.Context, employer client.Object) ([]rc.IEmployee, error) {
					servers, err := t.GetCurrentEmployee(ctx, employer)
					return servers, ignore(err, err)
				}}
			},
		},
		"confirms its own writes instead of the state of the provider": {caughtBy: "late-effect", message: "confirmed as off, and is not", spoil: remembering},
		"does not notice a restart of the provider":                    {caughtBy: "restart", message: "confirmed as on, and is not", spoil: remembering},
		"reads the provider once":                                      {caughtBy: "restart", spoil: remembering},
		"counts everything as succeeded": {caughtBy: "fail-one-create-employees", message: "counts web-0 as succeeded", spoil: verbs(func(good verbFunc) verbFunc {
			return func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
				_, _, _ = good(ctx, employer, items)
				return items, nil, nil
			}
		})},
		"stops at the first failure":                 {caughtBy: "fail-one-update-employees", message: "web-1 is reported as failed, too", spoil: verbs(stopping)},
		"lets all employees wait for one that fails": {caughtBy: "fail-one-update-employees", message: "web-1 was not changed", spoil: verbs(stopping)},
		"leaves the failed employees out": {caughtBy: "fail-one-create-employees", message: "the lists together are not the list that was passed", spoil: verbs(func(good verbFunc) verbFunc {
			return func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
				succeeded, _, err := good(ctx, employer, items)
				return succeeded, nil, err
			}
		})},
		"lists failed employees among the successful employees, too": {caughtBy: "fail-one-create-employees", message: "an id is named twice", spoil: verbs(func(good verbFunc) verbFunc {
			return func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
				_, failed, err := good(ctx, employer, items)
				return items, failed, err
			}
		})},
		"fails without an error": {caughtBy: "fail-one-create-employees", message: "something failed without an error", spoil: verbs(func(good verbFunc) verbFunc {
			return func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
				succeeded, failed, _ := good(ctx, employer, items)
				return succeeded, failed, nil
			}
		})},
		"panics when the provider fails": {caughtBy: "fail-create-employees", message: "panicked", spoil: verbs(func(good verbFunc) verbFunc {
			return func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
				succeeded, failed, err := good(ctx, employer, items)
				if err != nil {
					panic(err)
				}
				return succeeded, failed, err
			}
		})},
		"fails to create a server that exists": {caughtBy: "create-again", message: "fails when it is repeated", spoil: onlyOnce},
		"never recovers from a lost reply":     {caughtBy: "lost-reply-create-employees", message: "reply was lost", spoil: onlyOnce},
		"treats a stale read as current":       {caughtBy: "stale-reads", message: "reads are stale", spoil: onlyOnce},
		"fails to delete a server that does not exist": {caughtBy: "delete-again", message: "fails when it is repeated", spoil: func(t *Template, p *FakeProvider) rc.ReconcileAdapter {
			return &changed{Template: t, remove: func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
				return each(ctx, items, func(s server) error { return p.RemoveServer(ctx, employer.GetName(), s.ID) })
			}}
		}},
		"does not pass its context on": {caughtBy: "hang-read-employees", message: "did not return", spoil: func(t *Template, _ *FakeProvider) rc.ReconcileAdapter {
			return &changed{Template: t, current: func(_ context.Context, employer client.Object) ([]rc.IEmployee, error) {
				return t.GetCurrentEmployee(context.Background(), employer)
			}}
		}},
		"retries throttled requests at once": {caughtBy: "throttle", message: "overloads it", spoil: verbs(func(good verbFunc) verbFunc {
			return func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
				for range 1000 {
					succeeded, failed, err := good(ctx, employer, items)
					if !errors.Is(err, ErrThrottled) {
						return succeeded, failed, err
					}
				}
				return nil, items, ErrThrottled
			}
		})},
		"removes servers whose sessions are open": {caughtBy: "drain", message: "sessions were cut", spoil: func(t *Template, p *FakeProvider) rc.ReconcileAdapter {
			return &changed{Template: t, remove: func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
				return each(ctx, items, func(s server) error { return ignore(p.RemoveServer(ctx, employer.GetName(), s.ID), ErrNotFound) })
			}}
		}},
		"ignores sessions": {caughtBy: "drain", message: "confirmed as off, and is not", spoil: func(t *Template, p *FakeProvider) rc.ReconcileAdapter {
			return &changed{Template: t, current: func(ctx context.Context, employer client.Object) ([]rc.IEmployee, error) {
				found, err := p.Servers(ctx, employer.GetName())
				var servers []rc.IEmployee
				for _, s := range found {
					s.Sessions = 0
					servers = append(servers, server{s})
				}
				return servers, err
			}}
		}},
		"keeps the servers of a deleted employer": {caughtBy: "employer-deletion", message: "confirmed as off, and is not", spoil: func(t *Template, _ *FakeProvider) rc.ReconcileAdapter {
			return &changed{Template: t, current: func(ctx context.Context, employer client.Object) ([]rc.IEmployee, error) {
				if employer.GetDeletionTimestamp() != nil {
					return nil, nil
				}
				return t.GetCurrentEmployee(ctx, employer)
			}}
		}},
		"never deletes the pool of a deleted employer": {caughtBy: "employer-deletion", message: `still holds ["pool web"]`, spoil: func(t *Template, _ *FakeProvider) rc.ReconcileAdapter {
			return &poolKeeper{Template: t}
		}},
		"overwrites the list of servers":       {caughtBy: "parallel", message: "as succeeded, and the provider has", spoil: overwriting},
		"removes servers of other employers":   {caughtBy: "neighbours", message: "of employer web now has", spoil: greedy},
		"selects every pod":                    {caughtBy: "selection", message: "GetSelectedEmployeeNames", spoil: func(t *Template, _ *FakeProvider) rc.ReconcileAdapter { return &selectsAll{Template: t} }},
		"considers every server equal":         {caughtBy: "update", message: "confirmed as off, and is not", spoil: dressed(func(s server) rc.IEmployee { return content{s} })},
		"considers no server equal":            {caughtBy: "steady", message: "not reached after", spoil: dressed(func(s server) rc.IEmployee { return discontent{s} })},
		"compares only fields that it expects": {caughtBy: "equal", message: "not symmetric", spoil: dressed(func(s server) rc.IEmployee { return oneSided{s} })},
		"does not compare addresses":           {caughtBy: "update-address", message: "goes to 192.0.2.1 instead of 192.0.2.4", spoil: dressed(func(s server) rc.IEmployee { return addressless{s} })},
		"does not compare weights":             {caughtBy: "update-weight", message: "with weight 10 instead of 50", spoil: dressed(func(s server) rc.IEmployee { return weightless{s} })},
		"panics on a foreign type":             {caughtBy: "equal", message: "with a foreign type panicked", spoil: dressed(func(s server) rc.IEmployee { return trusting{s} })},
		"uses the address as the id":           {caughtBy: "ids", message: "expected ids are not unique", spoil: identified(func(s server) string { return s.Address })},
		"makes up ids": {caughtBy: "ids", message: "changed from one call to the next", spoil: func(t *Template, p *FakeProvider) rc.ReconcileAdapter {
			var mu sync.Mutex
			made := 0
			return identified(func(s server) string {
				mu.Lock()
				defer mu.Unlock()
				made++
				return fmt.Sprint(s.ID, "-", made)
			})(t, p)
		}},
		"sorts the list that was passed": {caughtBy: "create", message: "changed the list", spoil: verbs(func(good verbFunc) verbFunc {
			return func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
				succeeded, failed, err := good(ctx, employer, items)
				if len(items) > 1 {
					items[0] = items[1]
				}
				return succeeded, failed, err
			}
		})},
		"does not change the pool": {caughtBy: "employer-update", message: "did not reach the provider", spoil: func(t *Template, _ *FakeProvider) rc.ReconcileAdapter { return &rigid{Template: t} }},
		"does not report that a deletion failed": {caughtBy: "fail-delete-employer", message: "no verb reported", spoil: func(t *Template, _ *FakeProvider) rc.ReconcileAdapter {
			return &poolKeeper{Template: t}
		}},
		"removes a server at once": {caughtBy: "drain", message: "should get no new ones", spoil: func(t *Template, p *FakeProvider) rc.ReconcileAdapter {
			return &changed{Template: t, remove: func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
				return each(ctx, items, func(s server) error { return ignore(p.RemoveServer(ctx, employer.GetName(), s.ID), ErrNotFound) })
			}}
		}},
		"reports throttled requests as succeeded": {caughtBy: "throttle", message: "reported as succeeded", spoil: verbs(func(good verbFunc) verbFunc {
			return func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
				_, _, _ = good(ctx, employer, items)
				return items, nil, nil
			}
		})},
		"returns an empty list when a read is throttled": {caughtBy: "throttle", message: "reading it returns no error", spoil: func(t *Template, _ *FakeProvider) rc.ReconcileAdapter {
			return &blind{&changed{Template: t, current: func(ctx context.Context, employer client.Object) ([]rc.IEmployee, error) {
				servers, err := t.GetCurrentEmployee(ctx, employer)
				return servers, ignore(err, err)
			}}}
		}},
		"does not notice that the Service has changed": {caughtBy: "employer-update", message: "still equals the current item", spoil: func(t *Template, _ *FakeProvider) rc.ReconcileAdapter {
			return &unmoved{Template: t}
		}},
		"changes the Service that was passed": {caughtBy: "create", message: "changed the employer", spoil: verbs(func(good verbFunc) verbFunc {
			return func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
				employer.SetAnnotations(map[string]string{"seen": "yes"})
				return good(ctx, employer, items)
			}
		})},
		"returns an error and no failed employee": {caughtBy: "create", message: "there is an error and nothing failed", spoil: verbs(func(good verbFunc) verbFunc {
			return func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
				succeeded, failed, err := good(ctx, employer, items)
				return succeeded, failed, errors.Join(err, errors.New("slow"))
			}
		})},
		"deletes nothing": {caughtBy: "delete", message: "DeleteEmployees counts web-1 as succeeded", spoil: func(t *Template, _ *FakeProvider) rc.ReconcileAdapter {
			return &changed{Template: t, remove: func(_ context.Context, _ client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
				return items, nil, nil
			}}
		}},
		"writes in every reconcile": {caughtBy: "steady", message: "a reconcile called", spoil: func(t *Template, _ *FakeProvider) rc.ReconcileAdapter {
			return &restless{Template: t}
		}},
		"returns the entries of others": {caughtBy: "foreign", message: "the entry of another client is", spoil: func(t *Template, p *FakeProvider) rc.ReconcileAdapter {
			return &changed{Template: t, current: func(ctx context.Context, employer client.Object) ([]rc.IEmployee, error) {
				found, err := p.Servers(ctx, employer.GetName())
				var servers []rc.IEmployee
				for _, s := range found {
					servers = append(servers, server{s})
				}
				return servers, err
			}}
		}},
		"empties the pool of a deleted employer": {caughtBy: "foreign", message: "the employer is being deleted, and the entry of another client is", spoil: func(t *Template, p *FakeProvider) rc.ReconcileAdapter {
			return &emptying{Template: t, provider: p}
		}},
		"removes and adds servers that change": {caughtBy: "moves", message: "0 of them served", spoil: breaking},
		"retries one server that fails": {caughtBy: "fail-one-update-employees", message: "Leave retries to the framework", spoil: verbs(func(good verbFunc) verbFunc {
			return func(ctx context.Context, employer client.Object, items []rc.IEmployee) (succeeded, failed []rc.IEmployee, err error) {
				for range 1000 {
					if succeeded, failed, err = good(ctx, employer, items); err == nil {
						break
					}
				}
				return succeeded, failed, err
			}
		})},
		"hides that the provider throttles": {caughtBy: "throttle", message: "not one of resourceconsist.Throttled", spoil: verbs(func(good verbFunc) verbFunc {
			return func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
				succeeded, failed, err := good(ctx, employer, items)
				if err != nil {
					err = errors.New("the provider has failed")
				}
				return succeeded, failed, err
			}
		})},
		"considers a foreign type equal":           {caughtBy: "equal", message: "a foreign type is equal", spoil: dressed(func(s server) rc.IEmployee { return welcoming{s} })},
		"keeps the traffic of terminating pods on": {caughtBy: "terminating", message: "the first of two employees terminates: not reached", spoil: stubborn},
	}
}

type badAdapter struct {
	// caughtBy is the case that fails, and message a part of its message.
	caughtBy, message string
	spoil             func(*Template, *FakeProvider) rc.ReconcileAdapter
}

func TestBadAdaptersAreCaught(t *testing.T) {
	for name, bad := range badAdapters() {
		t.Run(name, func(t *testing.T) {
			config := templateConfig(bad.spoil)
			if bad.caughtBy == "throttle" {
				config.FaultDeadline = time.Minute // The requests are counted, on a busy machine, too.
			}
			failures := record(t, config, bad.caughtBy)
			if !strings.Contains(strings.Join(failures, "\n"), bad.message) {
				t.Errorf("the case %q does not report %q; got %q", bad.caughtBy, bad.message, failures)
			}
		})
	}
}
