package main

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

func TestOrder(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	second := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	marked := func(key string, n int) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Labels: map[string]string{key: strconv.FormatInt(second(n).UnixNano(), 10)}}}
	}
	const server = "web/shop_web_web-0_1a2b"
	type step struct {
		at   int
		line string
	}
	on, drain, off := "set server "+server+" state ready\n", "set server "+server+" state drain\n", "set server "+server+" state maint\n"
	for name, tc := range map[string]struct {
		steps                       []step
		pod                         *corev1.Pod
		operate, available, against int
	}{
		"off before operate":          {steps: []step{{1, on}, {2, drain}, {3, off}, {9, on}}, pod: marked(appsv1alpha1.OperateLabelPrefix+"/a", 4), operate: 1},
		"draining is not off":         {steps: []step{{1, on}, {2, drain}}, pod: marked(appsv1alpha1.OperateLabelPrefix+"/a", 4), against: 1},
		"off too late":                {steps: []step{{1, on}, {5, off}}, pod: marked(appsv1alpha1.OperateLabelPrefix+"/a", 4), against: 1},
		"no command":                  {pod: marked(appsv1alpha1.OperateLabelPrefix+"/a", 4), against: 1},
		"a command for another pod":   {steps: []step{{1, "set server web/shop_web_web-1_1a2b state maint"}}, pod: marked(appsv1alpha1.OperateLabelPrefix+"/a", 4), against: 1},
		"removed before operate":      {steps: []step{{1, "del server " + server}}, pod: marked(appsv1alpha1.OperateLabelPrefix+"/a", 4), operate: 1},
		"on before service-available": {steps: []step{{1, off}, {2, on}}, pod: marked(appsv1alpha1.ServiceAvailableLabelKey, 3), available: 1},
		"service-available while off": {steps: []step{{1, on}, {2, off}, {4, on}}, pod: marked(appsv1alpha1.ServiceAvailableLabelKey, 3), against: 1},
		"other commands do not count": {steps: []step{{1, on}, {2, "show servers state web"}, {2, "set server " + server + " weight 5"}}, pod: marked(appsv1alpha1.ServiceAvailableLabelKey, 3), available: 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory()
			for _, s := range tc.steps {
				h.command(second(s.at), s.line)
			}
			h.see(tc.pod)
			h.see(tc.pod) // a watch may repeat events
			h.begin(second(1))
			got := h.order()
			h.begin(second(100))
			if later := h.order(); later.operate+later.available+len(later.violations) > 0 {
				t.Errorf("events before begin count: %+v", later)
			}
			if diff := cmp.Diff([]int{tc.operate, tc.available, tc.against}, []int{got.operate, got.available, len(got.violations)}); diff != "" {
				t.Errorf("operate, available, violations differ (-want +got):\n%s\n%v", diff, got.violations)
			}
		})
	}
}
