package rolloutview

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/lifecycle"
	"github.com/podops-dev/podops/pkg/text"
)

// backendCount is how many load balancers and Services a pod belongs to, and how many send it traffic.
type backendCount struct{ all, on int }

// backends are the load balancers and Services of the pods of a view.
type backends struct {
	all []Traffic
	of  map[types.UID]backendCount
}

// add counts a pod of a backend.
func (b *backends) add(pod *corev1.Pod, traffic *Traffic, on bool) {
	count := b.of[pod.UID]
	count.all++
	traffic.Pods++
	if on {
		count.on++
		traffic.On++
	}
	b.of[pod.UID] = count
}

// backendsOf returns the traffic of pods. The finalizer of a traffic controller shows whether a load balancer
// sends a pod traffic; for Services without such a controller, EndpointSlices do.
func backendsOf(in Input, pods []*corev1.Pod) backends {
	b := backends{all: []Traffic{}, of: map[types.UID]backendCount{}}
	confirmed := map[string]*Traffic{}
	for _, pod := range pods {
		facts := lifecycle.FactsOf(pod)
		for employer, finalizer := range facts.Expected {
			traffic, known := confirmed[employer]
			if !known {
				traffic = &Traffic{Name: nameOf(employer), By: byFinalizer}
				confirmed[employer] = traffic
			}
			b.add(pod, traffic, slices.Contains(pod.Finalizers, finalizer))
		}
	}
	routed := map[string]*Traffic{}
	for _, service := range in.Services {
		if _, known := confirmed["Service/"+service.Namespace+"/"+service.Name]; known || len(service.Spec.Selector) == 0 {
			continue
		}
		traffic := &Traffic{Name: "Service/" + service.Name, By: byEndpoints}
		serving := servingPods(in.Slices, service)
		selector := labels.SelectorFromSet(service.Spec.Selector)
		for _, pod := range pods {
			if selector.Matches(labels.Set(pod.Labels)) {
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

// nameOf returns an employer without its namespace, which is that of the view.
func nameOf(employer string) string {
	if parts := strings.Split(employer, "/"); len(parts) == 3 {
		employer = parts[0] + "/" + parts[2]
	}
	return text.Line(employer, maxText)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
