package alibabacloudslb_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	slb "github.com/podops-dev/podops/pkg/adapters/alibabacloudslb"
	"github.com/podops-dev/podops/pkg/adapters/alibabacloudslb/internal/slbtest"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/plan"
	"github.com/podops-dev/podops/test/builders"
)

// newObserved returns a Service of load balancer lb-1, with pods 1 and 2, and the two
// vServer groups that the cloud controller manager has created for its ports.
func newObserved(t *testing.T, changes ...func(*corev1.Service)) *harness {
	t.Helper()
	s := service(ofLoadBalancer("lb-1"))
	for _, change := range changes {
		change(s)
	}
	w := newHarness(t, s, pod(1), pod(2))
	w.server.AddLoadBalancer("lb-1")
	w.server.AddGroup("lb-1", "rsp-http", "k8s/8080/web/default/c1")
	w.server.AddGroup("lb-1", "rsp-https", "k8s/8443/web/default/c1")
	return w
}

// byCCM returns a backend as the cloud controller manager registers it.
func byCCM(n, port, weight int) slbtest.Backend {
	b := backend(n, port, weight)
	b.Description = "k8s/8080/web/default/c1"
	return b
}

func TestObservedTraffic(t *testing.T) {
	for sentence, tc := range map[string]struct {
		pod         *corev1.Pod
		http, https []slbtest.Backend
		want        plan.State
	}{
		"should be on, and is in every group": {pod(1), []slbtest.Backend{byCCM(1, 8080, 100)}, []slbtest.Backend{byCCM(1, 8443, 100)}, plan.On},
		"with any weight":                     {pod(1), []slbtest.Backend{byCCM(1, 8080, 5)}, []slbtest.Backend{byCCM(1, 8443, 90)}, plan.On},
		"should be on, and is in one group":   {pod(1), []slbtest.Backend{byCCM(1, 8080, 100)}, nil, plan.Unconfirmed},
		"should be on, and is in none":        {pod(1), nil, nil, plan.Unconfirmed},
		"should be on, without weight in one": {pod(1), []slbtest.Backend{byCCM(1, 8080, 100)}, []slbtest.Backend{byCCM(1, 8443, 0)}, plan.Unconfirmed},
		"should be on, and another pod is":    {pod(1), []slbtest.Backend{byCCM(2, 8080, 100)}, []slbtest.Backend{byCCM(2, 8443, 100)}, plan.Unconfirmed},
		"should be off, and is in none":       {pod(1, preparing), nil, nil, plan.Off},
		"should be off, and is in one group":  {pod(1, preparing), nil, []slbtest.Backend{byCCM(1, 8443, 100)}, plan.Unconfirmed},
		"should be off, and has no weight":    {pod(1, preparing), []slbtest.Backend{byCCM(1, 8080, 0)}, []slbtest.Backend{byCCM(1, 8443, 0)}, plan.Off},
		"should be off, and is in every one":  {pod(1, preparing), []slbtest.Backend{byCCM(1, 8080, 100)}, []slbtest.Backend{byCCM(1, 8443, 100)}, plan.Unconfirmed},
		"terminates, and is in one":           {pod(1, terminating), []slbtest.Backend{byCCM(1, 8080, 100)}, nil, plan.Unconfirmed},
		"terminates, and is in none":          {pod(1, terminating), nil, nil, plan.Off},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newObserved(t)
			w.put(tc.pod)
			w.server.SetBackends("rsp-http", tc.http...)
			w.server.SetBackends("rsp-https", tc.https...)
			w.wantTraffic("", map[string]plan.State{"web-1": tc.want})
		})
	}
}

func TestObservedServicesAreNotChanged(t *testing.T) {
	w := newObserved(t)
	w.server.SetBackends("rsp-http", byCCM(2, 8080, 100), byCCM(77, 8080, 100))
	w.put(pod(2, preparing))
	w.mustReconcile()
	w.drop("web-2")
	w.mustReconcile()
	w.wantBackends("after", "rsp-http", byCCM(2, 8080, 100), byCCM(77, 8080, 100))
	for action, count := range w.calls() {
		if !strings.HasPrefix(action, "Describe") {
			t.Errorf("%d calls of %s", count, action)
		}
	}
	if got := w.service().Annotations[slb.UsedGroupsAnnotationKey]; got != "" {
		t.Errorf("recorded groups %q of an observed Service", got)
	}
}

func TestAPodThatLeftTheServiceIsCurrentUntilItsTrafficIsOff(t *testing.T) {
	w := newObserved(t)
	w.put(pod(1, func(b *builders.PodBuilder) {
		b.Label("app", "other").Finalizer(resourceconsist.GenerateLifecycleFinalizer("web"))
	}))
	w.server.SetBackends("rsp-http", byCCM(1, 8080, 100))
	w.wantTraffic("still registered", map[string]plan.State{"web-1": plan.Unconfirmed})
	w.server.SetBackends("rsp-http")
	w.wantTraffic("removed", map[string]plan.State{"web-1": plan.Off})
}

func TestAnObservedServiceThatIsDeletedWaitsForTheCloudControllerManager(t *testing.T) {
	w := newObserved(t)
	w.put(pod(2, preparing))
	w.server.SetBackends("rsp-http", byCCM(1, 8080, 100))
	now := metav1.NewTime(time.Now())
	deleted := w.service()
	deleted.DeletionTimestamp = &now
	for _, want := range []int{1, 0} {
		current, err := w.adapter.GetCurrentEmployee(t.Context(), deleted)
		if err != nil || len(current) != want {
			t.Errorf("%d pods are current, want %d; error %v", len(current), want, err)
		}
		w.server.RemoveLoadBalancer("lb-1")
	}
}

func TestAnObservedServiceWithoutTheControlLabelHasNoCurrentPods(t *testing.T) {
	w := newObserved(t)
	w.server.SetBackends("rsp-http", byCCM(1, 8080, 100))
	taken := w.service()
	delete(taken.Labels, "kusionstack.io/control")
	current, err := w.adapter.GetCurrentEmployee(t.Context(), taken)
	if err != nil || len(current) > 0 {
		t.Errorf("%v are current, error %v: their finalizers would never be removed", current, err)
	}
}

func TestGroupsOfOthersOnTheSameLoadBalancerDoNotCount(t *testing.T) {
	w := newObserved(t)
	for id, name := range map[string]string{
		"rsp-other":     "k8s/8080/api/default/c1",
		"rsp-namespace": "k8s/8080/web/staging/c1",
		"rsp-hand":      "web",
	} {
		w.server.AddGroup("lb-1", id, name, byCCM(1, 8080, 100))
	}
	w.put(pod(1, preparing))
	w.wantTraffic("on in groups of others", map[string]plan.State{"web-1": plan.Off})
}

func TestGroupsOfTheUser(t *testing.T) {
	w := newObserved(t, annotated(slb.GroupPortAnnotationKey, "rsp-mine:80"))
	w.server.AddGroup("", "rsp-mine", "mine", byCCM(1, 8080, 100))
	w.wantTraffic("in that group alone", map[string]plan.State{"web-1": plan.On, "web-2": plan.Unconfirmed})
	if got := w.calls()["DescribeVServerGroups"]; got != 0 {
		t.Errorf("%d calls for known groups", got)
	}
}

func TestTheDefaultServerGroupCountsWhenThereIsNoOther(t *testing.T) {
	w := newHarness(t, service(ofLoadBalancer("lb-2")), pod(1), pod(2))
	w.server.AddLoadBalancer("lb-2", byCCM(1, 0, 100))
	w.wantTraffic("no vServer group", map[string]plan.State{"web-1": plan.On, "web-2": plan.Unconfirmed})
}

func TestNodesAsBackendsHidePods(t *testing.T) {
	w := newObserved(t)
	w.server.SetBackends("rsp-http", slbtest.Backend{ServerID: "i-node", ServerIP: "192.168.0.9", Type: "ecs", Port: 30080, Weight: 100})
	if _, err := w.diff(); err == nil || !containsAll(err.Error(), "service default/web", "rsp-http", "i-node", "backend-type: eni") {
		t.Errorf("error %v: a pod behind a node may have traffic, even if no group has it", err)
	}
}

func TestThePodOnTheNetworkOfItsNodeHasTheServerOfTheNode(t *testing.T) {
	host := func(b *builders.PodBuilder) { b.Annotation(slb.ServerIDAnnotationKey, "i-node") }
	w := newObserved(t)
	w.put(pod(1, host))
	node := slbtest.Backend{ServerID: "i-node", Type: "ecs", Port: 8080, Weight: 100}
	w.server.SetBackends("rsp-http", node)
	w.server.SetBackends("rsp-https", node)
	w.wantTraffic("on", map[string]plan.State{"web-1": plan.On, "web-2": plan.Unconfirmed})
}

func TestLoadBalancerOfAService(t *testing.T) {
	address := func(s *corev1.Service) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}
	}
	for sentence, tc := range map[string]struct {
		service *corev1.Service
		pod     *corev1.Pod
		want    plan.State
		err     string
	}{
		"none yet, no traffic expected":          {service(), pod(1, preparing), plan.Off, ""},
		"none yet, traffic expected":             {service(), pod(1), plan.Unconfirmed, ""},
		"an address of an unknown load balancer": {service(address), pod(1, preparing), 0, slb.LoadBalancerIDLabelKey},
		"deleted":                                {service(ofLoadBalancer("lb-gone"), address), pod(1, preparing), plan.Off, ""},
		"set by the user":                        {service(annotated(slb.LoadBalancerIDAnnotationKey, "lb-9")), pod(1), plan.On, ""},
		"an invalid id":                          {service(ofLoadBalancer("lb 1")), pod(1), 0, slb.LoadBalancerIDLabelKey},
		"neither observed nor managed":           {service(annotated(slb.BackendsAnnotationKey, "yes")), pod(1), 0, slb.BackendsAnnotationKey},
		"the user's group does not exist":        {service(annotated(slb.GroupPortAnnotationKey, "rsp-no:80")), pod(1), 0, "rsp-no"},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newHarness(t, tc.service, tc.pod)
			w.server.AddLoadBalancer("lb-9", byCCM(1, 0, 100))
			if tc.err == "" {
				w.wantTraffic("", map[string]plan.State{"web-1": tc.want})
				return
			}
			if _, err := w.diff(); err == nil || !containsAll(err.Error(), "service default/web", tc.err) {
				t.Errorf("error %v does not name %q", err, tc.err)
			}
		})
	}
}

func TestAProviderThatFailsConfirmsNothing(t *testing.T) {
	for sentence, action := range map[string]string{
		"load balancer": "DescribeLoadBalancerAttribute",
		"groups":        "DescribeVServerGroups",
		"group":         "DescribeVServerGroupAttribute",
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newObserved(t)
			w.server.Inject(slbtest.Fault{Action: action, Refusal: slbtest.Broken()})
			if _, err := w.diff(); err == nil || !strings.Contains(err.Error(), action) {
				t.Errorf("error %v, want one of %s", err, action)
			}
		})
	}
}

func TestServicesOfThisAdapter(t *testing.T) {
	class := func(name string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.LoadBalancerClass = &name }
	}
	clusterIP := func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }
	uncontrolled := func(s *corev1.Service) { delete(s.Labels, "kusionstack.io/control") }
	w := newHarness(t)
	for sentence, tc := range map[string]struct {
		service *corev1.Service
		want    bool
	}{
		"of type LoadBalancer":                  {service(), true},
		"of this class":                         {service(class("alibabacloud.com/clb")), true},
		"of another class":                      {service(class("alibabacloud.com/nlb")), false},
		"of another class, with the annotation": {service(class("x"), annotated(slb.BackendsAnnotationKey, "observed")), true},
		"inside the cluster":                    {service(clusterIP), false},
		"inside the cluster, and managed":       {service(clusterIP, managed("rsp-a:80")), true},
		"with a load balancer of Alibaba's":     {service(clusterIP, ofLoadBalancer("lb-1")), true},
		"with pods left in groups":              {service(clusterIP, annotated(slb.UsedGroupsAnnotationKey, "rsp-a")), true},
		"not controlled":                        {service(uncontrolled), false},
	} {
		t.Run(sentence, func(t *testing.T) {
			predicates := w.adapter.EmployerPredicates()
			if got := predicates.Generic(genericEvent(tc.service)); got != tc.want {
				t.Errorf("belongs = %v, want %v", got, tc.want)
			}
		})
	}
}
