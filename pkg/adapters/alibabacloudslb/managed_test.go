package alibabacloudslb_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	slb "github.com/podops-dev/podops/pkg/adapters/alibabacloudslb"
	"github.com/podops-dev/podops/pkg/adapters/alibabacloudslb/internal/slbtest"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/plan"
	"github.com/podops-dev/podops/test/builders"
)

// newManaged returns a managed Service with one group, rsp-a at port 8080, and pods 1 to
// n.
func newManaged(t *testing.T, n int, changes ...func(*corev1.Service)) *harness {
	t.Helper()
	objects := []client.Object{service(slices.Concat([]func(*corev1.Service){managed("rsp-a:8080")}, changes)...)}
	for i := 1; i <= n; i++ {
		objects = append(objects, pod(i))
	}
	w := newHarness(t, objects...)
	w.server.AddGroup("", "rsp-a", "group a")
	w.server.AddGroup("", "rsp-b", "group b")
	return w
}

func (w *harness) wantBackends(sentence, group string, want ...slbtest.Backend) {
	w.t.Helper()
	byServer := cmpopts.SortSlices(func(a, b slbtest.Backend) int {
		return cmp.Or(strings.Compare(a.ServerID, b.ServerID), a.Port-b.Port)
	})
	if diff := gocmp.Diff(want, w.server.Backends(group), byServer, cmpopts.EquateEmpty()); diff != "" {
		w.t.Errorf("%s: backends of %s (-want +got):\n%s", sentence, group, diff)
	}
}

func TestManagedPodIsAddedToEveryGroupOfTheService(t *testing.T) {
	w := newManaged(t, 1, managed("rsp-a:8080, rsp-b:8443"), annotated(slb.WeightAnnotationKey, "30"))
	w.wantTraffic("before", map[string]plan.State{"web-1": plan.Unconfirmed})
	w.mustReconcile()
	w.wantBackends("added", "rsp-a", backend(1, 8080, 30))
	w.wantBackends("added", "rsp-b", backend(1, 8443, 30))
	w.wantTraffic("after", map[string]plan.State{"web-1": plan.On})

	w.server.SetBackends("rsp-b")
	w.wantTraffic("removed from one group by a user", map[string]plan.State{"web-1": plan.Unconfirmed})
	w.mustReconcile()
	w.wantTraffic("added again", map[string]plan.State{"web-1": plan.On})
}

func TestManagedTrafficGoesOffAndOnAgain(t *testing.T) {
	for sentence, tc := range map[string]struct {
		how string
		off []slbtest.Backend
	}{
		"by weight":  {slb.OffByWeight, []slbtest.Backend{backend(1, 8080, 0), backend(2, 8080, 100)}},
		"by removal": {slb.OffByRemoval, []slbtest.Backend{backend(2, 8080, 100)}},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newManaged(t, 2, annotated(slb.TrafficOffAnnotationKey, tc.how))
			w.mustReconcile()
			w.put(pod(1, preparing))
			w.wantTraffic("before it is off", map[string]plan.State{"web-1": plan.Unconfirmed, "web-2": plan.On})
			w.mustReconcile()
			w.wantBackends("off", "rsp-a", tc.off...)
			w.wantTraffic("off", map[string]plan.State{"web-1": plan.Off, "web-2": plan.On})

			w.put(pod(1))
			w.wantTraffic("before it is on", map[string]plan.State{"web-1": plan.Unconfirmed, "web-2": plan.On})
			w.mustReconcile()
			w.wantTraffic("on", map[string]plan.State{"web-1": plan.On, "web-2": plan.On})
		})
	}
}

func TestManagedPodsThatLeaveTheServiceAreRemoved(t *testing.T) {
	for sentence, gone := range map[string]func(*harness){
		"ended":                              func(w *harness) { w.put(pod(1, func(b *builders.PodBuilder) { b.Phase(corev1.PodFailed) })) },
		"removed by force":                   func(w *harness) { w.drop("web-1") },
		"no longer selected":                 func(w *harness) { w.put(pod(1, func(b *builders.PodBuilder) { b.Label("app", "other") })) },
		"replaced by a pod of the same name": func(w *harness) { w.put(pod(1, func(b *builders.PodBuilder) { b.UID("another-uid").Gate(false) })) },
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newManaged(t, 2, annotated(slb.TrafficOffAnnotationKey, slb.OffByRemoval))
			w.mustReconcile()
			gone(w)
			w.wantTraffic("before", map[string]plan.State{"web-2": plan.On})
			if got := w.traffic("web-1")["web-1"]; got == plan.On {
				t.Errorf("traffic of a pod that leaves is confirmed as on")
			}
			w.mustReconcile()
			w.wantBackends("removed", "rsp-a", backend(2, 8080, 100))
			w.wantTraffic("after", map[string]plan.State{"web-1": plan.Off, "web-2": plan.On})
		})
	}
}

func TestATerminatingPodIsOffUntilItIsDeleted(t *testing.T) {
	w := newManaged(t, 2)
	w.mustReconcile()
	w.put(pod(1, terminating))
	w.mustReconcile()
	w.wantBackends("terminating", "rsp-a", backend(1, 8080, 0), backend(2, 8080, 100))
	w.wantTraffic("terminating", map[string]plan.State{"web-1": plan.Off, "web-2": plan.On})
	w.drop("web-1")
	w.mustReconcile()
	w.wantBackends("gone", "rsp-a", backend(2, 8080, 100))
}

func TestManagedWeightFollowsTheAnnotation(t *testing.T) {
	w := newManaged(t, 1)
	w.mustReconcile()
	w.change(annotated(slb.WeightAnnotationKey, "7"))
	w.mustReconcile()
	w.wantBackends("changed", "rsp-a", backend(1, 8080, 7))
}

func TestBatchesAreOfTwentyAtMost(t *testing.T) {
	w := newManaged(t, 45)
	w.mustReconcile()
	if got := len(w.server.Backends("rsp-a")); got != 45 {
		t.Errorf("backends = %d, want 45", got)
	}
	var sizes []int
	for _, call := range w.server.Calls() {
		if call.Action == "AddVServerGroupBackendServers" {
			sizes = append(sizes, len(call.Backends))
		}
	}
	if diff := gocmp.Diff([]int{20, 20, 5}, sizes); diff != "" {
		t.Errorf("sizes of batches (-want +got):\n%s", diff)
	}
}

func TestARejectedServerDoesNotStopTheOthers(t *testing.T) {
	w := newManaged(t, 45)
	w.server.Inject(slbtest.Fault{Server: "eni-7", Refusal: slbtest.Refusal{Status: 400, Code: "InvalidServerId.NotFound", Message: "no such server"}})
	failed, err := w.reconcile()
	if diff := gocmp.Diff([]string{"web-7"}, failed); diff != "" {
		t.Errorf("failed (-want +got):\n%s", diff)
	}
	if err == nil || !containsAll(err.Error(), "pod web-7", "AddVServerGroupBackendServers", "InvalidServerId.NotFound", "REQUEST-") {
		t.Errorf("error %v does not name pod, action, code and request", err)
	}
	if got := len(w.server.Backends("rsp-a")); got != 44 {
		t.Errorf("backends = %d, want 44", got)
	}
	w.wantTraffic("after", map[string]plan.State{"web-6": plan.On, "web-7": plan.Unconfirmed, "web-8": plan.On, "web-45": plan.On})
}

func TestThrottlingStopsTheRestOfTheBatches(t *testing.T) {
	w := newManaged(t, 45)
	w.server.Inject(slbtest.Fault{Action: "AddVServerGroupBackendServers", Refusal: slbtest.Throttled()})
	failed, err := w.reconcile()
	if len(failed) != 45 || err == nil || !containsAll(err.Error(), "Throttling.User", "and 35 more pods") {
		t.Errorf("%d failed with error %v", len(failed), err)
	}
	if !errors.Is(err, resourceconsist.ErrBackingOff) {
		t.Errorf("the error %v does not say that the API throttles", err)
	}
	if got := w.server.Struck(); got != 4 {
		t.Errorf("a provider that throttles got %d requests to add, want the 4 attempts of the first batch", got)
	}
	w.server.Mend()
	w.mustReconcile()
	w.wantTraffic("later", map[string]plan.State{"web-1": plan.On, "web-45": plan.On})
}

func TestLostRepliesAreNotFailures(t *testing.T) {
	lost := func(action string) slbtest.Fault {
		return slbtest.Fault{Action: action, Times: 1, AfterEffect: true, Refusal: slbtest.Broken()}
	}
	w := newManaged(t, 3)
	w.server.Inject(lost("AddVServerGroupBackendServers"))
	w.mustReconcile()
	w.wantBackends("added once", "rsp-a", backend(1, 8080, 100), backend(2, 8080, 100), backend(3, 8080, 100))
	w.put(pod(1, preparing))
	w.server.Inject(lost("SetVServerGroupAttribute"))
	w.mustReconcile()
	w.drop("web-2")
	w.server.Inject(lost("RemoveVServerGroupBackendServers"))
	w.mustReconcile()
	w.wantBackends("after both changes", "rsp-a", backend(1, 8080, 0), backend(3, 8080, 100))
}

func TestNothingIsConfirmedBeforeReadsShowIt(t *testing.T) {
	w := newManaged(t, 2)
	w.server.Lag()
	w.mustReconcile()
	w.wantTraffic("added, with a stale read", map[string]plan.State{"web-1": plan.Unconfirmed})
	w.mustReconcile()
	w.wantBackends("added twice by a stale read", "rsp-a", backend(1, 8080, 100), backend(2, 8080, 100))
	w.server.Mend()
	w.wantTraffic("after a fresh read", map[string]plan.State{"web-1": plan.On, "web-2": plan.On})

	w.put(pod(1, preparing))
	w.server.Lag()
	w.mustReconcile()
	w.wantBackends("off", "rsp-a", backend(1, 8080, 0), backend(2, 8080, 100))
	w.wantTraffic("off, with a stale read", map[string]plan.State{"web-1": plan.Unconfirmed})
	w.server.Mend()
	w.wantTraffic("after a fresh read", map[string]plan.State{"web-1": plan.Off})
}

func TestAPodWithAnUnknownServerFailsAlone(t *testing.T) {
	w := newManaged(t, 1)
	unknown := pod(2)
	delete(unknown.Annotations, slb.ServerIDAnnotationKey)
	w.put(unknown)
	failed, err := w.reconcile()
	if diff := gocmp.Diff([]string{"web-2"}, failed); diff != "" {
		t.Errorf("failed (-want +got):\n%s", diff)
	}
	if err == nil || !containsAll(err.Error(), "web-2", "set annotation "+slb.ServerIDAnnotationKey) {
		t.Errorf("error %v does not name the annotation to set", err)
	}
	w.wantBackends("the other pod", "rsp-a", backend(1, 8080, 100))
}

func TestServersOfPods(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: corev1.NodeSpec{ProviderID: "cn-hangzhou.i-node1"}}
	for sentence, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   slbtest.Backend
	}{
		"on a network interface": {
			func(*corev1.Pod) {},
			slbtest.Backend{ServerID: "eni-1", ServerIP: "10.0.0.1", Type: "eni"},
		},
		"in a container instance": {
			func(p *corev1.Pod) { p.Annotations = map[string]string{"k8s.aliyun.com/eci-instance-id": "eci-9"} },
			slbtest.Backend{ServerID: "eci-9", ServerIP: "10.0.0.1", Type: "eci"},
		},
		"on the network of its node": {
			func(p *corev1.Pod) { p.Annotations, p.Spec.HostNetwork, p.Spec.NodeName = nil, true, "node-1" },
			slbtest.Backend{ServerID: "i-node1", Type: "ecs"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			p := pod(1)
			tc.change(p)
			w := newHarness(t, service(managed("rsp-a:8080")), node, p)
			w.server.AddGroup("", "rsp-a", "a")
			w.mustReconcile()
			tc.want.Port, tc.want.Weight, tc.want.Description = 8080, 100, description(1)
			w.wantBackends("added", "rsp-a", tc.want)
			w.wantTraffic("added", map[string]plan.State{"web-1": plan.On})
		})
	}
}

func TestInvalidServers(t *testing.T) {
	for sentence, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   []string
	}{
		"an id of another kind":        {func(p *corev1.Pod) { p.Annotations[slb.ServerIDAnnotationKey] = "vm-1" }, []string{slb.ServerIDAnnotationKey, "vm-1"}},
		"an invalid id":                {func(p *corev1.Pod) { p.Annotations[slb.ServerIDAnnotationKey] = `eni-1","x":"` }, []string{slb.ServerIDAnnotationKey, "is not the id"}},
		"a missing node":               {func(p *corev1.Pod) { p.Annotations, p.Spec.HostNetwork, p.Spec.NodeName = nil, true, "gone" }, []string{"node gone"}},
		"a node without a provider id": {func(p *corev1.Pod) { p.Annotations, p.Spec.HostNetwork, p.Spec.NodeName = nil, true, "bare" }, []string{"spec.providerID", "bare"}},
		"no node yet":                  {func(p *corev1.Pod) { p.Annotations, p.Spec.HostNetwork = nil, true }, []string{"no node yet"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			p := pod(1)
			tc.change(p)
			w := newHarness(t, service(managed("rsp-a:8080")), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}, p)
			w.server.AddGroup("", "rsp-a", "a")
			failed, err := w.reconcile()
			if len(failed) != 1 || err == nil || !containsAll(err.Error(), tc.want...) {
				t.Errorf("failed %v with error %v, want one with %q", failed, err, tc.want)
			}
			w.wantBackends("nothing", "rsp-a")
		})
	}
}

func TestAReusedAddressBelongsToItsCurrentPod(t *testing.T) {
	w := newManaged(t, 0)
	w.server.SetBackends("rsp-a", slbtest.Backend{
		ServerID: "eni-1", ServerIP: address(1), Type: "eni", Port: 8080, Weight: 100, Description: description(99),
	})
	w.put(pod(1))
	w.wantTraffic("the backend of a deleted pod", map[string]plan.State{"web-1": plan.On})

	ended := pod(2, func(b *builders.PodBuilder) { b.Phase(corev1.PodSucceeded) })
	ended.Status.PodIP = address(1)
	w.put(ended)
	w.mustReconcile()
	w.wantTraffic("beside a pod that has ended", map[string]plan.State{"web-1": plan.On, "web-2": plan.Off})
}

func TestAPodWithAChangedAddressIsMoved(t *testing.T) {
	w := newManaged(t, 1)
	w.server.SetBackends("rsp-a", slbtest.Backend{
		ServerID: "eni-old", ServerIP: "10.9.9.9", Type: "eni", Port: 8080, Weight: 100, Description: description(1),
	})
	w.wantTraffic("at the old address", map[string]plan.State{"web-1": plan.Unconfirmed})
	w.mustReconcile()
	w.wantBackends("moved", "rsp-a", backend(1, 8080, 100))
}

// TestAChangeOfThePortAddsBeforeItRemoves has an API that rejects the new backends at first.
func TestAChangeOfThePortAddsBeforeItRemoves(t *testing.T) {
	w := newManaged(t, 10)
	w.mustReconcile()
	w.server.Inject(slbtest.Fault{Action: "AddVServerGroupBackendServers", Refusal: slbtest.Throttled()})
	w.change(annotated(slb.GroupsAnnotationKey, "rsp-a:9090"))
	if failed, _ := w.reconcile(); len(failed) != 10 {
		t.Errorf("%d pods failed, want all", len(failed))
	}
	ports := func() map[int]int {
		count := map[int]int{}
		for _, backend := range w.server.Backends("rsp-a") {
			count[backend.Port]++
		}
		return count
	}
	if diff := gocmp.Diff(map[int]int{8080: 10}, ports()); diff != "" {
		t.Errorf("ports while no backend can be added (-want +got):\n%s", diff)
	}
	w.server.Mend()
	before := len(w.server.Calls())
	w.mustReconcile()
	if diff := gocmp.Diff(map[int]int{9090: 10}, ports()); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	var changes []string
	for _, call := range w.server.Calls()[before:] {
		if len(call.Backends) > 0 {
			changes = append(changes, call.Action)
		}
	}
	if diff := gocmp.Diff([]string{"AddVServerGroupBackendServers", "RemoveVServerGroupBackendServers"}, changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func TestPodsAreRemovedFromFormerGroups(t *testing.T) {
	w := newManaged(t, 1)
	w.mustReconcile()
	if got := w.service().Annotations[slb.UsedGroupsAnnotationKey]; got != "rsp-a" {
		t.Fatalf("recorded groups = %q, want rsp-a", got)
	}
	w.change(annotated(slb.GroupsAnnotationKey, "rsp-b:8080"))
	w.put(pod(1, preparing))
	w.wantTraffic("off in the new group, on in the old one", map[string]plan.State{"web-1": plan.Unconfirmed})
	w.put(pod(1))
	w.mustReconcile()
	w.wantBackends("left", "rsp-a")
	w.wantBackends("entered", "rsp-b", backend(1, 8080, 100))

	w.server.RemoveGroup("rsp-a")
	w.wantTraffic("a former group was deleted", map[string]plan.State{"web-1": plan.On})

	w.change(func(s *corev1.Service) {
		delete(s.Annotations, slb.BackendsAnnotationKey)
		delete(s.Annotations, slb.GroupsAnnotationKey)
	})
	if !slb.Owns(w.service()) {
		t.Error("a Service with pods in groups must belong to the adapter")
	}
	w.mustReconcile()
	w.wantBackends("no longer managed", "rsp-b")
}

func TestGroupsAreRecordedBeforeTheFirstPodIsAdded(t *testing.T) {
	w := newManaged(t, 1)
	if err := w.client.Delete(context.Background(), w.service()); err != nil {
		t.Fatal(err)
	}
	s := service(managed("rsp-a:8080"))
	expected, err := w.adapter.GetExpectedEmployee(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if _, failed, err := w.adapter.CreateEmployees(t.Context(), s, expected); err == nil || len(failed) != 1 {
		t.Errorf("failed %v, error %v: the record cannot be written", failed, err)
	}
	w.wantBackends("not recorded", "rsp-a")
}

func TestADeletedServiceLeavesNothingOfItsOwn(t *testing.T) {
	w := newManaged(t, 2)
	w.server.SetBackends("rsp-a", foreign(50, 8080), foreign(1, 9999))
	w.mustReconcile()
	w.drop("web-2")
	now := metav1.NewTime(time.Now())
	deleted := w.service()
	deleted.DeletionTimestamp = &now
	if expected, err := w.adapter.GetExpectedEmployee(t.Context(), deleted); err != nil || len(expected) > 0 {
		t.Errorf("expected of a deleted Service: %v, %v", expected, err)
	}
	current, err := w.adapter.GetCurrentEmployee(t.Context(), deleted)
	if err != nil {
		t.Fatal(err)
	}
	if _, failed, err := w.adapter.DeleteEmployees(t.Context(), deleted, current); err != nil || len(failed) > 0 {
		t.Errorf("failed %v, error %v", failed, err)
	}
	w.wantBackends("after", "rsp-a", foreign(50, 8080), foreign(1, 9999))
}

func TestAFormerServiceHasNoCurrentPods(t *testing.T) {
	for sentence, leave := range map[string]func(*corev1.Service){
		"deleted":               func(s *corev1.Service) { now := metav1.NewTime(time.Now()); s.DeletionTimestamp = &now },
		"without control label": func(s *corev1.Service) { delete(s.Labels, "kusionstack.io/control") },
		"no longer managed":     func(s *corev1.Service) { delete(s.Annotations, slb.BackendsAnnotationKey) },
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newManaged(t, 2)
			w.mustReconcile()
			w.put(pod(3, preparing))
			left := w.service()
			leave(left)
			current, err := w.adapter.GetCurrentEmployee(t.Context(), left)
			if err != nil || len(current) != 2 {
				t.Errorf("%d pods are registered, want 2; error %v", len(current), err)
			}
			if _, failed, err := w.adapter.DeleteEmployees(t.Context(), left, current); err != nil || len(failed) > 0 {
				t.Errorf("failed %v, error %v", failed, err)
			}
			if current, err = w.adapter.GetCurrentEmployee(t.Context(), left); err != nil || len(current) > 0 {
				t.Errorf("remaining are %v, error %v: the Service would never be released", current, err)
			}
			w.wantBackends("left", "rsp-a")
		})
	}
}

func TestAServiceWithoutASelectorSelectsNoPods(t *testing.T) {
	w := newManaged(t, 2, func(s *corev1.Service) { s.Spec.Selector = nil })
	names, err := w.adapter.GetSelectedEmployeeNames(t.Context(), w.service())
	if err != nil || len(names) > 0 {
		t.Errorf("selected %v, error %v", names, err)
	}
	w.mustReconcile()
	w.wantBackends("no pods", "rsp-a")
}

func TestSelectedEmployees(t *testing.T) {
	w := newManaged(t, 3)
	w.put(pod(4, func(b *builders.PodBuilder) { b.Label("app", "other") }))
	w.put(pod(5, func(b *builders.PodBuilder) { b.Namespace("elsewhere") }))
	names, err := w.adapter.GetSelectedEmployeeNames(t.Context(), w.service())
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff([]string{"web-1", "web-2", "web-3"}, names); diff != "" {
		t.Errorf("selected (-want +got):\n%s", diff)
	}
}

func TestPodsWithoutAnAddressHaveDifferentIds(t *testing.T) {
	w := newManaged(t, 0)
	for n := 1; n <= 2; n++ {
		p := pod(n)
		p.Status.PodIP = ""
		w.put(p)
	}
	w.mustReconcile()
	w.wantBackends("nothing to add yet", "rsp-a")
	w.wantTraffic("without an address", map[string]plan.State{"web-1": plan.Off, "web-2": plan.Off})
}

func TestTheErrorOfAMissingGroupNamesIt(t *testing.T) {
	w := newManaged(t, 1, managed("rsp-typo:8080"))
	if _, err := w.reconcile(); err == nil || !containsAll(err.Error(), "service default/web", "rsp-typo", "DescribeVServerGroupAttribute", "does not exist") {
		t.Errorf("error %v does not name the missing group", err)
	}
}

func TestOtherObjectsAreRejected(t *testing.T) {
	w := newManaged(t, 1)
	if _, err := w.adapter.GetExpectedEmployee(t.Context(), pod(1)); err == nil || !strings.Contains(err.Error(), "*v1.Pod") {
		t.Errorf("error %v", err)
	}
	_, failed, err := w.adapter.UpdateEmployees(t.Context(), service(managed("nonsense")), nil)
	if err == nil || len(failed) > 0 || !strings.Contains(err.Error(), slb.GroupsAnnotationKey) {
		t.Errorf("failed %v, error %v", failed, err)
	}
}

func TestALongNameIsLeftOutOfTheDescription(t *testing.T) {
	w := newManaged(t, 0)
	p := pod(1)
	p.Name = strings.Repeat("n", 40)
	w.put(p)
	w.mustReconcile()
	want := backend(1, 8080, 100)
	want.Description = strings.TrimSuffix(want.Description, podName(1))
	w.wantBackends("added", "rsp-a", want)
	w.drop(p.Name)
	w.wantTraffic("an unattributed backend is current", map[string]plan.State{"web-2": plan.Unconfirmed})
	w.mustReconcile()
	w.wantBackends("gone", "rsp-a")
}
