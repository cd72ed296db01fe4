package adaptertest

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	rc "github.com/podops-dev/podops/pkg/resourceconsist"
)

// emptying removes every server of a pool before the pool.
type emptying struct {
	*Template
	provider *FakeProvider
}

func (e *emptying) DeleteEmployer(ctx context.Context, employer client.Object, pools []rc.IEmployer) ([]rc.IEmployer, []rc.IEmployer, error) {
	found, err := e.provider.Servers(ctx, employer.GetName())
	for _, s := range found {
		err = firstOf(err, e.provider.RemoveServer(ctx, employer.GetName(), s.ID))
	}
	if err != nil {
		return nil, pools, err
	}
	return e.Template.DeleteEmployer(ctx, employer, pools)
}

// breaking takes all servers of a call off before it changes them.
func breaking(t *Template, p *FakeProvider) rc.ReconcileAdapter {
	return &changed{Template: t, update: func(ctx context.Context, employer client.Object, items []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
		off, failed, err := each(ctx, items, func(s server) error {
			s.On = false
			return p.SetServer(ctx, employer.GetName(), s.FakeServer)
		})
		on, later, laterErr := t.UpdateEmployees(ctx, employer, off)
		return on, append(failed, later...), firstOf(err, laterErr)
	}}
}
