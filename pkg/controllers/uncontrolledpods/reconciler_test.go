package uncontrolledpods

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/state/replicasetpods"
)

// cluster is a StatefulSet of two pods, one of which has the label. The cache has that one.
type cluster struct {
	reconciler *Reconciler
	clock      *clocktesting.FakePassiveClock
	cache      client.Client
	server     client.Client
	lists      int
	fails      bool
	counted    []types.UID // in the index
}

// SetUncontrolled implements Index.
func (c *cluster) SetUncontrolled(_ string, _ types.UID, pods []types.UID) { c.counted = pods }

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{clock: clocktesting.NewFakePassiveClock(epoch)}
	labelled := pod("web-0", func(p *corev1.Pod) { p.Labels[appsv1alpha1.ControlLabelKey] = appsv1alpha1.ControlLabelValue })
	other := pod("web-1", nil)
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web"},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labelled.Labels}},
		},
		Status: appsv1.StatefulSetStatus{Replicas: 2},
	}
	c.cache = fake.NewClientBuilder().WithObjects(set, &labelled).
		WithIndex(&corev1.Pod{}, replicasetpods.ControllerUIDField, replicasetpods.IndexByController).Build()
	stored := labelled.DeepCopy()
	stored.ResourceVersion = ""
	c.server = fake.NewClientBuilder().WithObjects(stored, &other).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, below client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if c.lists++; c.fails {
				return errors.New("no answer")
			}
			return below.List(ctx, list, options...)
		},
	}).Build()
	c.reconciler = New(replicasetpods.Reader{Reader: c.cache}, c.server, c, c.clock)
	return c
}

// after reconciles some time later, and checks the pods in the index, the lists so far, and how soon the next one is due.
func (c *cluster) after(t *testing.T, passed time.Duration, counted []types.UID, lists int, wait time.Duration) {
	t.Helper()
	c.clock.SetTime(c.clock.Now().Add(passed))
	key := Workload{kindStatefulSet, types.NamespacedName{Namespace: "default", Name: "web"}}
	result, err := c.reconciler.Reconcile(t.Context(), key)
	if (err != nil) != c.fails {
		t.Fatalf("error: %v", err)
	}
	if diff := cmp.Diff(counted, c.counted); diff != "" || c.lists != lists || result.RequeueAfter != wait {
		t.Fatalf("%d lists, again after %s; want %d and %s; counted (-want +got):\n%s", c.lists, result.RequeueAfter, lists, wait, diff)
	}
}

// status sets the number of pods in the status of the StatefulSet.
func (c *cluster) status(t *testing.T, replicas int32) {
	t.Helper()
	set := &appsv1.StatefulSet{}
	if err := c.cache.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "web"}, set); err != nil {
		t.Fatal(err)
	}
	set.Status.Replicas = replicas
	if err := c.cache.Status().Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
}

func TestAPodWithoutTheLabelCountsUntilItIsGone(t *testing.T) {
	c := newCluster(t)
	c.after(t, 0, nil, 0, settledFor)
	c.after(t, settledFor, []types.UID{"web-1"}, 1, refresh)
	c.status(t, 1) // behind
	c.after(t, refresh, []types.UID{"web-1"}, 2, refresh)
	other := pod("web-1", nil)
	if err := c.server.Delete(t.Context(), &other); err != nil {
		t.Fatal(err)
	}
	c.after(t, refresh, nil, 3, 0)
	c.after(t, refresh, nil, 3, 0)
}

func TestAStatusThatIsBehindForAMomentListsNothing(t *testing.T) {
	c := newCluster(t)
	c.after(t, 0, nil, 0, settledFor)
	c.status(t, 1)
	c.after(t, settledFor-time.Second, nil, 0, 0)
	c.status(t, 2)
	c.after(t, time.Second, nil, 0, settledFor)
}

// TestAStatusOfAControllerThatDoesNotRunCountsNothing has a status that counts a pod that is gone.
func TestAStatusOfAControllerThatDoesNotRunCountsNothing(t *testing.T) {
	c := newCluster(t)
	other := pod("web-1", nil)
	if err := c.server.Delete(t.Context(), &other); err != nil {
		t.Fatal(err)
	}
	c.after(t, 0, nil, 0, settledFor)
	c.after(t, time.Hour, nil, 1, 0)
}

func TestNoPodCountsWhileTheAPIServerDoesNotAnswer(t *testing.T) {
	c := newCluster(t)
	c.after(t, 0, nil, 0, settledFor)
	c.after(t, settledFor, []types.UID{"web-1"}, 1, refresh)
	c.fails = true
	c.after(t, refresh, nil, 2, 0)
	c.fails = false
	c.after(t, time.Second, []types.UID{"web-1"}, 3, refresh)
}

func TestAWorkloadThatIsGoneIsForgotten(t *testing.T) {
	c := newCluster(t)
	c.after(t, 0, nil, 0, settledFor)
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	if err := c.cache.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	c.after(t, settledFor, nil, 0, 0)
	if len(c.reconciler.since) != 0 {
		t.Errorf("%v is kept", c.reconciler.since)
	}
}

// TestAWorkloadThatLeavesPodOpsIsNotCounted has a StatefulSet whose template loses the label.
func TestAWorkloadThatLeavesPodOpsIsNotCounted(t *testing.T) {
	c := newCluster(t)
	c.after(t, 0, nil, 0, settledFor)
	c.after(t, settledFor, []types.UID{"web-1"}, 1, refresh)
	set := &appsv1.StatefulSet{}
	if err := c.cache.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "web"}, set); err != nil {
		t.Fatal(err)
	}
	delete(set.Spec.Template.Labels, appsv1alpha1.ControlLabelKey)
	if err := c.cache.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	c.after(t, refresh, nil, 1, 0)
}

// TestAdoptions has a Deployment whose template got the label during a rollout, with a ReplicaSet from before.
func TestAdoptions(t *testing.T) {
	const controlled = appsv1alpha1.ControlLabelKey
	isController := true
	owned := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID(name), Controller: &isController}}
	}
	for name, tc := range map[string]struct {
		deployment string // its label
		set        string
		replicas   int32
		noPod      bool // with the label
		queued     bool
		counted    []types.UID
	}{
		"a revision from before":                     {deployment: "true", replicas: 2, queued: true, counted: []types.UID{"b"}},
		"a revision with the label":                  {deployment: "true", set: "true", replicas: 2, counted: []types.UID{"b"}},
		"a revision without pods":                    {deployment: "true"},
		"a Deployment without the label":             {replicas: 2},
		"a Deployment of which no pod has the label": {deployment: "true", replicas: 2, noPod: true, queued: true},
	} {
		t.Run(name, func(t *testing.T) {
			template := func(label string) corev1.PodTemplateSpec {
				return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web", controlled: label}}}
			}
			deployment := &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web"}, Spec: appsv1.DeploymentSpec{Template: template(tc.deployment)},
			}
			set := &appsv1.ReplicaSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", UID: "web-1", OwnerReferences: owned("Deployment", "web")},
				Spec:       appsv1.ReplicaSetSpec{Template: template(tc.set), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
				Status:     appsv1.ReplicaSetStatus{Replicas: tc.replicas},
			}
			ofSet := func(p *corev1.Pod) { p.OwnerReferences = owned(kindReplicaSet, "web-1") }
			labelled, other := pod("a", ofSet), pod("b", ofSet)
			labelled.Labels[controlled] = appsv1alpha1.ControlLabelValue
			c := &cluster{clock: clocktesting.NewFakePassiveClock(epoch)}
			objects := []client.Object{deployment, set}
			if !tc.noPod {
				objects = append(objects, &labelled)
			}
			c.cache = fake.NewClientBuilder().WithObjects(objects...).
				WithIndex(&corev1.Pod{}, replicasetpods.ControllerUIDField, replicasetpods.IndexByController).
				WithIndex(&appsv1.ReplicaSet{}, replicasetpods.ControllerUIDField, replicasetpods.IndexByController).Build()
			c.server = fake.NewClientBuilder().WithObjects(&other).Build()
			c.reconciler = New(replicasetpods.Reader{Reader: c.cache}, c.server, c, c.clock)

			due := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[Workload]())
			defer due.ShutDown()
			key := Workload{kindReplicaSet, client.ObjectKeyFromObject(set)}
			c.reconciler.adoptions().Update(t.Context(), event.UpdateEvent{ObjectNew: deployment}, delayless{due})
			if queued := due.Len() == 1; queued != tc.queued {
				t.Errorf("queued %t, want %t", queued, tc.queued)
			}
			for range 2 {
				if _, err := c.reconciler.Reconcile(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				c.clock.SetTime(c.clock.Now().Add(settledFor))
			}
			if diff := cmp.Diff(tc.counted, c.counted); diff != "" {
				t.Errorf("counted (-want +got):\n%s", diff)
			}
		})
	}
}

// delayless adds at once what is due later.
type delayless struct{ queue }

func (d delayless) AddAfter(key Workload, _ time.Duration) { d.Add(key) }

// TestMore has workloads with two pods in the cache.
func TestMore(t *testing.T) {
	labelled := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{appsv1alpha1.ControlLabelKey: "true"}}}
	for name, tc := range map[string]struct {
		workload client.Object
		want     bool
	}{
		"a StatefulSet of three":     {&appsv1.StatefulSet{Status: appsv1.StatefulSetStatus{Replicas: 3}}, true},
		"a StatefulSet of two":       {&appsv1.StatefulSet{Status: appsv1.StatefulSetStatus{Replicas: 2}}, false},
		"a DaemonSet on three nodes": {&appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{CurrentNumberScheduled: 3}}, true},
		"a DaemonSet that is to have a third pod": {
			&appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{CurrentNumberScheduled: 2, DesiredNumberScheduled: 3}}, false,
		},
		"a ReplicaSet with a pod without the label": {
			&appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Template: labelled}, Status: appsv1.ReplicaSetStatus{Replicas: 3, FullyLabeledReplicas: 2}}, true,
		},
		"a ReplicaSet whose status counts a pod that is gone": {
			&appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Template: labelled}, Status: appsv1.ReplicaSetStatus{Replicas: 3, FullyLabeledReplicas: 3}}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			workload, ok := newFacts(tc.workload)
			if got := ok && workload.more([]*corev1.Pod{{}, {}}); got != tc.want {
				t.Errorf("more pods: %t, want %t", got, tc.want)
			}
		})
	}
}
