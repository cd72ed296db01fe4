package processes

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

func podOf(image string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "kv-0", UID: "u", Labels: map[string]string{"app": "kv"}},
		Spec: corev1.PodSpec{
			Hostname: "kv-0", Subdomain: "kv",
			Containers: []corev1.Container{{
				Name: "kv", Image: image, Args: args,
				Env: []corev1.EnvVar{
					{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
					{Name: "HOST", Value: "$(POD_NAME).kv"},
					{Name: "DIR", Value: "/data/logs"},
				},
			}},
		},
		Status: corev1.PodStatus{PodIP: "127.1.0.1"},
	}
}

func TestCommandOf(t *testing.T) {
	programs := map[string]Program{"my-repo/kvstore": {Path: "/bin/kvstore", VersionVariable: "VERSION", HostsVariable: "HOSTS"}}
	pod := podOf("my-repo/kvstore:1.2", "serve", "--host=$(HOST)", "--data=/data", "--other=/database", "--none=$(NONE)", "/data/x")
	got, err := commandOf(pod, programs, map[string]string{"/data": "/tmp/volume"}, "/tmp/hosts")
	if err != nil {
		t.Fatal(err)
	}
	want := command{
		path:        "/bin/kvstore",
		args:        []string{"serve", "--host=kv-0.kv", "--data=/tmp/volume", "--other=/database", "--none=$(NONE)", "/tmp/volume/x"},
		environment: []string{"DIR=/tmp/volume/logs", "HOST=kv-0.kv", "HOSTS=/tmp/hosts", "POD_NAME=kv-0", "VERSION=1.2"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(command{})); diff != "" {
		t.Errorf("command (-want +got):\n%s", diff)
	}
	if _, err := commandOf(podOf("nginx:1"), programs, nil, ""); !errors.Is(err, errImage) {
		t.Errorf("an unknown image: %v, want errImage", err)
	}
}

func TestMounts(t *testing.T) {
	claims := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	k := &Kubelet{options: Options{Dir: t.TempDir()}, claims: corelisters.NewPersistentVolumeClaimLister(claims)}
	pod := podOf("kvstore:1.0")
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-kv-0"},
	}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "data-kv-0"}}
	for _, test := range []struct {
		name, volume string
		want         map[string]string
		err          error
	}{
		{name: "of a claim without a volume: none", err: errUnbound},
		{name: "of a bound claim: the directory of its volume", volume: "pvc-1", want: map[string]string{"/data": k.volume("pvc-1")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			claim.Spec.VolumeName = test.volume
			if err := claims.Update(claim); err != nil {
				t.Fatal(err)
			}
			got, err := k.mounts(pod)
			if !errors.Is(err, test.err) {
				t.Fatalf("error %v, want %v", err, test.err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("mounts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSplitImage(t *testing.T) {
	for image, want := range map[string][2]string{
		"kvstore":                    {"kvstore", "latest"},
		"kvstore:1.0":                {"kvstore", "1.0"},
		"localhost:5000/kvstore":     {"localhost:5000/kvstore", "latest"},
		"localhost:5000/kvstore:1.0": {"localhost:5000/kvstore", "1.0"},
	} {
		repository, tag := splitImage(image)
		if diff := cmp.Diff(want, [2]string{repository, tag}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", image, diff)
		}
	}
}

func TestStatusOf(t *testing.T) {
	now, before := metav1.NewTime(time.Unix(2000, 0)), metav1.NewTime(time.Unix(1000, 0))
	type summary struct {
		Phase        corev1.PodPhase
		Ready        bool
		State        string
		Restarts     int32
		Since        metav1.Time // of Ready
		LastExitCode int32
	}
	gate := func(open corev1.ConditionStatus) *corev1.Pod {
		pod := podOf("i:1")
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "gate"}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: "gate", Status: open}, {Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: before}}
		return pod
	}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		run  run
		want summary
	}{
		"created":                      {podOf("i:1"), run{}, summary{Phase: corev1.PodPending, State: "ContainerCreating", Since: now}},
		"no image":                     {podOf("i:1"), run{waiting: "ErrImagePull"}, summary{Phase: corev1.PodPending, State: "ErrImagePull", Since: now}},
		"running":                      {podOf("i:1"), run{running: true}, summary{Phase: corev1.PodRunning, State: "Running", Since: now}},
		"ready":                        {podOf("i:1"), run{running: true, ready: true}, summary{Phase: corev1.PodRunning, Ready: true, State: "Running", Since: now}},
		"ready, a gate is closed":      {gate(corev1.ConditionFalse), run{running: true, ready: true}, summary{Phase: corev1.PodRunning, State: "Running", Since: now}},
		"ready as before":              {gate(corev1.ConditionTrue), run{running: true, ready: true}, summary{Phase: corev1.PodRunning, Ready: true, State: "Running", Since: before}},
		"ended, about to be restarted": {podOf("i:1"), run{ended: true, exitCode: 137, waiting: "CrashLoopBackOff"}, summary{Phase: corev1.PodRunning, State: "CrashLoopBackOff", Since: now, LastExitCode: 137}},
		"restarted":                    {podOf("i:1"), run{running: true, ended: true, exitCode: 1, restarts: 1}, summary{Phase: corev1.PodRunning, State: "Running", Restarts: 1, Since: now, LastExitCode: 1}},
		"completed":                    {podOf("i:1"), run{ended: true, final: true}, summary{Phase: corev1.PodSucceeded, State: "Completed", Since: now}},
		"failed":                       {podOf("i:1"), run{ended: true, final: true, exitCode: 1}, summary{Phase: corev1.PodFailed, State: "Error", Since: now}},
	} {
		t.Run(name, func(t *testing.T) {
			status := statusOf(test.pod, test.run, now)
			got := summary{Phase: status.Phase, Restarts: status.ContainerStatuses[0].RestartCount}
			for _, c := range status.Conditions {
				if c.Type == corev1.PodReady {
					got.Ready, got.Since = c.Status == corev1.ConditionTrue, c.LastTransitionTime
				}
			}
			switch state := status.ContainerStatuses[0].State; {
			case state.Running != nil:
				got.State = "Running"
			case state.Waiting != nil:
				got.State = state.Waiting.Reason
			case state.Terminated != nil:
				got.State = state.Terminated.Reason
			}
			if last := status.ContainerStatuses[0].LastTerminationState.Terminated; last != nil {
				got.LastExitCode = last.ExitCode
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHostsFile(t *testing.T) {
	service := func(name string, all bool) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "kv"}, PublishNotReadyAddresses: all},
		}
	}
	pod := podOf("i:1")
	pod.Spec.Subdomain = ""
	terminating := pod.DeepCopy()
	terminating.DeletionTimestamp = &metav1.Time{}
	other := pod.DeepCopy()
	other.Labels = nil
	got := hostsFile([]named{
		{pod, "127.0.0.1", true}, {pod, "127.0.0.2", false}, {terminating, "127.0.0.3", true}, {other, "127.0.0.4", true},
		{podOf("i:1"), "127.0.0.5", false},
	}, []*corev1.Service{service("kv", true), service("client", false), {ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "manual"}}})
	names := func(name string) string {
		return " " + name + " " + name + ".shop " + name + ".shop.svc " + name + ".shop.svc.cluster.local"
	}
	want := "127.0.0.1" + names("client") + names("kv") + "\n" +
		"127.0.0.2" + names("kv") + "\n" +
		"127.0.0.3" + names("kv") + "\n" +
		"127.0.0.5" + names("kv-0.kv") + names("kv") + "\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
}
