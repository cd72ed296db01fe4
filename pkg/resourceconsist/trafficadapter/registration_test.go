package trafficadapter_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/trafficadapter"
)

// service returns a Service under PodOps that selects app=web, changed by each change.
func service(name string, changes ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, Annotations: map[string]string{},
			Labels: map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue},
		},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func annotated(key, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations[key] = value }
}

func labelled(key, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Labels[key] = value }
}

func balanced(class *string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, class
	}
}

func adapter(name string, matches ...appsv1alpha1.ServiceMatch) *appsv1alpha1.TrafficAdapter {
	return &appsv1alpha1.TrafficAdapter{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), Generation: 1},
		Spec:       appsv1alpha1.TrafficAdapterSpec{Controller: name, Services: matches},
	}
}

func everyService() appsv1alpha1.ServiceMatch {
	return appsv1alpha1.ServiceMatch{LabelSelector: &metav1.LabelSelector{}}
}

func TestMatches(t *testing.T) {
	annotation := appsv1alpha1.ServiceMatch{Annotations: []appsv1alpha1.AnnotationMatch{{Key: "lb", Value: ptr.To("on")}}}
	anyValue := appsv1alpha1.ServiceMatch{Annotations: []appsv1alpha1.AnnotationMatch{{Key: "lb"}}}
	gold := appsv1alpha1.ServiceMatch{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}}
	classes := appsv1alpha1.ServiceMatch{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClasses: []string{"", "example.com/lb"}}
	for sentence, tc := range map[string]struct {
		matches []appsv1alpha1.ServiceMatch
		service *corev1.Service
		want    bool
	}{
		"every Service under PodOps":               {[]appsv1alpha1.ServiceMatch{everyService()}, service("web"), true},
		"a Service that is not under PodOps":       {[]appsv1alpha1.ServiceMatch{everyService()}, service("web", labelled(appsv1alpha1.ControlLabelKey, "yes")), false},
		"a Service of this controller":             {[]appsv1alpha1.ServiceMatch{everyService()}, service("web", annotated(resourceconsist.ControllerAnnotationKey, "lb")), true},
		"a Service of another controller":          {[]appsv1alpha1.ServiceMatch{everyService()}, service("web", annotated(resourceconsist.ControllerAnnotationKey, "slb")), false},
		"no entry":                                 {nil, service("web"), false},
		"the label":                                {[]appsv1alpha1.ServiceMatch{gold}, service("web", labelled("tier", "gold")), true},
		"another label":                            {[]appsv1alpha1.ServiceMatch{gold}, service("web", labelled("tier", "silver")), false},
		"one of two entries":                       {[]appsv1alpha1.ServiceMatch{gold, annotation}, service("web", annotated("lb", "on")), true},
		"all of an entry":                          {[]appsv1alpha1.ServiceMatch{{LabelSelector: gold.LabelSelector, Annotations: annotation.Annotations}}, service("web", annotated("lb", "on")), false},
		"the annotation with another value":        {[]appsv1alpha1.ServiceMatch{annotation}, service("web", annotated("lb", "off")), false},
		"the annotation with any value":            {[]appsv1alpha1.ServiceMatch{anyValue}, service("web", annotated("lb", "x")), true},
		"an empty annotation":                      {[]appsv1alpha1.ServiceMatch{anyValue}, service("web", annotated("lb", "")), false},
		"a type":                                   {[]appsv1alpha1.ServiceMatch{{Type: corev1.ServiceTypeLoadBalancer}}, service("web", balanced(ptr.To("x"))), true},
		"another type":                             {[]appsv1alpha1.ServiceMatch{{Type: corev1.ServiceTypeLoadBalancer}}, service("web"), false},
		"the default type":                         {[]appsv1alpha1.ServiceMatch{{Type: corev1.ServiceTypeClusterIP}}, service("web"), true},
		"the class":                                {[]appsv1alpha1.ServiceMatch{classes}, service("web", balanced(ptr.To("example.com/lb"))), true},
		"no class":                                 {[]appsv1alpha1.ServiceMatch{classes}, service("web", balanced(nil)), true},
		"another class":                            {[]appsv1alpha1.ServiceMatch{classes}, service("web", balanced(ptr.To("example.com/other"))), false},
		"a long annotation that the cache has cut": {[]appsv1alpha1.ServiceMatch{anyValue}, service("web", annotated("lb", strings.Repeat("x", 70<<10))), true},
	} {
		t.Run(sentence, func(t *testing.T) {
			registration, err := trafficadapter.Parse(adapter("lb", tc.matches...))
			if err != nil {
				t.Fatal(err)
			}
			if got := registration.Matches(tc.service); got != tc.want {
				t.Errorf("Matches = %t, want %t", got, tc.want)
			}
			if got := registration.Matches(trafficadapter.Slim(tc.service)); got != tc.want {
				t.Errorf("Matches of the cached Service = %t, want %t", got, tc.want)
			}
		})
	}
}

func TestAnInvalidSelectorMatchesNothingAndIsNamed(t *testing.T) {
	invalid := appsv1alpha1.ServiceMatch{LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}}
	annotation := appsv1alpha1.ServiceMatch{Annotations: []appsv1alpha1.AnnotationMatch{{Key: "lb"}}}
	registration, err := trafficadapter.Parse(adapter("lb", annotation, invalid))
	if err == nil || !strings.Contains(err.Error(), "spec.services[1].labelSelector") {
		t.Errorf("got %v", err)
	}
	if registration.Matches(service("web")) || !registration.Matches(service("web", annotated("lb", "on"))) {
		t.Error("want the valid entry alone to match")
	}
}

func TestSlimIsBounded(t *testing.T) {
	large := service("web")
	for i := range 1000 {
		large.Annotations[fmt.Sprintf("key-%04d", i)] = strings.Repeat("x", 300)
		large.Labels[fmt.Sprintf("a-%04d", i)] = strings.Repeat("x", 63)
	}
	slim := trafficadapter.Slim(large)
	bytes := 0
	for _, all := range []map[string]string{slim.Labels, slim.Annotations} {
		for key, value := range all {
			bytes += len(key) + len(value)
		}
	}
	if bytes > 33<<10 || bytes < 30<<10 {
		t.Errorf("kept %d bytes", bytes)
	}
	if !appsv1alpha1.IsControlled(slim.Labels) {
		t.Error("the control label is lost")
	}
	if other := trafficadapter.Slim(service("web", labelled(appsv1alpha1.ControlLabelKey, "no"))); len(other.Labels) > 0 {
		t.Errorf("of a Service that is not under PodOps it keeps %v", other.Labels)
	}
}

func TestTheFirstAdaptersByNameAreInUse(t *testing.T) {
	var all []appsv1alpha1.TrafficAdapter
	for i := range appsv1alpha1.MaxTrafficAdapters + 3 {
		all = append([]appsv1alpha1.TrafficAdapter{*adapter(fmt.Sprintf("lb-%03d", i))}, all...)
	}
	used := trafficadapter.InUse(all)
	if len(used) != appsv1alpha1.MaxTrafficAdapters || used[0].Name != "lb-000" || used[len(used)-1].Name != "lb-063" {
		t.Errorf("got %d, from %s to %s", len(used), used[0].Name, used[len(used)-1].Name)
	}
}
