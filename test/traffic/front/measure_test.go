package front

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/test/await"
	"github.com/podops-dev/podops/test/traffic/load"
	"github.com/podops-dev/podops/test/traffic/servers"
)

// backends is a set of real pod servers behind a real load balancer.
type backends struct {
	t          *testing.T
	b          balancer
	podServers *servers.Set
	port       int
	pods       int
}

func newBackends(t *testing.T, b balancer, pods int) *backends {
	t.Helper()
	free, err := net.Listen("tcp", "127.64.202.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	_ = free.Close()
	f := &backends{t: t, b: b, podServers: servers.New(port, 0, logr.Discard()), port: port, pods: pods}
	t.Cleanup(f.podServers.Close)
	for n := range pods {
		f.podServers.Handler().OnAdd(f.pod(n), true)
		serve(t, b, f.pod(n).Name, f.address(n))
	}
	return f
}

func (f *backends) pod(n int) *corev1.Pod {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d", n), UID: types.UID(strconv.Itoa(n))},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: fmt.Sprintf("127.64.202.%d", n+1),
			ContainerStatuses: []corev1.ContainerStatus{{ContainerID: "c", State: running}},
		},
	}
}

func (f *backends) address(n int) string {
	return net.JoinHostPort(f.pod(n).Status.PodIP, strconv.Itoa(f.port))
}

func (f *backends) restart(n int) {
	f.podServers.Handler().OnDelete(f.pod(n))
	f.podServers.Handler().OnAdd(f.pod(n), false)
}

// during sends requests, some of them slow, while do runs.
func (f *backends) during(do func()) *load.Report {
	f.t.Helper()
	l, err := load.Start(load.Options{Address: f.b.Address(), Workers: 8, Rate: 250, Paths: []string{"/", "/?work=20ms", "/?work=60ms"}})
	if err != nil {
		f.t.Fatal(err)
	}
	soFar := func(more int) {
		before := l.Report().Requests
		await.Until(f.t, "requests", func() bool { return l.Report().Requests >= before+more })
	}
	soFar(50)
	do()
	soFar(50)
	report := l.Stop()
	if err := f.podServers.Err(); err != nil {
		f.t.Error(err)
	}
	return report
}

// TestPodsThatDrainLoseNoRequest checks that the measurement itself causes no failures:
// pods that drain lose no request, with kept connections and without.
func TestPodsThatDrainLoseNoRequest(t *testing.T) {
	both(t, func(t *testing.T, b balancer) {
		f := newBackends(t, b, 4)
		report := f.during(func() {
			for n := range f.pods {
				name := f.pod(n).Name
				command(t, b, "set server web/"+name+" state drain")
				await.Until(t, "no session is left", func() bool { return sessions(t, b, name) == 0 })
				command(t, b, "set server web/"+name+" state maint")
				f.restart(n)
				command(t, b, "set server web/"+name+" state ready")
			}
		})
		if !report.OK() {
			var out strings.Builder
			_ = report.Print(&out)
			t.Errorf("requests failed: %v\n%s", report.Failures, out.String())
		}
		if len(report.Pods) != f.pods {
			t.Errorf("%d pods have answered, want all %d: %v", len(report.Pods), f.pods, report.Pods)
		}
	})
}

// TestPodsThatDoNotDrainLoseRequests checks that the measurement detects lost requests.
func TestPodsThatDoNotDrainLoseRequests(t *testing.T) {
	both(t, func(t *testing.T, b balancer) {
		f := newBackends(t, b, 4)
		report := f.during(func() {
			for n := range f.pods {
				await.Until(t, "the pod has a request", func() bool { return sessions(t, b, f.pod(n).Name) > 0 })
				f.podServers.Handler().OnDelete(f.pod(n))
			}
		})
		for _, kind := range []load.Kind{load.KeepAlive, load.OneShot} {
			if report.Kinds[kind].Failed == 0 {
				t.Errorf("of %s requests none failed, though every pod was stopped", kind)
			}
		}
	})
}
