package haproxy

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/podops-dev/podops/pkg/adapters/haproxy/runtimeapi"
	"github.com/podops-dev/podops/test/builders"
)

func serviceWith(annotations map[string]string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: annotations},
		Spec:       corev1.ServiceSpec{Ports: ports},
	}
}

func TestSettings(t *testing.T) {
	http := corev1.ServicePort{Port: 80, TargetPort: intstr.FromString("http")}
	defaults := settings{port: intstr.FromString("http"), weight: 100, drainTimeout: 30 * time.Second}
	with := func(change func(*settings)) settings {
		out := defaults
		change(&out)
		return out
	}
	for sentence, tc := range map[string]struct {
		service *corev1.Service
		want    settings
		wrong   string // in the error; empty: none
	}{
		"defaults": {serviceWith(nil, http), defaults, ""},
		"a Service without a target port": {
			serviceWith(nil, corev1.ServicePort{Port: 80}), with(func(s *settings) { s.port = intstr.FromInt32(80) }), "",
		},
		"every annotation": {
			serviceWith(map[string]string{
				PortAnnotationKey: "8080", WeightAnnotationKey: "0", CheckIntervalAnnotationKey: "2s", DrainTimeoutAnnotationKey: "0s",
			}),
			settings{port: intstr.FromInt32(8080), checkEvery: 2 * time.Second}, "",
		},
		"two ports and no port annotation":   {serviceWith(nil, http, http), with(func(s *settings) { s.port = intstr.IntOrString{} }), PortAnnotationKey},
		"a port that is a name":              {serviceWith(map[string]string{PortAnnotationKey: "http"}, http), with(func(s *settings) { s.port = intstr.IntOrString{} }), PortAnnotationKey},
		"a weight above the maximum":         {serviceWith(map[string]string{WeightAnnotationKey: "257"}, http), defaults, WeightAnnotationKey},
		"a drain timeout above the maximum":  {serviceWith(map[string]string{DrainTimeoutAnnotationKey: "1000h"}, http), defaults, DrainTimeoutAnnotationKey},
		"a drain timeout without a unit":     {serviceWith(map[string]string{DrainTimeoutAnnotationKey: "30"}, http), defaults, DrainTimeoutAnnotationKey},
		"a check interval below the minimum": {serviceWith(map[string]string{CheckIntervalAnnotationKey: "1us"}, http), defaults, CheckIntervalAnnotationKey},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := readSettings(tc.service)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(settings{})); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
			if (err != nil) != (tc.wrong != "") || err != nil && !strings.Contains(err.Error(), tc.wrong) {
				t.Errorf("err = %v, want %q in it", err, tc.wrong)
			}
		})
	}
}

func TestExpectedServerOfAPod(t *testing.T) {
	set := settings{port: intstr.FromString("http"), weight: 100}
	container := corev1.Container{Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9090}, {Name: "http", ContainerPort: 8080}}}
	made := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := builders.MakePod("web-0").Phase(corev1.PodRunning).Available().Obj()
		pod.Status.PodIP, pod.Spec.Containers = "10.0.0.1", []corev1.Container{container}
		change(pod)
		return pod
	}
	always := corev1.ContainerRestartPolicyAlways
	sidecarPort := func(policy *corev1.ContainerRestartPolicy) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Containers = nil
			pod.Spec.InitContainers = []corev1.Container{{RestartPolicy: policy, Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 9080}}}}
		}
	}
	keepOffline := func(pod *corev1.Pod) {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, "podopslifecycle.kusionstack.io/stay-offline", "")
	}
	for sentence, tc := range map[string]struct {
		change  func(*corev1.Pod)
		want    string // address, "on" or "off"; empty: nothing
		problem string
	}{
		"it should take traffic":           {func(*corev1.Pod) {}, "10.0.0.1:8080 on", ""},
		"it stays offline":                 {keepOffline, "10.0.0.1:8080 off", ""},
		"it has an IPv6 address":           {func(p *corev1.Pod) { p.Status.PodIP = "fd00::1" }, "[fd00::1]:8080 on", ""},
		"it has no address":                {func(p *corev1.Pod) { p.Status.PodIP = "" }, "", ""},
		"it has ended":                     {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "", ""},
		"it has no port of that name":      {func(p *corev1.Pod) { p.Spec.Containers = nil }, "invalid AddrPort on", `named "http"`},
		"its sidecar has the port":         {sidecarPort(&always), "10.0.0.1:9080 on", ""},
		"an init container has the port":   {sidecarPort(nil), "invalid AddrPort on", `named "http"`},
		"it has none, and stays offline":   {func(p *corev1.Pod) { p.Spec.Containers = nil; keepOffline(p) }, "", ""},
		"its weight is wrong":              {func(p *corev1.Pod) { p.Annotations = map[string]string{WeightAnnotationKey: "x"} }, "10.0.0.1:8080 on", WeightAnnotationKey},
		"its weight is wrong, and offline": {func(p *corev1.Pod) { p.Annotations = map[string]string{WeightAnnotationKey: "x"}; keepOffline(p) }, "10.0.0.1:8080 off", WeightAnnotationKey},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := expectedServer(serviceWith(nil), made(tc.change), set, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got == nil {
				if tc.want != "" {
					t.Errorf("nothing is expected, want %s", tc.want)
				}
				return
			}
			state := map[bool]string{true: "on", false: "off"}[got.extra.On]
			if text := got.extra.Address.String() + " " + state; text != tc.want {
				t.Errorf("expected is %s, want %s", text, tc.want)
			}
			if (got.problem != nil) != (tc.problem != "") || got.problem != nil && !strings.Contains(got.problem.Error(), tc.problem) {
				t.Errorf("problem = %v, want %q in it", got.problem, tc.problem)
			}
		})
	}
}

func TestAPodThatIsCreatedAgainHasAnotherServerName(t *testing.T) {
	first := builders.MakePod("web-0").UID("one").Obj()
	second := builders.MakePod("web-0").UID("two").Obj()
	if serverName(serviceWith(nil), first) == serverName(serviceWith(nil), second) {
		t.Error("both share a name, so the requests of the old pod would count for the new one")
	}
}

func TestServerNamesIdentifyTheirPod(t *testing.T) {
	label := rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`)
	subdomain := rapid.StringMatching(`[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?`)
	rapid.Check(t, func(t *rapid.T) {
		service := serviceWith(nil)
		service.Namespace, service.Name = label.Draw(t, "namespace"), label.Draw(t, "service")
		other := serviceWith(nil)
		other.Namespace, other.Name = label.Draw(t, "other namespace"), label.Draw(t, "other service")
		pod := builders.MakePod(subdomain.Draw(t, "pod")).UID(types.UID(rapid.String().Draw(t, "uid"))).Obj()
		name := serverName(service, pod)
		if err := runtimeapi.CheckServer(name); err != nil {
			t.Fatalf("HAProxy does not accept the name: %v", err)
		}
		if got, ours := parseServerName(service, name); !ours || got != pod.Name {
			t.Fatalf("parseServerName(%q) = %q, %v", name, got, ours)
		}
		same := service.Namespace == other.Namespace && service.Name == other.Name
		if _, ours := parseServerName(other, name); ours && !same {
			t.Fatalf("%q counts as a server of %s/%s, too", name, other.Namespace, other.Name)
		}
	})
}

func TestAllowedRuntimeAPIs(t *testing.T) {
	allowed, err := ParseAllowed("unix:/run/haproxy/, unix:/tmp/a.sock,tcp:lb.example.com:9999, 10.0.4.0/24,fd00::/64,")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"/run/haproxy/admin.sock":   true,
		"/run/haproxy/b/admin.sock": true,
		"/run/haproxy":              false,
		"/run/haproxy2/admin.sock":  false,
		"/tmp/a.sock":               true,
		"/tmp/b.sock":               false,
		"lb.example.com:9999":       true,
		"lb.example.com:9998":       false,
		"other.example.com:9999":    false,
		"10.0.4.9:1":                true,
		"[::ffff:10.0.4.9]:1":       true,
		"10.0.5.9:1":                false,
		"[fd00::9]:1":               true,
		"169.254.169.254:80":        false,
	} {
		endpoint, err := runtimeapi.ParseEndpoint(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := allowed.check(endpoint); (err == nil) != want {
			t.Errorf("check(%s) = %v, want allowed: %v", text, err, want)
		}
	}
	if err := (Allowed{}).check(runtimeapi.Endpoint{Network: "unix", Address: "/run/haproxy/admin.sock"}); err == nil {
		t.Error("the zero value must allow nothing")
	}
	for _, list := range []string{"haproxy", "tcp:10.0.0.4:9999/", "10.0.0.0/99", "unix:/", "unix:relative/"} {
		if _, err := ParseAllowed(list); err == nil {
			t.Errorf("ParseAllowed(%q): no error", list)
		}
	}
}

func TestDrainRecordsAreRemovedWithTheirServers(t *testing.T) {
	var l drains
	at, now := location{backend: "web"}, builders.Epoch
	l.start(at, "a", now)
	l.start(at, "theirs", now)
	if got := l.elapsed(at, "a", now.Add(time.Minute)); got != time.Minute {
		t.Errorf("elapsed = %s, want a minute", got)
	}
	if got := l.elapsed(at, "unknown", now); got != 0 {
		t.Errorf("elapsed of an unknown server = %s, want 0", got)
	}
	l.keep(at, func(name string) bool { return name != "theirs" }, func(string) bool { return false })
	if got := l.elapsed(at, "theirs", now.Add(time.Minute)); got != time.Minute {
		t.Errorf("elapsed of another Service's server = %s, want a minute", got)
	}
	l.forget(at, "theirs")
	if len(l.since) > 0 {
		t.Errorf("remembered: %v", l.since)
	}
}

func TestEmployeeEqualIsSymmetricAndFalseWhileDraining(t *testing.T) {
	states := []ServerStatus{{On: true, Weight: 1}, {On: true, Weight: 2}, {Off: true, Weight: 1}, {Off: true, Weight: 2}, {Weight: 1}}
	for i, a := range states {
		for j, b := range states {
			one, other := &server{name: "a", extra: a}, &server{name: "a", extra: b}
			ab, err := one.EmployeeEqual(other)
			if err != nil {
				t.Fatal(err)
			}
			ba, err := other.EmployeeEqual(one)
			if err != nil {
				t.Fatal(err)
			}
			want := i == j || a.Off && b.Off
			if ab != want || ba != want {
				t.Errorf("%+v and %+v: equal is %v and %v, want %v", a, b, ab, ba, want)
			}
		}
	}
	if _, err := (&server{}).EmployeeEqual(nil); err == nil {
		t.Error("comparing with an employee of another adapter: no error")
	}
}
