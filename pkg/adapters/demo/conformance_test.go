package demo_test

import (
	"context"
	"encoding/json"
	"errors"
	"path"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"

	"github.com/podops-dev/podops/pkg/adapters/demo"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/adaptertest"
)

// spoiled is a demo.Provider that can be made to fail. Pools have the names of Services
// without their namespace.
type spoiled struct{ provider *adaptertest.FakeProvider }

var _ demo.Provider = spoiled{}

func (s spoiled) VIP(ctx context.Context, service string) (details demo.DemoServiceDetails, has bool, err error) {
	revision, err := s.provider.Pool(ctx, path.Base(service))
	if err != nil {
		return details, false, unless(err, adaptertest.ErrNotFound)
	}
	return details, true, json.Unmarshal([]byte(revision), &details)
}

func (s spoiled) PutVIP(ctx context.Context, service string, vip demo.DemoServiceDetails) error {
	revision, err := json.Marshal(vip)
	if err != nil {
		return err
	}
	if err := s.provider.CreatePool(ctx, path.Base(service), string(revision)); !errors.Is(err, adaptertest.ErrExists) {
		return err
	}
	return s.provider.SetPool(ctx, path.Base(service), string(revision))
}

func (s spoiled) DeleteVIP(ctx context.Context, service string) error {
	return unless(s.provider.DeletePool(ctx, path.Base(service)), adaptertest.ErrNotFound)
}

func (s spoiled) RealServers(ctx context.Context, service string) (map[string]resourceconsist.PodEmployeeStatuses, error) {
	found, err := s.provider.Servers(ctx, path.Base(service))
	servers := map[string]resourceconsist.PodEmployeeStatuses{}
	for _, server := range found {
		servers[server.ID] = resourceconsist.PodEmployeeStatuses{
			Ip: server.Address, LifecycleReady: server.On,
			ExtraStatus: demo.PodExtraStatus{TrafficOn: server.On, TrafficWeight: server.Weight},
		}
	}
	return servers, err
}

// PutRealServer changes the server if it is there, and adds it if it is not.
func (s spoiled) PutRealServer(ctx context.Context, service, name string, statuses resourceconsist.PodEmployeeStatuses) error {
	extra, _ := statuses.ExtraStatus.(demo.PodExtraStatus)
	server := adaptertest.FakeServer{ID: name, Address: statuses.Ip, On: extra.TrafficOn, Weight: extra.TrafficWeight}
	if err := s.provider.SetServer(ctx, path.Base(service), server); !errors.Is(err, adaptertest.ErrNotFound) {
		return err
	}
	return s.provider.AddServer(ctx, path.Base(service), server)
}

func (s spoiled) DeleteRealServer(ctx context.Context, service, name string) error {
	return unless(s.provider.RemoveServer(ctx, path.Base(service), name), adaptertest.ErrNotFound)
}

// unless returns nil for an error that says that nothing is left to do.
func unless(err, done error) error {
	if errors.Is(err, done) {
		return nil
	}
	return err
}

func TestConformance(t *testing.T) {
	adaptertest.Run(t, adaptertest.Config{
		New: func(testing.TB) adaptertest.Fixture {
			provider, faults := adaptertest.NewFakeFaults()
			cluster := adaptertest.NewServiceCluster(scheme.Scheme)
			return adaptertest.Fixture{Adapter: demo.New(cluster.Client, spoiled{provider}), Cluster: cluster, Provider: faults}
		},
		Ops: []adaptertest.Op{
			adaptertest.ReadEmployer, adaptertest.CreateEmployer, adaptertest.DeleteEmployer,
			adaptertest.ReadEmployees, adaptertest.CreateEmployees, adaptertest.UpdateEmployees, adaptertest.DeleteEmployees,
		},
		Without: map[adaptertest.Kind]string{
			adaptertest.Sessions: "the demo's provider does not tell how many sessions are open",
			adaptertest.Weights:  "every real server of the demo that serves has the same weight",
		},
	})
}
