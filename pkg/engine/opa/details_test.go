package opa_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa/vet"
)

// detailed returns a request of a pod with two containers and a condition.
func detailed() rule.Request { return detailedAt(0) }

func detailedAt(i int) rule.Request {
	made := request(i, true)
	made.Pod.Details = rule.PodDetails{
		Version: "7",
		Containers: []corev1.Container{
			{Name: "app", Image: "registry.example.com:5000/shop/web:v1.2@sha256:" + strings.Repeat("a", 64), Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
			}},
			{Name: "proxy", Image: "envoy"},
		},
		Restarts: 3, Started: time.Unix(5, 0),
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(7, 0)},
			{Type: "example.com/synced", Status: corev1.ConditionFalse, Reason: "Behind", LastTransitionTime: metav1.Unix(6, 0)},
		},
	}
	return made
}

// TestDetailsOfPods shows what modules read that name a detail. Others find none.
func TestDetailsOfPods(t *testing.T) {
	for field, want := range map[string]string{
		"images": `[{"container":"app","digest":"sha256:` + strings.Repeat("a", 64) + `","registry":"registry.example.com:5000","repository":"shop/web","tag":"v1.2"},` +
			`{"container":"proxy","digest":"","registry":"docker.io","repository":"library/envoy","tag":"latest"}]`,
		"resources": `[{"container":"app","limits":{"memory":{"text":"128Mi","value":134217728}},"requests":{"cpu":{"text":"500m","value":0.5}}},` +
			`{"container":"proxy","limits":{},"requests":{}}]`,
		"restarts":    `3`,
		"conditions":  `{"Ready":{"reason":"","since":7000000000,"status":"True"},"example.com/synced":{"reason":"Behind","since":6000000000,"status":"False"}}`,
		"started":     `5000000000`,
		"ready_since": `7000000000`,
	} {
		module := "package rule\n\ndeny contains {\"message\": \"m\", \"details\": {\"x\": input.pod." + field + "}}\n"
		got := verdictFor(t, patient(), custom(t, module), rule.Environment{}, detailed())
		found := struct{ X json.RawMessage }{}
		if err := json.Unmarshal([]byte(got.Details), &found); err != nil {
			t.Fatalf("%s: %+v: %v", field, got, err)
		}
		if diff := cmp.Diff(want, string(found.X)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", field, diff)
		}
	}
	unnamed := custom(t, "package rule\n\ndeny contains sprintf(\"%d fields\", [count(input.pod)])\n")
	if got := verdictFor(t, patient(), unnamed, rule.Environment{}, detailed()); got.Message != "14 fields" {
		t.Errorf("a module that names no detail finds %q", got.Message)
	}
}

// TestImageThatIsNoReference has its text as repository, so that a list of permitted registries has it not.
func TestImageThatIsNoReference(t *testing.T) {
	given := detailed()
	given.Pod.Details.Containers = []corev1.Container{{Name: "app", Image: "web::1"}}
	module := custom(t, "package rule\n\ndeny contains sprintf(\"%s|%s|%s\", [i.registry, i.repository, i.tag]) if some i in input.pod.images\n")
	if got := verdictFor(t, patient(), module, rule.Environment{}, given); got.Message != "|web::1|" {
		t.Errorf("got %q", got.Message)
	}
}

// TestUnknownDetailsWithhold shows that a pod whose containers PodOps does not keep passes no module that reads them, and any other.
func TestUnknownDetailsWithhold(t *testing.T) {
	const reads = "package rule\n\ndeny contains i.container if { some i in input.pod.images; i.registry != \"docker.io\" }\n"
	const others = "package rule\n\ndeny contains p.name if { some p in input.pods; p.restarts > 5 }\n"
	cut := &rule.PodFact{Name: "large", UID: "large", Details: rule.PodDetails{Unknown: true}}
	for name, tc := range map[string]struct {
		module string
		env    rule.Environment
		own    bool
		want   string
	}{
		"its own":                        {module: reads, own: true, want: "pod web-0: its containers are not known, and the module names a field that is made of them"},
		"those of another pod":           {module: others, env: rule.Environment{Pods: []*rule.PodFact{cut}}, want: "pod large: its containers are not known, and the module names a field that is made of them"},
		"of a pod that it does not read": {module: strings.Replace(reads, "!=", "==", 1) + "\n", env: rule.Environment{Pods: []*rule.PodFact{cut}}, want: "proxy"},
		"that it does not read":          {module: "package rule\n\ndeny contains \"other\"\n", own: true, want: "other"},
	} {
		given := detailed()
		given.Pod.Details.Unknown = tc.own
		got := verdictFor(t, patient(), custom(t, tc.module), tc.env, given)
		if got.Outcome != 0 || got.Message != tc.want {
			t.Errorf("%s: %+v, want %q", name, got, tc.want)
		}
	}
}

// TestRecordedWithoutDetails shows that an input which was recorded for a module that names no detail is not replayed with one that does:
// a denial by what it does not find would pass.
func TestRecordedWithoutDetails(t *testing.T) {
	recorded := completed(map[string]any{}).(map[string]any)
	pod := recorded["pod"].(map[string]any)
	for _, field := range vet.DetailFields() {
		delete(pod, field)
	}
	input, err := json.Marshal(recorded)
	if err != nil {
		t.Fatal(err)
	}
	replay := func(body string) error {
		_, err := newEngine(t, patient()).Replay(t.Context(), custom(t, "package rule\n\n"+body+"\n"), input)
		return err
	}
	if err := replay(`deny contains "other" if input.pod.labels.app == "db"`); err != nil {
		t.Errorf("a module that names no detail: %v", err)
	}
	err = replay(`deny contains "restarts" if input.pod.restarts > 3`)
	if err == nil || !strings.Contains(err.Error(), "the input was recorded without images, resources, restarts") {
		t.Errorf("a module that names one: %v", err)
	}
}
