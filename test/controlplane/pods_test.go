package controlplane_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	namespace = metav1.NamespaceDefault
	gate      = "test.podops.dev/gate"
)

// TestPods shares one cluster among all tests of pods.
func TestPods(t *testing.T) {
	c := newCluster(t)
	for name, test := range map[string]func(*testing.T, *testCluster){
		"a Deployment gets running pods with loopback addresses of their nodes": testDeployment,
		"readiness follows a readiness gate in both directions":                 testReadinessGate,
		"readiness follows the probe":                                           testProbe,
		"a changed image restarts the container in place":                       testImageChange,
		"a deleted pod is removed":                                              testDelete,
		"a pod with a finalizer terminates and stays until it is dropped":       testFinalizer,
		"a kubelet has only the rights of a kubelet":                            testKubeletRights,
		"the audit log has every write and its user":                            testAuditLog,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

func testDeployment(t *testing.T, c *testCluster) {
	admin := c.admin(t)
	const replicas = 6
	labels := map[string]string{"app": "web"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(replicas)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
	}
	if _, err := admin.AppsV1().Deployments(namespace).Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all replicas available", func() error {
		d, err := admin.AppsV1().Deployments(namespace).Get(t.Context(), "web", metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas != replicas {
			err = fmt.Errorf("%d of %d available", d.Status.AvailableReplicas, replicas)
		}
		return err
	})
	pods, err := admin.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	ranges := map[string]netip.Prefix{
		"node-1": netip.MustParsePrefix("127.64.1.0/24"),
		"node-2": netip.MustParsePrefix("127.64.2.0/24"),
	}
	seen := map[string]bool{}
	for _, pod := range pods.Items {
		if pod.Status.Phase != corev1.PodRunning {
			t.Errorf("pod %s is %s", pod.Name, pod.Status.Phase)
		}
		if seen[pod.Status.PodIP] {
			t.Errorf("address %s is taken twice", pod.Status.PodIP)
		}
		seen[pod.Status.PodIP] = true
		if address, err := netip.ParseAddr(pod.Status.PodIP); err != nil || !ranges[pod.Spec.NodeName].Contains(address) {
			t.Errorf("pod %s on %s has address %q (%v)", pod.Name, pod.Spec.NodeName, pod.Status.PodIP, err)
		}
	}
	foreground := metav1.DeletePropagationForeground
	if err := admin.AppsV1().Deployments(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the garbage collector removes the pods", func() error {
		left, err := admin.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d left", len(left.Items))
		}
		return err
	})
}

func testReadinessGate(t *testing.T, c *testCluster) {
	admin := c.admin(t)
	pod := newPod("gated")
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}}
	create(t, admin, pod)

	awaitReady(t, admin, pod.Name, corev1.ConditionFalse, "ReadinessGatesNotReady")
	setGate(t, admin, pod.Name, corev1.ConditionTrue)
	awaitReady(t, admin, pod.Name, corev1.ConditionTrue, "")
	setGate(t, admin, pod.Name, corev1.ConditionFalse)
	awaitReady(t, admin, pod.Name, corev1.ConditionFalse, "ReadinessGatesNotReady")

	got := get(t, admin, pod.Name)
	if ready := condition(got, corev1.ContainersReady); ready.Status != corev1.ConditionTrue {
		t.Errorf("ContainersReady is %v; the gate must not affect it", ready)
	}
	if own := condition(got, gate); own.Status != corev1.ConditionFalse || own.Reason != "Test" {
		t.Errorf("the gate's condition was changed: %v", own)
	}
}

func testProbe(t *testing.T, c *testCluster) {
	admin := c.admin(t)
	pod := newPod("probed")
	create(t, admin, pod)
	awaitReady(t, admin, pod.Name, corev1.ConditionTrue, "")
	annotate(t, admin, pod.Name, `"true"`)
	awaitReady(t, admin, pod.Name, corev1.ConditionFalse, "ContainersNotReady")
	annotate(t, admin, pod.Name, "null")
	awaitReady(t, admin, pod.Name, corev1.ConditionTrue, "")
}

func testImageChange(t *testing.T, c *testCluster) {
	admin := c.admin(t)
	pod := newPod("updated")
	create(t, admin, pod)
	awaitReady(t, admin, pod.Name, corev1.ConditionTrue, "")
	before := get(t, admin, pod.Name)
	patch := []byte(`{"spec":{"containers":[{"name":"main","image":"app:2"}]}}`)
	if _, err := admin.CoreV1().Pods(namespace).Patch(t.Context(), pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new image runs", func() error {
		got := get(t, admin, pod.Name)
		s := got.Status.ContainerStatuses[0]
		if s.Image != "app:2" || s.RestartCount != 1 || !s.Ready || condition(got, corev1.PodReady).Status != corev1.ConditionTrue {
			return fmt.Errorf("status: %+v", s)
		}
		return nil
	})
	after := get(t, admin, pod.Name)
	if after.Status.PodIP != before.Status.PodIP || after.UID != before.UID {
		t.Errorf("not in place: %s %s became %s %s", before.UID, before.Status.PodIP, after.UID, after.Status.PodIP)
	}
	if after.Status.ContainerStatuses[0].ImageID == before.Status.ContainerStatuses[0].ImageID {
		t.Error("imageID did not change, and controllers that update in place wait for it")
	}
}

func testDelete(t *testing.T, c *testCluster) {
	admin := c.admin(t)
	pod := newPod("deleted")
	create(t, admin, pod)
	awaitReady(t, admin, pod.Name, corev1.ConditionTrue, "")
	if err := admin.CoreV1().Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, admin, pod.Name)
}

func testFinalizer(t *testing.T, c *testCluster) {
	admin := c.admin(t)
	pod := newPod("kept")
	pod.Finalizers = []string{"test.podops.dev/keep"}
	create(t, admin, pod)
	awaitReady(t, admin, pod.Name, corev1.ConditionTrue, "")
	if err := admin.CoreV1().Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the kubelet has deleted the pod", func() error {
		got := get(t, admin, pod.Name)
		if got.DeletionGracePeriodSeconds == nil || *got.DeletionGracePeriodSeconds != 0 {
			return fmt.Errorf("grace period: %v", got.DeletionGracePeriodSeconds)
		}
		return nil
	})
	got := get(t, admin, pod.Name)
	if ready := condition(got, corev1.PodReady); ready.Status != corev1.ConditionFalse {
		t.Errorf("stopped, and Ready is %v", ready)
	}
	if got.Status.ContainerStatuses[0].State.Terminated == nil {
		t.Errorf("stopped, and the container is %+v", got.Status.ContainerStatuses[0].State)
	}
	if !slices.Equal(got.Finalizers, pod.Finalizers) {
		t.Errorf("finalizers became %v", got.Finalizers)
	}
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := admin.CoreV1().Pods(namespace).Patch(t.Context(), pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, admin, pod.Name)
}

func testKubeletRights(t *testing.T, c *testCluster) {
	admin := c.admin(t)
	pod := newPod("guarded")
	create(t, admin, pod)
	awaitReady(t, admin, pod.Name, corev1.ConditionTrue, "")
	own := get(t, admin, pod.Name).Spec.NodeName
	other := map[string]string{"node-1": "node-2", "node-2": "node-1"}[own]

	status := func(node, patch string) error {
		_, err := c.kubelet(t, node).CoreV1().Pods(namespace).Patch(t.Context(), pod.Name, types.StrategicMergePatchType,
			[]byte(patch), metav1.PatchOptions{}, "status")
		return err
	}
	for what, err := range map[string]error{
		"labels of its own pod, through its status": status(own, `{"metadata":{"labels":{"a":"b"}}}`),
		"the status of a pod of another node":       status(other, `{"status":{"message":"mine"}}`),
		"a pod of another node": c.kubelet(t, other).CoreV1().Pods(namespace).Delete(t.Context(), pod.Name,
			metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: want forbidden, got %v", what, err)
		}
	}
	if err := status(own, `{"status":{"message":"mine"}}`); err != nil {
		t.Errorf("the status of its own pod: %v", err)
	}
}

func testAuditLog(t *testing.T, c *testCluster) {
	admin := c.admin(t)
	pod := newPod("counted")
	create(t, admin, pod)
	awaitReady(t, admin, pod.Name, corev1.ConditionTrue, "")
	// Admission rejects it, and it is logged.
	if err := c.kubelet(t, "node-1").CoreV1().Nodes().Delete(t.Context(), "node-2", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("node-1 deletes node-2: %v", err)
	}
	got := writes(t, c, pod.Name)
	node := "system:node:" + get(t, admin, pod.Name).Spec.NodeName
	for write, want := range map[string]int{
		"podops-admin create pods 201":                  1,
		"system:kube-scheduler create pods/binding 201": 1,
		node + " patch pods/status 200":                 2, // Created, started.
	} {
		if got[write] != want {
			t.Errorf("%q: want %d, got %d in %v", write, want, got[write], got)
		}
	}
	if refused := writes(t, c, "node-2")["system:node:node-1 delete nodes 403"]; refused != 1 {
		t.Errorf("want 1 refused delete, got %v", writes(t, c, "node-2"))
	}
}

// writes counts the lines of the audit log for objects with a name, by user, verb, resource
// and outcome.
func writes(t *testing.T, c *testCluster, name string) map[string]int {
	t.Helper()
	file, err := os.Open(filepath.Join(c.dir, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	counts := map[string]int{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      struct{ Resource, Subresource, Name string }
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		ref := event.ObjectRef
		if ref.Name != name {
			continue
		}
		if ref.Subresource != "" {
			ref.Resource += "/" + ref.Subresource
		}
		counts[fmt.Sprintf("%s %s %s %d", event.User.Username, event.Verb, ref.Resource, event.ResponseStatus.Code)]++
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return counts
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "app:1"}}}
}

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: podSpec()}
}

// create creates pod and removes it with its finalizers when the test ends.
func create(t *testing.T, client kubernetes.Interface, pod *corev1.Pod) {
	t.Helper()
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := client.CoreV1().Pods(namespace).Delete(context.Background(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

func get(t *testing.T, client kubernetes.Interface, name string) *corev1.Pod {
	t.Helper()
	pod, err := client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// condition returns a condition of pod, or one without a status.
func condition(pod *corev1.Pod, of corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == of {
			return c
		}
	}
	return corev1.PodCondition{Type: of}
}

func awaitReady(t *testing.T, client kubernetes.Interface, name string, status corev1.ConditionStatus, reason string) {
	t.Helper()
	eventually(t, fmt.Sprintf("pod %s has Ready=%s %s", name, status, reason), func() error {
		if ready := condition(get(t, client, name), corev1.PodReady); ready.Status != status || ready.Reason != reason {
			return fmt.Errorf("it has %+v", ready)
		}
		return nil
	})
}

func awaitGone(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	eventually(t, "pod "+name+" goes", func() error {
		pod, err := client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("still exists: %+v", pod.Status)
		}
		return err
	})
}

func setGate(t *testing.T, client kubernetes.Interface, name string, status corev1.ConditionStatus) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":%q,"status":%q,"reason":"Test"}]}}`, gate, status)
	if _, err := client.CoreV1().Pods(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

func annotate(t *testing.T, client kubernetes.Interface, name, value string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"test.podops.dev/not-ready":%s}}}`, value)
	if _, err := client.CoreV1().Pods(namespace).Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
