package haproxy_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/podops-dev/podops/pkg/adapters/haproxy"
	"github.com/podops-dev/podops/pkg/adapters/haproxy/haproxytest"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/test/builders"
)

// harness is a Service, its pods with real HTTP servers, a real HAProxy and the adapter.
// The adapter's clock advances only by calls of the test.
type harness struct {
	t       *testing.T
	proxy   *haproxytest.HAProxy
	client  client.Client
	adapter *haproxy.Adapter
	clock   *clocktesting.FakePassiveClock
	port    int
}

const drainTimeout = time.Minute

func newHarness(t *testing.T, annotations map[string]string) *harness {
	t.Helper()
	w := &harness{
		t: t, proxy: haproxytest.Start(t, "option httpchk GET /healthz"),
		clock: clocktesting.NewFakePassiveClock(builders.Epoch), port: freePort(t),
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: "web",
			Annotations: map[string]string{
				haproxy.RuntimeAnnotationKey: "unix:" + w.proxy.Socket, haproxy.BackendAnnotationKey: haproxytest.Backend,
				haproxy.PortAnnotationKey: strconv.Itoa(w.port), haproxy.DrainTimeoutAnnotationKey: drainTimeout.String(),
			},
		},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}},
	}
	for key, value := range annotations {
		service.Annotations[key] = value
	}
	w.client = fake.NewClientBuilder().WithObjects(service).Build()
	w.adapter = w.restartManager()
	return w
}

// restartManager returns an adapter without state.
func (w *harness) restartManager() *haproxy.Adapter {
	w.t.Helper()
	allowed, err := haproxy.ParseAllowed("unix:" + w.proxy.Socket)
	if err != nil {
		w.t.Fatal(err)
	}
	w.adapter = haproxy.New(w.client, haproxy.Options{Allowed: allowed}, w.clock)
	return w.adapter
}

func freePort(t testing.TB) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("%v is no TCP address", listener.Addr())
	}
	return address.Port
}

func (w *harness) service() *corev1.Service {
	w.t.Helper()
	service := &corev1.Service{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "web"}, service); err != nil {
		w.t.Fatal(err)
	}
	return service
}

func (w *harness) annotate(key, value string) {
	w.t.Helper()
	service := w.service()
	service.Annotations[key] = value
	if value == "" {
		delete(service.Annotations, key)
	}
	if err := w.client.Update(w.t.Context(), service); err != nil {
		w.t.Fatal(err)
	}
}

// ip is the address of a pod by its number.
func ip(n int) string { return fmt.Sprintf("127.0.7.%d", n+1) }

func podName(n int) string { return fmt.Sprintf("web-%d", n) }

// pod writes a pod with traffic, or one whose traffic should go off.
func (w *harness) pod(n int, on bool) {
	w.t.Helper()
	builder := builders.MakePod(podName(n)).Label("app", "web").Phase(corev1.PodRunning)
	if on {
		builder.Available()
	} else {
		builder.Gate(false).Ready().Preparing("x", "update")
	}
	pod := builder.Obj()
	pod.Namespace, pod.Status.PodIP = metav1.NamespaceDefault, ip(n)
	w.removePod(n)
	if err := w.client.Create(w.t.Context(), pod); err != nil {
		w.t.Fatal(err)
	}
}

func (w *harness) removePod(n int) {
	w.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: podName(n)}}
	if err := w.client.Delete(w.t.Context(), pod); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
}

// origin is the HTTP server in a pod. It ends without a grace period, as a killed container
// does.
type origin struct {
	healthy  atomic.Bool
	requests atomic.Int64
	held     chan struct{} // one value for each request to /slow that has arrived
	release  func()
	stop     func()
}

func (w *harness) listen(n int) *origin {
	w.t.Helper()
	o := &origin{held: make(chan struct{}, 1000)}
	o.healthy.Store(true)
	released := make(chan struct{})
	o.release = sync.OnceFunc(func() { close(released) })
	listener, err := net.Listen("tcp", net.JoinHostPort(ip(n), strconv.Itoa(w.port)))
	if err != nil {
		w.t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz":
			if !o.healthy.Load() {
				rw.WriteHeader(http.StatusServiceUnavailable)
			}
			return
		case "/slow":
			o.held <- struct{}{}
			<-released
		}
		o.requests.Add(1)
		_, _ = rw.Write([]byte(podName(n)))
	})}
	go func() { _ = server.Serve(listener) }()
	o.stop = func() {
		o.release()
		_ = server.Close()
	}
	w.t.Cleanup(o.stop)
	return o
}

// picture returns the statuses of the adapter by pod.
func (w *harness) picture() map[string]haproxy.ServerStatus {
	w.t.Helper()
	current, err := w.adapter.GetCurrentEmployee(w.t.Context(), w.service())
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]haproxy.ServerStatus{}
	for _, employee := range current {
		out[employee.GetEmployeeName()] = extraOf(w.t, employee)
	}
	return out
}

func extraOf(t *testing.T, employee resourceconsist.IEmployee) haproxy.ServerStatus {
	t.Helper()
	statuses, ok := employee.GetEmployeeStatuses().(resourceconsist.PodEmployeeStatuses)
	if !ok {
		t.Fatalf("statuses are a %T", employee.GetEmployeeStatuses())
	}
	extra, ok := statuses.ExtraStatus.(haproxy.ServerStatus)
	if !ok {
		t.Fatalf("extra status is a %T", statuses.ExtraStatus)
	}
	return extra
}

// reconcile does one reconcile as the framework does.
func (w *harness) reconcile() error {
	w.t.Helper()
	ctx, service := w.t.Context(), w.service()
	expected, err := w.adapter.GetExpectedEmployee(ctx, service)
	if err != nil {
		return err
	}
	return w.lead(ctx, service, expected)
}

// dismiss reconciles a Service of which nothing is expected.
func (w *harness) dismiss() error {
	w.t.Helper()
	return w.lead(w.t.Context(), w.service(), nil)
}

func (w *harness) lead(ctx context.Context, service *corev1.Service, expected []resourceconsist.IEmployee) error {
	w.t.Helper()
	current, err := w.adapter.GetCurrentEmployee(ctx, service)
	if err != nil {
		return err
	}
	byID := func(id string) func(resourceconsist.IEmployee) bool {
		return func(e resourceconsist.IEmployee) bool { return e.GetEmployeeId() == id }
	}
	var toCreate, toUpdate, toDelete []resourceconsist.IEmployee
	for _, want := range expected {
		at := slices.IndexFunc(current, byID(want.GetEmployeeId()))
		if at < 0 {
			toCreate = append(toCreate, want)
			continue
		}
		if same, err := want.EmployeeEqual(current[at]); err != nil {
			return err
		} else if !same {
			toUpdate = append(toUpdate, want)
		}
	}
	for _, have := range current {
		if !slices.ContainsFunc(expected, byID(have.GetEmployeeId())) {
			toDelete = append(toDelete, have)
		}
	}
	for _, step := range []struct {
		items []resourceconsist.IEmployee
		verb  func(context.Context, client.Object, []resourceconsist.IEmployee) ([]resourceconsist.IEmployee, []resourceconsist.IEmployee, error)
	}{{toDelete, w.adapter.DeleteEmployees}, {toUpdate, w.adapter.UpdateEmployees}, {toCreate, w.adapter.CreateEmployees}} {
		if len(step.items) == 0 {
			continue
		}
		if _, _, err := step.verb(ctx, service, step.items); err != nil {
			return err
		}
	}
	return nil
}

// await reconciles until a condition holds.
func (w *harness) await(what string, is func(map[string]haproxy.ServerStatus) bool) {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		err := w.reconcile()
		picture := w.picture()
		if err == nil && is(picture) {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("timed out: %s; %+v, %v", what, picture, err)
		}
	}
}

func allOn(pods ...int) func(map[string]haproxy.ServerStatus) bool {
	return func(picture map[string]haproxy.ServerStatus) bool {
		return !slices.ContainsFunc(pods, func(n int) bool { return !picture[podName(n)].On })
	}
}

// load sends requests over kept-alive connections until it is stopped. It retries none.
type load struct {
	requests atomic.Int64
	mu       sync.Mutex
	failures []string
	workers  sync.WaitGroup
	stop     context.CancelFunc
}

func (w *harness) load(workers int) *load {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{stop: cancel}
	for range workers {
		l.workers.Go(func() {
			transport := &http.Transport{MaxIdleConnsPerHost: 1}
			defer transport.CloseIdleConnections()
			for ctx.Err() == nil {
				l.requests.Add(1)
				if failure := send(transport, "http://"+w.proxy.Front+"/"); failure != "" {
					l.mu.Lock()
					l.failures = append(l.failures, failure)
					l.mu.Unlock()
				}
			}
		})
	}
	w.t.Cleanup(func() { l.end() })
	return l
}

// send uses POST, which a transport does not retry.
func send(transport http.RoundTripper, url string) string {
	request, err := http.NewRequest(http.MethodPost, url, strings.NewReader("x"))
	if err != nil {
		return err.Error()
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return response.Status
	}
	return ""
}

// end stops the load and returns the number of requests and the failures.
func (l *load) end() (requests int64, failures []string) {
	l.stop()
	l.workers.Wait()
	return l.requests.Load(), l.failures
}

// awaitMore waits until the load has sent that many more requests.
func (l *load) awaitMore(t *testing.T, more int64) {
	t.Helper()
	goal := l.requests.Load() + more
	for deadline := time.Now().Add(20 * time.Second); l.requests.Load() < goal; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests were sent, want %d", l.requests.Load(), goal)
		}
	}
}

// awaitFailure waits until a request was lost.
func (l *load) awaitFailure(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		lost := len(l.failures)
		l.mu.Unlock()
		if lost > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no request was lost")
		}
	}
}
