package processes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

// patience is the timeout of conditions that take seconds on an idle machine.
const patience = 90 * time.Second

const (
	namespace = "default"
	image     = "my-repo/kvstore"
)

// cluster is a local control plane with a Kubelet.
type cluster struct {
	t       *testing.T
	kubelet *Kubelet
	client  kubernetes.Interface
}

// newCluster starts a control plane. The programs are in PODOPS_BIN: make test-processes.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	bin := os.Getenv("PODOPS_BIN")
	if bin == "" {
		t.Fatal("PODOPS_BIN is the folder of the programs; make test-processes sets it")
	}
	dir := t.TempDir()
	number := os.Getpid() % 100
	controlplane := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(filepath.Join(bin, "controlplane"), args...).CombinedOutput(); err != nil {
			t.Fatalf("controlplane %s: %v\n%s", args[0], err, out)
		}
	}
	folder, kubeconfig := filepath.Join(dir, "cluster"), filepath.Join(dir, "kubeconfig")
	t.Cleanup(func() { controlplane("down", "--dir", folder) })
	controlplane("up", "--bin", bin, "--dir", folder, "--kubeconfig", kubeconfig, "--parent-pid", strconv.Itoa(os.Getpid()),
		"--cidr", fmt.Sprintf("127.%d.0.0/16", 100+number))
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	kubelet, err := Start(t.Context(), Options{
		Config: config, Dir: filepath.Join(dir, "processes"), CIDR: netip.MustParsePrefix(fmt.Sprintf("127.%d.200.0/24", 100+number)),
		Programs: map[string]Program{image: {Path: filepath.Join(bin, "kvstore"), VersionVariable: "KVSTORE_VERSION", HostsVariable: "KVSTORE_HOSTS_FILE"}},
		Log:      logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := filepath.Glob(filepath.Join(dir, "processes", "logs", "*"))
			for _, log := range logs {
				text, _ := os.ReadFile(log)
				t.Logf("%s:\n%s", filepath.Base(log), text[max(0, len(text)-2000):])
			}
		}
		if err := kubelet.Close(); err != nil {
			t.Error(err)
		}
	})
	return &cluster{t: t, kubelet: kubelet, client: client}
}

// await polls until a condition holds.
func (w *cluster) await(what string, holds func(context.Context) error) {
	w.t.Helper()
	ctx, stop := context.WithTimeout(w.t.Context(), patience)
	defer stop()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := holds(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			w.t.Fatalf("timed out after %s: %s: %v", patience, what, err)
		case <-ticker.C:
		}
	}
}

// ready waits until the pods of the StatefulSet run a version and are ready, and returns them.
func (w *cluster) ready(replicas int, version string) map[string]corev1.Pod {
	w.t.Helper()
	var pods map[string]corev1.Pod
	w.await(fmt.Sprintf("%d pods with %s are ready", replicas, version), func(ctx context.Context) error {
		list, err := w.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=kv"})
		if err != nil {
			return err
		}
		pods = map[string]corev1.Pod{}
		for _, pod := range list.Items {
			pods[pod.Name] = pod
			status := pod.Status.ContainerStatuses
			if pod.DeletionTimestamp != nil || len(status) == 0 || !status[0].Ready || status[0].Image != image+":"+version {
				return fmt.Errorf("pod %s: %+v", pod.Name, status)
			}
		}
		if len(pods) != replicas {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
	return pods
}

func objects() (*corev1.Service, *appsv1.StatefulSet) {
	labels := map[string]string{"app": "kv"}
	fields := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "kv"},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true, Selector: labels, Ports: []corev1.ServicePort{{Port: 8080}},
		},
	}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "kv"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To(int32(3)), ServiceName: "kv", Selector: &metav1.LabelSelector{MatchLabels: labels}, PodManagementPolicy: appsv1.ParallelPodManagement,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "kv", Image: image + ":1.0",
					Args:           []string{"serve", "--id=$(POD_NAME)", "--host=$(POD_NAME).kv", "--listen=$(POD_IP)", "--seeds=kv", "--bootstrap=kv-0", "--data=/data"},
					Env:            []corev1.EnvVar{fields("POD_NAME", "metadata.name"), fields("POD_IP", "status.podIP")},
					Ports:          []corev1.ContainerPort{{Name: "client", ContainerPort: 8080}},
					ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromString("client")}}},
					VolumeMounts:   []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
				}}},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("fast"),
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}},
		},
	}
	return service, set
}

// call sends a request to a pod.
func call(ctx context.Context, pod corev1.Pod, method, path, body string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+pod.Status.PodIP+":8080"+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text := make([]byte, 4096)
	n, _ := answer.Body.Read(text) // answers are short
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", answer.Status, text[:n])
	}
	return string(text[:n]), nil
}

func (w *cluster) holds(pod corev1.Pod, key, value string) {
	w.t.Helper()
	w.await("the data is there", func(ctx context.Context) error {
		got, err := call(ctx, pod, http.MethodGet, "/kv/"+key, "")
		if err == nil && got != value {
			err = fmt.Errorf("%s is %q, want %q", key, got, value)
		}
		return err
	})
}

// job runs a Job and returns whether it succeeded.
func (w *cluster) job(name string, args ...string) bool {
	w.t.Helper()
	_, err := w.client.BatchV1().Jobs(namespace).Create(w.t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{BackoffLimit: ptr.To(int32(0)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "job", Image: image + ":1.0", Args: args}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	succeeded := false
	w.await("the Job "+name+" ends", func(ctx context.Context) error {
		job, err := w.client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range job.Status.Conditions {
			if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
				succeeded = c.Type == batchv1.JobComplete
				return nil
			}
		}
		return fmt.Errorf("%+v", job.Status)
	})
	return succeeded
}

// TestAStatefulSetOfProcesses goes through the life of a StatefulSet whose pods are members of
// one store. Steps depend on each other.
func TestAStatefulSetOfProcesses(t *testing.T) {
	w := newCluster(t)
	ctx := t.Context()
	service, set := objects()
	if _, err := w.client.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.AppsV1().StatefulSets(namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pods := w.ready(3, "1.0")
	if _, err := call(ctx, pods["kv-1"], http.MethodPut, "/kv/a", "1"); err != nil {
		t.Fatal(err)
	}

	t.Log("a process that is killed is started again")
	if err := w.kubelet.Kill(namespace, "kv-0"); err != nil {
		t.Fatal(err)
	}
	w.await("kv-0 has one restart and is ready", func(ctx context.Context) error {
		pod, err := w.client.CoreV1().Pods(namespace).Get(ctx, "kv-0", metav1.GetOptions{})
		if err == nil && (pod.Status.ContainerStatuses[0].RestartCount != 1 || !pod.Status.ContainerStatuses[0].Ready) {
			err = fmt.Errorf("%+v", pod.Status.ContainerStatuses)
		}
		return err
	})

	t.Log("an upgrade replaces every process, and the data stay")
	patch := []byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"` + image + `:2.0"}]`)
	if _, err := w.client.AppsV1().StatefulSets(namespace).Patch(ctx, "kv", types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, pod := range w.ready(3, "2.0") {
		if pod.UID == pods[name].UID || pod.Status.PodIP == pods[name].Status.PodIP {
			t.Errorf("pod %s has the UID or the address of the old one", name)
		}
		if status, err := call(ctx, pod, http.MethodGet, "/status", ""); err != nil || !strings.Contains(status, `"version":"2.0"`) {
			t.Errorf("%s: %v: %s", name, err, status)
		}
		w.holds(pod, "a", "1")
	}
	log, err := os.ReadFile(w.kubelet.LogFile(namespace, "kv-2"))
	if err != nil || !strings.Contains(string(log), "Ending") {
		t.Errorf("the old process of kv-2 did not get SIGTERM: %v\n%s", err, log)
	}

	t.Log("Jobs end as their processes do")
	if !w.job("healthy", "check", "--url=http://kv-0.kv.default.svc:8080", "--version=2.0") {
		t.Error("the check of kv-0 has failed")
	}
	if w.job("other", "check", "--url=http://kv-0.kv:8080", "--version=9.9", "--timeout=300ms") {
		t.Error("the check for another version has succeeded")
	}

	t.Log("a deletion ends the processes, and removes the data with the claims")
	w.delete(ctx, "kv")
}

// delete deletes the StatefulSet and its claims, and waits until nothing is left.
func (w *cluster) delete(ctx context.Context, name string) {
	w.t.Helper()
	if err := w.client.AppsV1().StatefulSets(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
	if err := w.client.CoreV1().PersistentVolumeClaims(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.await("pods and volumes are gone", func(ctx context.Context) error {
		if _, err := w.client.CoreV1().Pods(namespace).Get(ctx, name+"-0", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("a pod is left: %w", err)
		}
		volumes, err := w.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err == nil && len(volumes.Items) > 0 {
			err = fmt.Errorf("%d volumes are left, the first: %+v", len(volumes.Items), volumes.Items[0].Status)
		}
		return err
	})
	if left, err := filepath.Glob(filepath.Join(w.kubelet.options.Dir, "volumes", "*")); err != nil || len(left) > 0 {
		w.t.Errorf("directories are left: %v, %v", left, err)
	}
	if err := w.kubelet.Kill(namespace, name+"-0"); !errors.Is(err, ErrNoProcess) {
		w.t.Errorf("a process is left: %v", err)
	}
}
