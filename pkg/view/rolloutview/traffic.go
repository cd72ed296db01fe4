package rolloutview

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/runtime/text"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
)

// backendCount is the number of load balancers and Services that a pod belongs to, and the number of
// them that send it traffic.
type backendCount struct{ all, on int }

// backends are the load balancers and Services of a view's pods.
type backends struct {
	all []Traffic
	of  map[types.UID]backendCount
}

// add counts a pod of a backend.
func (b *backends) add(pod statePod, traffic *Traffic, on bool) {
	count := b.of[pod.UID]
	count.all++
	traffic.Pods++
	if on {
		count.on++
		traffic.On++
	}
	b.of[pod.UID] = count
}

// countBackends returns the traffic of pods. The finalizer of a traffic controller shows whether a load balancer
// sends a pod traffic; for Services without such a controller, EndpointSlices do.
func countBackends(snapshot *clusterstate.Snapshot, pods []statePod) backends {
	b := backends{all: []Traffic{}, of: map[types.UID]backendCount{}}
	confirmed := map[string]*Traffic{}
	for _, pod := range pods {
		for _, finalizer := range pod.state.Finalizers {
			for _, employer := range finalizer.Employers {
				traffic, known := confirmed[employer]
				if !known {
					traffic = &Traffic{Name: employerName(employer), By: byFinalizer}
					confirmed[employer] = traffic
				}
				b.add(pod, traffic, finalizer.Present)
			}
		}
	}
	routed := map[string]*Traffic{}
	for _, service := range snapshot.Services {
		if _, known := confirmed[podstate.EmployerName(service.Namespace, service.Name)]; known {
			continue
		}
		traffic := &Traffic{Name: "Service/" + service.Name, By: byEndpoints}
		serving := servingPods(snapshot.EndpointSlices, service)
		for _, pod := range pods {
			if podstate.Selects(service, pod.Pod) {
				b.add(pod, traffic, serving[pod.UID])
			}
		}
		if traffic.Pods > 0 {
			routed[traffic.Name] = traffic
		}
	}
	for _, some := range []map[string]*Traffic{confirmed, routed} {
		for _, name := range sortedKeys(some) {
			b.all = append(b.all, *some[name])
		}
	}
	return b
}

// servingPods returns the pods that the EndpointSlices of a Service have as ready.
func servingPods(slicesOf []*discoveryv1.EndpointSlice, service *corev1.Service) map[types.UID]bool {
	serving := map[types.UID]bool{}
	for _, slice := range slicesOf {
		if slice.Namespace != service.Namespace || slice.Labels[discoveryv1.LabelServiceName] != service.Name {
			continue
		}
		for i := range slice.Endpoints {
			endpoint := &slice.Endpoints[i]
			ready := endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
			if endpoint.TargetRef != nil && ready {
				serving[endpoint.TargetRef.UID] = true
			}
		}
	}
	return serving
}

// employerName returns an employer without its namespace, which is the namespace of the view.
func employerName(employer string) string {
	if parts := strings.Split(employer, "/"); len(parts) == 3 {
		employer = parts[0] + "/" + parts[2]
	}
	return text.Line(employer, maxText)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
