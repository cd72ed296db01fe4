package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	applyappsv1 "k8s.io/client-go/applyconfigurations/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// TestMain silences logs, and takes away the handler of errors that waits for a time of the process, which bubbles do not share.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	klog.SetLogger(klog.Logger{})
	os.Exit(m.Run())
}

// world runs a test in a bubble with a server.
func world(t *testing.T, options Options, test func(t *testing.T, s *Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, New(options))
	})
}

// client returns a client of a user that speaks protobuf, as the controllers of Kubernetes do.
func client(t *testing.T, s *Server, user string) kubernetes.Interface {
	t.Helper()
	config := s.Config(user)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func pod(name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image"}}},
	}
}

func deployment(replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": "a"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("", nil).Spec},
		},
	}
}

// must returns a value, or ends the test.
func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// refused ends the test unless the error is of a status code.
func refused(t *testing.T, err error, code int32) *apierrors.StatusError {
	t.Helper()
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Code != code {
		t.Fatalf("got error %v, want status code %d", err, code)
	}
	return status
}

func TestCreateDefaults(t *testing.T) {
	world(t, Options{}, func(t *testing.T, s *Server) {
		ctx := t.Context()
		pods := client(t, s, "user").CoreV1().Pods("default")
		wanted := pod("", nil)
		wanted.GenerateName, wanted.Status.Phase = "a-", corev1.PodRunning
		created := must[*corev1.Pod](t)(pods.Create(ctx, wanted, metav1.CreateOptions{}))
		if created.UID == "" || created.ResourceVersion == "" || created.Generation != 1 || len(created.Name) != len("a-12345") {
			t.Errorf("metadata is incomplete: %+v", created.ObjectMeta)
		}
		if created.Status.Phase != corev1.PodPending || created.Spec.RestartPolicy != corev1.RestartPolicyAlways {
			t.Errorf("got phase %q and restart policy %q", created.Status.Phase, created.Spec.RestartPolicy)
		}
		read := must[*corev1.Pod](t)(pods.Get(ctx, created.Name, metav1.GetOptions{}))
		if diff := cmp.Diff(created, read); diff != "" {
			t.Errorf("the pod differs when read:\n%s", diff)
		}
		_, err := client(t, s, "user").CoreV1().Pods("absent").Create(ctx, func() *corev1.Pod {
			p := pod("b", nil)
			p.Namespace = "absent"
			return p
		}(), metav1.CreateOptions{})
		_ = refused(t, err, http.StatusNotFound)
	})
}

func TestUpdateConflictsAndNoOps(t *testing.T) {
	var writes []Write
	world(t, Options{OnWrite: func(w Write) { writes = append(writes, w) }}, func(t *testing.T, s *Server) {
		ctx := t.Context()
		deployments := client(t, s, "user").AppsV1().Deployments("default")
		first := must[*appsv1.Deployment](t)(deployments.Create(ctx, deployment(1), metav1.CreateOptions{}))

		same := must[*appsv1.Deployment](t)(deployments.Update(ctx, first.DeepCopy(), metav1.UpdateOptions{}))
		if same.ResourceVersion != first.ResourceVersion {
			t.Errorf("an update without a change got resourceVersion %s after %s", same.ResourceVersion, first.ResourceVersion)
		}

		first.Status.Replicas = 7
		first.Spec.Paused = true
		second := must[*appsv1.Deployment](t)(deployments.Update(ctx, first, metav1.UpdateOptions{}))
		if second.Generation != 2 || second.Status.Replicas != 0 {
			t.Errorf("got generation %d and %d replicas in the status", second.Generation, second.Status.Replicas)
		}

		_, err := deployments.Update(ctx, first, metav1.UpdateOptions{})
		_ = refused(t, err, http.StatusConflict)

		second.Status.Replicas, second.Spec.Paused = 3, false
		third := must[*appsv1.Deployment](t)(deployments.UpdateStatus(ctx, second, metav1.UpdateOptions{}))
		if third.Generation != 2 || third.Status.Replicas != 3 || !third.Spec.Paused {
			t.Errorf("got generation %d, status %+v and paused %t", third.Generation, third.Status, third.Spec.Paused)
		}

		scale := must[*autoscalingv1.Scale](t)(deployments.GetScale(ctx, "a", metav1.GetOptions{}))
		scale.Spec.Replicas = 5
		must[*autoscalingv1.Scale](t)(deployments.UpdateScale(ctx, "a", scale, metav1.UpdateOptions{}))
		if got := must[*appsv1.Deployment](t)(deployments.Get(ctx, "a", metav1.GetOptions{})); *got.Spec.Replicas != 5 {
			t.Errorf("got %d replicas after the scale", *got.Spec.Replicas)
		}
		if got := s.Count("user", "update", "deployments/scale"); got != 1 {
			t.Errorf("counted %d updates of the scale", got)
		}
	})
	var got []string
	for _, w := range writes {
		if w.User == "user" {
			got = append(got, fmt.Sprintf("%s %s/%s %d %t %t", w.Verb, w.Resource, w.Subresource, w.Code, w.Before != nil, w.After != nil))
		}
	}
	want := []string{
		"create deployments/ 201 false true",
		"update deployments/ 200 false false",
		"update deployments/ 200 true true",
		"update deployments/ 409 false false",
		"update deployments/status 200 true true",
		"update deployments/scale 200 true true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("writes differ (-want +got):\n%s", diff)
	}
}

func TestPatchAndApply(t *testing.T) {
	world(t, Options{FieldOwners: []string{"deployments"}}, func(t *testing.T, s *Server) {
		ctx := t.Context()
		deployments := client(t, s, "user").AppsV1().Deployments("default")
		must[*appsv1.Deployment](t)(deployments.Create(ctx, deployment(1), metav1.CreateOptions{FieldManager: "creator"}))
		for _, patch := range []struct {
			kind types.PatchType
			data string
		}{
			{types.JSONPatchType, `[{"op":"replace","path":"/spec/replicas","value":2}]`},
			{types.MergePatchType, `{"metadata":{"annotations":{"a":"b"}}}`},
			{types.StrategicMergePatchType, `{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"s"}]}}}}`},
		} {
			must[*appsv1.Deployment](t)(deployments.Patch(ctx, "a", patch.kind, []byte(patch.data), metav1.PatchOptions{FieldManager: "patcher"}))
		}
		got := must[*appsv1.Deployment](t)(deployments.Get(ctx, "a", metav1.GetOptions{}))
		if *got.Spec.Replicas != 2 || got.Annotations["a"] != "b" || len(got.Spec.Template.Spec.Containers) != 2 {
			t.Errorf("got replicas %d, annotations %v and %d containers",
				*got.Spec.Replicas, got.Annotations, len(got.Spec.Template.Spec.Containers))
		}

		apply := applyappsv1.Deployment("a", "default").WithSpec(applyappsv1.DeploymentSpec().WithReplicas(4))
		_, err := deployments.Apply(ctx, apply, metav1.ApplyOptions{FieldManager: "applier"})
		status := refused(t, err, http.StatusConflict)
		if len(status.ErrStatus.Details.Causes) != 1 || status.ErrStatus.Details.Causes[0].Field != ".spec.replicas" {
			t.Errorf("got causes %+v", status.ErrStatus.Details.Causes)
		}
		applied := must[*appsv1.Deployment](t)(deployments.Apply(ctx, apply, metav1.ApplyOptions{FieldManager: "applier", Force: true}))
		again := must[*appsv1.Deployment](t)(deployments.Apply(ctx, apply, metav1.ApplyOptions{FieldManager: "applier"}))
		if *applied.Spec.Replicas != 4 || again.ResourceVersion != applied.ResourceVersion {
			t.Errorf("got %d replicas, and resourceVersion %s after %s when applied again",
				*applied.Spec.Replicas, again.ResourceVersion, applied.ResourceVersion)
		}
	})
}

func TestGracefulDeletion(t *testing.T) {
	world(t, Options{}, func(t *testing.T, s *Server) {
		ctx := t.Context()
		c := client(t, s, "user")
		pods := c.CoreV1().Pods("default")
		wanted := pod("a", nil)
		wanted.Finalizers = []string{"example.com/hold"}
		wanted.Spec.NodeName = "node"
		created := must[*corev1.Pod](t)(pods.Create(ctx, wanted, metav1.CreateOptions{}))

		wrong := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(types.UID("other"))}}
		_ = refused(t, pods.Delete(ctx, "a", wrong), http.StatusConflict)
		if err := pods.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		ending := must[*corev1.Pod](t)(pods.Get(ctx, "a", metav1.GetOptions{}))
		if ending.DeletionTimestamp == nil || *ending.DeletionGracePeriodSeconds != 30 || ending.UID != created.UID {
			t.Errorf("the pod is not ending: %+v", ending.ObjectMeta)
		}
		if err := pods.Delete(ctx, "a", metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
			t.Fatal(err)
		}
		held := must[*corev1.Pod](t)(pods.Get(ctx, "a", metav1.GetOptions{}))
		held.Finalizers = nil
		must[*corev1.Pod](t)(pods.Update(ctx, held, metav1.UpdateOptions{}))
		_, err := pods.Get(ctx, "a", metav1.GetOptions{})
		_ = refused(t, err, http.StatusNotFound)

		deployments := c.AppsV1().Deployments("default")
		must[*appsv1.Deployment](t)(deployments.Create(ctx, deployment(1), metav1.CreateOptions{}))
		orphan := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}
		if err := deployments.Delete(ctx, "a", orphan); err != nil {
			t.Fatal(err)
		}
		left := must[*appsv1.Deployment](t)(deployments.Get(ctx, "a", metav1.GetOptions{}))
		if diff := cmp.Diff([]string{metav1.FinalizerOrphanDependents}, left.Finalizers); diff != "" {
			t.Errorf("finalizers differ (-want +got):\n%s", diff)
		}
	})
}

func TestEvictionAgainstABudget(t *testing.T) {
	world(t, Options{}, func(t *testing.T, s *Server) {
		ctx := t.Context()
		c := client(t, s, "user")
		labels := map[string]string{"app": "a"}
		for _, name := range []string{"a", "b"} {
			p := must[*corev1.Pod](t)(c.CoreV1().Pods("default").Create(ctx, pod(name, labels), metav1.CreateOptions{}))
			p.Status.Phase = corev1.PodRunning
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			must[*corev1.Pod](t)(c.CoreV1().Pods("default").UpdateStatus(ctx, p, metav1.UpdateOptions{}))
		}
		budgets := c.PolicyV1().PodDisruptionBudgets("default")
		budget := must[*policyv1.PodDisruptionBudget](t)(budgets.Create(ctx, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"},
			Spec: policyv1.PodDisruptionBudgetSpec{
				MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			},
		}, metav1.CreateOptions{}))
		evict := func(name string) error {
			return c.PolicyV1().Evictions("default").Evict(ctx, &policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}})
		}
		status := refused(t, evict("a"), http.StatusTooManyRequests)
		if !apierrors.HasStatusCause(status, policyv1.DisruptionBudgetCause) {
			t.Errorf("got causes %+v", status.ErrStatus.Details)
		}

		budget.Status = policyv1.PodDisruptionBudgetStatus{
			ObservedGeneration: budget.Generation, DisruptionsAllowed: 1, CurrentHealthy: 2, DesiredHealthy: 1, ExpectedPods: 2,
		}
		must[*policyv1.PodDisruptionBudget](t)(budgets.UpdateStatus(ctx, budget, metav1.UpdateOptions{}))
		if err := evict("a"); err != nil {
			t.Fatal(err)
		}
		_ = refused(t, evict("b"), http.StatusTooManyRequests)
		after := must[*policyv1.PodDisruptionBudget](t)(budgets.Get(ctx, "a", metav1.GetOptions{}))
		if _, counted := after.Status.DisruptedPods["a"]; !counted || after.Status.DisruptionsAllowed != 0 {
			t.Errorf("got status %+v", after.Status)
		}

		second := budget.DeepCopy()
		second.ObjectMeta = metav1.ObjectMeta{Name: "b", Namespace: "default"}
		must[*policyv1.PodDisruptionBudget](t)(budgets.Create(ctx, second, metav1.CreateOptions{}))
		_ = refused(t, evict("b"), http.StatusInternalServerError)
	})
}

func TestMetadataOnly(t *testing.T) {
	world(t, Options{}, func(t *testing.T, s *Server) {
		ctx := t.Context()
		must[*corev1.Pod](t)(client(t, s, "user").CoreV1().Pods("default").Create(ctx, pod("a", nil), metav1.CreateOptions{}))
		c := must[metadata.Interface](t)(metadata.NewForConfig(s.Config("collector")))
		list := must[*metav1.PartialObjectMetadataList](t)(
			c.Resource(corev1.SchemeGroupVersion.WithResource("pods")).List(ctx, metav1.ListOptions{}))
		if len(list.Items) != 1 || list.Items[0].Name != "a" {
			t.Errorf("got %+v", list.Items)
		}
	})
}

func TestDiscovery(t *testing.T) {
	world(t, Options{Definitions: definitions(t)}, func(t *testing.T, s *Server) {
		c := client(t, s, "user").Discovery()
		begin := time.Now()
		version, err := c.ServerVersion()
		if err != nil || version.GitVersion != gitVersion {
			t.Errorf("got version %v and error %v", version, err)
		}
		_, lists, err := c.ServerGroupsAndResources()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, list := range lists {
			for _, r := range list.APIResources {
				found[list.GroupVersion+"/"+r.Name] = true
			}
		}
		for _, name := range []string{
			"v1/pods", "v1/pods/eviction", "apps/v1/deployments/scale", "policy/v1/poddisruptionbudgets",
			"apps.kusionstack.io/v1alpha1/podoperations", "events.k8s.io/v1/events",
		} {
			if !found[name] {
				t.Errorf("discovery has no %s", name)
			}
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("discovery took %s", took)
		}
	})
}

func TestImpatientClient(t *testing.T) {
	world(t, Options{}, func(t *testing.T, s *Server) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		_, err := client(t, s, "user").CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v", err)
		}
	})
}
