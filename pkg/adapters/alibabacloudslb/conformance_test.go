package alibabacloudslb_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	slb "github.com/podops-dev/podops/pkg/adapters/alibabacloudslb"
	"github.com/podops-dev/podops/pkg/adapters/alibabacloudslb/internal/slbtest"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/resourceconsist/adaptertest"
)

// actions returns the API actions that a method of the adapter calls.
func actions(op adaptertest.Op) string {
	return map[adaptertest.Op]string{
		adaptertest.ReadEmployees:   "DescribeVServerGroupAttribute",
		adaptertest.CreateEmployees: "AddVServerGroupBackendServers",
		adaptertest.UpdateEmployees: "SetVServerGroupAttribute",
		adaptertest.DeleteEmployees: "RemoveVServerGroupBackendServers",
	}[op]
}

// provider is the provider of the suite on a test server: each employer has the group
// rsp-<name>, and each employee the server eni-<name>.
type provider struct {
	*slbtest.Server
	settle func(t testing.TB)
}

// foreignServer is a server that an administrator has added to a group.
const foreignServer = "ecs-of-an-administrator"

// backends returns the backends that the adapter has added for an employer.
func (p *provider) backends(employer string) []slbtest.Backend {
	return slices.DeleteFunc(p.Backends("rsp-"+employer), func(b slbtest.Backend) bool { return b.ServerID == foreignServer })
}

// AddForeign implements adaptertest.Sharer.
func (p *provider) AddForeign(_ testing.TB, employer string) {
	other := slbtest.Backend{ServerID: foreignServer, ServerIP: "10.9.9.9", Type: "ecs", Port: 9000, Weight: 7}
	p.SetBackends("rsp-"+employer, append(p.Backends("rsp-"+employer), other)...)
}

// Foreign implements adaptertest.Sharer.
func (p *provider) Foreign(_ testing.TB, employer string) string {
	for _, b := range p.Backends("rsp-" + employer) {
		if b.ServerID == foreignServer {
			return fmt.Sprintf("%+v", b)
		}
	}
	return ""
}

// Fewest implements adaptertest.Watcher.
func (p *provider) Fewest(_ testing.TB, employer string) int {
	return p.Server.Fewest("rsp-" + employer)
}

func (p *provider) Traffic(_ testing.TB, employer string) map[string]adaptertest.Traffic {
	traffic := map[string]adaptertest.Traffic{}
	for _, b := range p.backends(employer) {
		traffic[strings.TrimPrefix(b.ServerID, "eni-")] = adaptertest.Traffic{On: b.Weight > 0, Weight: b.Weight, Address: b.ServerIP}
	}
	return traffic
}

func (p *provider) Remains(_ testing.TB, employer string) []string {
	var remains []string
	for _, b := range p.backends(employer) {
		remains = append(remains, b.ServerID)
	}
	return remains
}

func (p *provider) Inject(t testing.TB, fault adaptertest.Fault) {
	t.Helper()
	broken := slbtest.Refusal{Status: 500, Code: "InternalError", Message: "The request processing has failed due to some unknown error."}
	switch fault.Kind {
	case adaptertest.Fail:
		p.Server.Inject(slbtest.Fault{Action: actions(fault.Op), Refusal: broken})
	case adaptertest.FailOne:
		p.Server.Inject(slbtest.Fault{
			Action: actions(fault.Op), Server: "eni-" + fault.Employee,
			Refusal: slbtest.Refusal{Status: 400, Code: "InvalidParameter", Message: "The specified server is wrong."},
		})
	case adaptertest.LostReply:
		p.Server.Inject(slbtest.Fault{Action: actions(fault.Op), AfterEffect: true, Refusal: broken})
	case adaptertest.Hang:
		p.Server.Inject(slbtest.Fault{Action: actions(fault.Op), Hang: true})
	case adaptertest.Throttle:
		p.Server.Inject(slbtest.Fault{Refusal: slbtest.Throttled()})
	case adaptertest.LateEffect:
		p.Delay()
	case adaptertest.StaleReads:
		p.Lag()
	case adaptertest.Restart:
		p.SetBackends("rsp-web")
	default:
		t.Fatalf("the server does not support the fault %s", fault.Kind)
	}
}

func (p *provider) Mend(testing.TB) { p.Server.Mend() }

func (p *provider) Settle(t testing.TB) { p.settle(t) }

func (p *provider) Calls(testing.TB) int { return p.Requests() }

// fixture returns the fixture of one case.
func fixture(t testing.TB, complete func(*corev1.Service)) (adaptertest.Fixture, *provider) {
	t.Helper()
	server := slbtest.New(t)
	for _, employer := range []string{"web", "api"} {
		server.AddLoadBalancer("lb-" + employer)
		server.AddGroup("lb-"+employer, "rsp-"+employer, "k8s/8080/"+employer+"/default/c1")
	}
	api, err := slb.NewClient(config(server))
	if err != nil {
		t.Fatal(err)
	}
	cluster := adaptertest.NewServiceCluster(scheme.Scheme)
	cluster.Service = func(s *corev1.Service) {
		s.UID = types.UID("uid-of-" + s.Name)
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		complete(s)
	}
	cluster.Relocate = func(s *corev1.Service) { managed("rsp-" + s.Name + ":9090")(s) }
	adapter, err := slb.New(cluster.Client, api, func(_ context.Context, pod *corev1.Pod) (slb.Server, error) {
		return slb.Server{ID: "eni-" + pod.Name, Type: slb.ServerENI, IP: pod.Status.PodIP}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{Server: server, settle: func(testing.TB) { server.Settle() }}
	return adaptertest.Fixture{Adapter: adapter, Cluster: cluster, Provider: p}, p
}

func TestManagedServicesConform(t *testing.T) {
	for _, how := range []string{slb.OffByWeight, slb.OffByRemoval} {
		t.Run(how, func(t *testing.T) {
			cfg := adaptertest.Config{
				New: func(t testing.TB) adaptertest.Fixture {
					f, _ := fixture(t, func(s *corev1.Service) {
						managed("rsp-" + s.Name + ":8080")(s)
						annotated(slb.TrafficOffAnnotationKey, how)(s)
					})
					return f
				},
				Ops: []adaptertest.Op{
					adaptertest.ReadEmployees, adaptertest.CreateEmployees, adaptertest.UpdateEmployees, adaptertest.DeleteEmployees,
				},
				Without: map[adaptertest.Kind]string{
					adaptertest.Sessions: "the API does not report them",
					adaptertest.Weights:  "the weight is set on the Service, not on the pod",
				},
				FaultDeadline: 300 * time.Millisecond,
				Grace:         4 * time.Second,
			}
			if how == slb.OffByRemoval {
				// Weights of servers never change then.
				cfg.Ops = []adaptertest.Op{adaptertest.ReadEmployees, adaptertest.CreateEmployees, adaptertest.DeleteEmployees}
			}
			adaptertest.Run(t, cfg)
		})
	}
}

// TestObservedServicesConform simulates the cloud controller manager in Settle.
func TestObservedServicesConform(t *testing.T) {
	adaptertest.Run(t, adaptertest.Config{
		New: func(t testing.TB) adaptertest.Fixture {
			f, p := fixture(t, func(s *corev1.Service) { ofLoadBalancer("lb-" + s.Name)(s) })
			c := f.Cluster.(*adaptertest.ServiceCluster).Client
			p.settle = func(t testing.TB) {
				p.Server.Settle()
				playCCM(t, c, p.Server)
			}
			return f
		},
		Ops: []adaptertest.Op{adaptertest.ReadEmployees},
		Without: map[adaptertest.Kind]string{
			adaptertest.Sessions:   "the API does not report them",
			adaptertest.Weights:    "the cloud controller manager sets the weight",
			adaptertest.LateEffect: "the adapter changes nothing",
			adaptertest.Foreign:    "the cloud controller manager changes the backends",
			adaptertest.Moves:      "the cloud controller manager changes the backends",
		},
		FaultDeadline: 300 * time.Millisecond,
		Grace:         4 * time.Second,
	})
}

// playCCM registers exactly the pods that are ready, as their readiness gate allows.
func playCCM(t testing.TB, c client.Client, server *slbtest.Server) {
	t.Helper()
	ctx := context.Background()
	var services corev1.ServiceList
	if err := c.List(ctx, &services); err != nil {
		t.Fatal(err)
	}
	for i := range services.Items {
		s := &services.Items[i]
		var pods corev1.PodList
		if err := c.List(ctx, &pods, client.InNamespace(s.Namespace), client.MatchingLabels(s.Spec.Selector)); err != nil {
			t.Fatal(err)
		}
		var backends []slbtest.Backend
		for j := range pods.Items {
			p := &pods.Items[j]
			if lifecycle.NewPodFacts(p).ExpectsTraffic() && s.DeletionTimestamp == nil {
				backends = append(backends, slbtest.Backend{ServerID: "eni-" + p.Name, ServerIP: p.Status.PodIP, Type: "eni", Port: 8080, Weight: 100})
			}
		}
		server.SetBackends("rsp-"+s.Name, backends...)
	}
}
