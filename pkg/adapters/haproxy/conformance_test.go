package haproxy_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/adapters/haproxy"
	"github.com/podops-dev/podops/pkg/adapters/haproxy/haproxytest"
	"github.com/podops-dev/podops/pkg/adapters/haproxy/runtimeapi"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/adaptertest"
	"github.com/podops-dev/podops/test/builders"
)

func TestTheAdapterConforms(t *testing.T) {
	adaptertest.Run(t, adaptertest.Config{
		New: newFixture,
		// The location of a Service is kept in an annotation: creating and reading it do
		// not reach HAProxy, and it is never updated.
		Ops: []adaptertest.Op{
			adaptertest.DeleteEmployer, adaptertest.ReadEmployees,
			adaptertest.CreateEmployees, adaptertest.UpdateEmployees, adaptertest.DeleteEmployees,
		},
		Without: map[adaptertest.Kind]string{
			adaptertest.LateEffect: "a command has taken effect when HAProxy answers",
			adaptertest.StaleReads: "HAProxy answers with the current state",
			adaptertest.RetryAfter: "HAProxy has no limit, and a command that it refuses has no time to wait",
		},
		Addresses: []string{"127.0.8.1", "127.0.8.2", "127.0.8.3", "127.0.8.4"},
	})
}

func newFixture(t testing.TB) adaptertest.Fixture {
	t.Helper()
	proxy := haproxytest.Start(t)
	sessions := newSessions(t, proxy)
	gate := newGate(t, proxy)
	cluster := adaptertest.NewServiceCluster(scheme.Scheme)
	cluster.Service = func(service *corev1.Service) {
		service.Annotations = map[string]string{
			haproxy.RuntimeAnnotationKey: gate.endpoint, haproxy.BackendAnnotationKey: haproxytest.Backend,
			haproxy.PortAnnotationKey: strconv.Itoa(sessions.port),
		}
	}
	cluster.Relocate = func(service *corev1.Service) {
		service.Annotations[haproxy.PortAnnotationKey] = strconv.Itoa(freePort(t))
	}
	cluster.Weigh = func(pod *corev1.Pod, weight int) {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, haproxy.WeightAnnotationKey, strconv.Itoa(weight))
	}
	allowed, err := haproxy.ParseAllowed(gate.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	adapter := haproxy.New(cluster.Client, haproxy.Options{Allowed: allowed}, clocktesting.NewFakePassiveClock(builders.Epoch))
	return adaptertest.Fixture{Adapter: tracked{adapter, gate}, Cluster: cluster, Provider: provider{gate, sessions}}
}

// tracked is the adapter; it sets the current method in the gate.
type tracked struct {
	*haproxy.Adapter
	gate *gate
}

type (
	employers = []resourceconsist.IEmployer
	employees = []resourceconsist.IEmployee
)

func (a tracked) DeleteEmployer(ctx context.Context, employer client.Object, items employers) (employers, employers, error) {
	a.gate.op.Store(adaptertest.DeleteEmployer)
	return a.Adapter.DeleteEmployer(ctx, employer, items)
}

func (a tracked) GetCurrentEmployee(ctx context.Context, employer client.Object) (employees, error) {
	a.gate.op.Store(adaptertest.ReadEmployees)
	return a.Adapter.GetCurrentEmployee(ctx, employer)
}

func (a tracked) CreateEmployees(ctx context.Context, employer client.Object, items employees) (employees, employees, error) {
	a.gate.op.Store(adaptertest.CreateEmployees)
	return a.Adapter.CreateEmployees(ctx, employer, items)
}

func (a tracked) UpdateEmployees(ctx context.Context, employer client.Object, items employees) (employees, employees, error) {
	a.gate.op.Store(adaptertest.UpdateEmployees)
	return a.Adapter.UpdateEmployees(ctx, employer, items)
}

func (a tracked) DeleteEmployees(ctx context.Context, employer client.Object, items employees) (employees, employees, error) {
	a.gate.op.Store(adaptertest.DeleteEmployees)
	return a.Adapter.DeleteEmployees(ctx, employer, items)
}

// provider implements adaptertest.Provider with HAProxy.
type provider struct {
	*gate
	sessions *sessions
}

func (p provider) servers(t testing.TB, employer string) map[string]runtimeapi.Server {
	t.Helper()
	all, err := p.direct.Servers(t.Context(), haproxytest.Backend)
	if err != nil {
		t.Fatalf("reading what HAProxy has: %v", err)
	}
	mine := map[string]runtimeapi.Server{}
	for name, server := range all {
		if employerOf(name) == employer {
			mine[name] = server
		}
	}
	return mine
}

func (p provider) Traffic(t testing.TB, employer string) map[string]adaptertest.Traffic {
	t.Helper()
	traffic := map[string]adaptertest.Traffic{}
	for name, server := range p.servers(t, employer) {
		old := traffic[employeeOf(name)] // of an earlier pod with the same name
		traffic[employeeOf(name)] = adaptertest.Traffic{
			On: old.On || server.Serves(), Sessions: old.Sessions + server.Sessions,
			Weight: server.Weight, Address: server.Address.Addr().String(),
		}
	}
	return traffic
}

func (p provider) Remains(t testing.TB, employer string) []string {
	t.Helper()
	var names []string
	for name := range p.servers(t, employer) {
		names = append(names, name)
	}
	return names
}

func (p provider) Inject(t testing.TB, fault adaptertest.Fault) {
	t.Helper()
	if fault.Kind == adaptertest.Restart {
		p.proxy.Stop(t)
		p.proxy.Run(t)
		return
	}
	p.inject(fault)
}

func (p provider) Settle(testing.TB) {}

// foreign is a server of the backend that an administrator has added.
const foreign = "of-an-administrator"

// AddForeign implements adaptertest.Sharer.
func (p provider) AddForeign(t testing.TB, _ string) {
	t.Helper()
	server := runtimeapi.NewServer{Name: foreign, Address: netip.AddrPortFrom(netip.MustParseAddr("127.0.8.9"), 80), Weight: 3}
	if err := p.direct.Add(t.Context(), haproxytest.Backend, server); err != nil {
		t.Fatalf("adding a server: %v", err)
	}
}

// Foreign implements adaptertest.Sharer.
func (p provider) Foreign(t testing.TB, _ string) string {
	t.Helper()
	all, err := p.direct.Servers(t.Context(), haproxytest.Backend)
	if err != nil {
		t.Fatalf("reading what HAProxy has: %v", err)
	}
	server, exists := all[foreign]
	if !exists {
		return ""
	}
	return fmt.Sprintf("%s %s weight %d", server.State, server.Address, server.Weight)
}

func (p provider) Occupy(t testing.TB, employer, employee string, n int) {
	t.Helper()
	if n == 0 {
		p.sessions.end(employee)
		for p.Traffic(t, employer)[employee].Sessions > 0 {
			if t.Context().Err() != nil {
				t.Fatal("sessions do not end")
			}
		}
		return
	}
	p.sessions.open(t, employee, p.Traffic(t, employer)[employee].Address, n)
}

func (p provider) Cut(testing.TB) int { return int(p.sessions.cut.Load()) }

// sessions holds requests that stay with a server until they are ended.
type sessions struct {
	port    int
	front   string
	arrived chan arrival
	cut     atomic.Int64

	mu   sync.Mutex
	kept map[string][]*held // by employee
}

type arrival struct {
	address string
	release func()
}

// held is a request that stays open.
type held struct {
	release func()
	ending  atomic.Bool
	done    chan string
}

func newSessions(t testing.TB, proxy *haproxytest.HAProxy) *sessions {
	t.Helper()
	s := &sessions{port: freePort(t), front: proxy.Front, arrived: make(chan arrival, 100), kept: map[string][]*held{}}
	for n := range 4 {
		address := "127.0.8." + strconv.Itoa(n+1)
		serve(t, address, s.port, func(http.ResponseWriter, *http.Request) {
			released := make(chan struct{})
			s.arrived <- arrival{address, sync.OnceFunc(func() { close(released) })}
			<-released
		})
	}
	t.Cleanup(func() {
		for employee := range s.kept {
			s.end(employee)
		}
	})
	return s
}

// open sends requests until n have arrived at an address; the others end at once.
func (s *sessions) open(t testing.TB, employee, address string, n int) {
	t.Helper()
	for tries := 0; n > 0; tries++ {
		if tries > 100 {
			t.Fatalf("no requests arrive at %s", address)
		}
		one := &held{done: make(chan string, 1)}
		go func() {
			failure := send(&http.Transport{DisableKeepAlives: true}, "http://"+s.front+"/")
			if failure != "" && !one.ending.Load() {
				s.cut.Add(1)
			}
			one.done <- failure
		}()
		var came arrival
		select {
		case came = <-s.arrived:
		case failure := <-one.done:
			t.Fatalf("a request failed: %q", failure)
		case <-time.After(time.Minute):
			t.Fatal("a request does not arrive")
		}
		one.release = came.release
		if came.address != address {
			came.release()
			<-one.done
			continue
		}
		s.mu.Lock()
		s.kept[employee] = append(s.kept[employee], one)
		s.mu.Unlock()
		n--
	}
}

func (s *sessions) end(employee string) {
	s.mu.Lock()
	kept := s.kept[employee]
	delete(s.kept, employee)
	s.mu.Unlock()
	for _, one := range kept {
		one.ending.Store(true)
		one.release()
		<-one.done
	}
}
