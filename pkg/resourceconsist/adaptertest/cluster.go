package adaptertest

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// EmployerLabelKey is the label by which the Services of a ServiceCluster select pods.
const EmployerLabelKey = "adaptertest.podops.dev/employer"

// WeightAnnotationKey is the annotation of a pod in which a ServiceCluster writes
// Employee.Weight by default.
const WeightAnnotationKey = "adaptertest.podops.dev/weight"

// RevisionAnnotationKey is the annotation that a ServiceCluster changes in an employer by
// default: it grows by a letter each time.
const RevisionAnnotationKey = "adaptertest.podops.dev/revision"

// heldFinalizer keeps a terminating pod in the API server, as a container that is still
// stopping does.
const heldFinalizer = "adaptertest.podops.dev/held"

// ServiceCluster is a Cluster of Services and Pods in the namespace default. Its client
// keeps them in memory; the adapter reads from it.
type ServiceCluster struct {
	Client client.Client
	// Service, when set, completes the Service of an employer before it is created:
	// annotations that an adapter needs, ports.
	Service func(service *corev1.Service)
	// Alter, when set, changes a Service so that the provider's items for it must change.
	// Nil: the annotation RevisionAnnotationKey grows.
	Alter func(service *corev1.Service)
	// Relocate, when set, changes a Service so that an attribute of all its employees changes, such
	// as their port. Nil: the weight of each pod grows by one.
	Relocate func(service *corev1.Service)
	// Weigh, when set, writes the weight of a pod. Nil: to the annotation
	// WeightAnnotationKey.
	Weigh func(pod *corev1.Pod, weight int)

	made int // the number of pods that were made, for UIDs
}

// NewServiceCluster returns a cluster without objects. The scheme must know core/v1.
func NewServiceCluster(scheme *runtime.Scheme) *ServiceCluster {
	return &ServiceCluster{Client: fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.Pod{}).Build()}
}

// Employ creates the Service if necessary, and the pods that it selects. A pod with a new
// address is a new pod of the same name, as in a StatefulSet: it has another UID.
func (c *ServiceCluster) Employ(t testing.TB, employer string, employees ...Employee) {
	t.Helper()
	ctx := t.Context()
	c.ensureService(ctx, t, employer)
	var old corev1.PodList
	if err := c.Client.List(ctx, &old, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{EmployerLabelKey: employer}); err != nil {
		t.Fatalf("listing the pods of %s: %v", employer, err)
	}
	before := map[string]*corev1.Pod{}
	for i := range old.Items {
		before[old.Items[i].Name] = &old.Items[i]
		c.remove(ctx, t, &old.Items[i])
	}
	for _, employee := range employees {
		c.create(ctx, t, employer, employee, c.podUID(before[employee.Name], employee))
	}
}

// podUID returns the UID of the pod before, unless the pod is replaced.
func (c *ServiceCluster) podUID(before *corev1.Pod, employee Employee) types.UID {
	if before != nil && (before.Status.PodIP == "" || before.Status.PodIP == employee.Address) {
		return before.UID
	}
	c.made++
	return types.UID(fmt.Sprintf("%s-uid-%d", employee.Name, c.made))
}

// Dismiss deletes the Service, which its clean finalizer keeps.
func (c *ServiceCluster) Dismiss(t testing.TB, employer string) {
	t.Helper()
	if err := c.Client.Delete(t.Context(), c.Employer(t, employer)); err != nil {
		t.Fatalf("deleting service %s: %v", employer, err)
	}
}

// Change changes the Service.
func (c *ServiceCluster) Change(t testing.TB, employer string) {
	t.Helper()
	var service corev1.Service
	if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: employer}, &service); err != nil {
		t.Fatalf("reading service %s: %v", employer, err)
	}
	if c.Alter != nil {
		c.Alter(&service)
	} else {
		metav1.SetMetaDataAnnotation(&service.ObjectMeta, RevisionAnnotationKey, service.Annotations[RevisionAnnotationKey]+"i")
	}
	if err := c.Client.Update(t.Context(), &service); err != nil {
		t.Fatalf("changing service %s: %v", employer, err)
	}
}

// Move changes the Service with Relocate, or the weights of its pods.
func (c *ServiceCluster) Move(t testing.TB, employer string) {
	t.Helper()
	if c.Relocate != nil {
		var service corev1.Service
		if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: employer}, &service); err != nil {
			t.Fatalf("reading service %s: %v", employer, err)
		}
		c.Relocate(&service)
		if err := c.Client.Update(t.Context(), &service); err != nil {
			t.Fatalf("changing service %s: %v", employer, err)
		}
		return
	}
	var pods corev1.PodList
	if err := c.Client.List(t.Context(), &pods, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{EmployerLabelKey: employer}); err != nil {
		t.Fatalf("listing the pods of %s: %v", employer, err)
	}
	for i := range pods.Items {
		c.weigh(&pods.Items[i], PodWeight(&pods.Items[i])+1)
		if err := c.Client.Update(t.Context(), &pods.Items[i]); err != nil {
			t.Fatalf("changing pod %s: %v", pods.Items[i].Name, err)
		}
	}
}

// Employer reads the Service.
func (c *ServiceCluster) Employer(t testing.TB, employer string) client.Object {
	t.Helper()
	service := &corev1.Service{}
	if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: employer}, service); err != nil {
		t.Fatalf("reading service %s: %v", employer, err)
	}
	return service
}

func (c *ServiceCluster) ensureService(ctx context.Context, t testing.TB, employer string) {
	t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  metav1.NamespaceDefault,
			Name:       employer,
			Labels:     map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue},
			Finalizers: []string{resourceconsist.CleanFinalizer(employer)},
		},
		Spec: corev1.ServiceSpec{Selector: map[string]string{EmployerLabelKey: employer}},
	}
	if c.Service != nil {
		c.Service(service)
	}
	if err := c.Client.Create(ctx, service); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("creating service %s: %v", employer, err)
	}
}

func (c *ServiceCluster) create(ctx context.Context, t testing.TB, employer string, employee Employee, uid types.UID) {
	t.Helper()
	pod := employeePod(employer, employee)
	pod.UID = uid
	if employee.Weight > 0 {
		c.weigh(pod, employee.Weight)
	}
	status := pod.Status
	if err := c.Client.Create(ctx, pod); err != nil {
		t.Fatalf("creating pod %s: %v", employee.Name, err)
	}
	pod.Status = status
	if err := c.Client.Status().Update(ctx, pod); err != nil {
		t.Fatalf("writing the status of pod %s: %v", employee.Name, err)
	}
	if employee.Terminating {
		if err := c.Client.Delete(ctx, pod); err != nil {
			t.Fatalf("deleting pod %s: %v", employee.Name, err)
		}
	}
}

func (c *ServiceCluster) weigh(pod *corev1.Pod, weight int) {
	if c.Weigh != nil {
		c.Weigh(pod, weight)
		return
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, WeightAnnotationKey, strconv.Itoa(weight))
}

// PodWeight returns the weight that a ServiceCluster writes by default; 100 for a pod
// without a weight.
func PodWeight(pod *corev1.Pod) int {
	if weight, err := strconv.Atoi(pod.Annotations[WeightAnnotationKey]); err == nil {
		return weight
	}
	return 100
}

// remove removes a pod and its finalizers.
func (c *ServiceCluster) remove(ctx context.Context, t testing.TB, pod *corev1.Pod) {
	t.Helper()
	if len(pod.Finalizers) > 0 {
		pod.Finalizers = nil
		if err := c.Client.Update(ctx, pod); err != nil {
			t.Fatalf("releasing pod %s: %v", pod.Name, err)
		}
	}
	if err := client.IgnoreNotFound(c.Client.Delete(ctx, pod)); err != nil {
		t.Fatalf("removing pod %s: %v", pod.Name, err)
	}
}
