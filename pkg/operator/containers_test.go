package operator

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/podops-dev/podops/test/builders"
)

func transformed(t *testing.T, shared *sharedContainers, pod *corev1.Pod) []corev1.Container {
	t.Helper()
	object, err := shared.transform(pod)
	if err != nil {
		t.Fatal(err)
	}
	return object.(*corev1.Pod).Spec.Containers
}

func TestPodsWithEqualContainersShareThem(t *testing.T) {
	shared := &sharedContainers{}
	first := transformed(t, shared, production())
	if second := transformed(t, shared, production()); &first[0] != &second[0] {
		t.Error("the pods of a template have a list each")
	}
	updated := production()
	updated.Spec.Containers[0].Image = "web:v2"
	if third := transformed(t, shared, updated); third[0].Image != "web:v2" || first[0].Image != "web:v1" {
		t.Errorf("the images are %s and %s", first[0].Image, third[0].Image)
	}
	if empty := transformed(t, shared, &corev1.Pod{}); len(empty) != 0 {
		t.Errorf("a pod without containers has %v", empty)
	}
}

func TestSharedContainersAreBounded(t *testing.T) {
	shared := &sharedContainers{}
	long := strings.Repeat("x", 10<<10)
	for i := range 1000 {
		image := fmt.Sprint("registry.example.com/", long, ":", i)
		list := transformed(t, shared, builders.MakePod("web").Image(image).Obj())
		if diff := cmp.Diff(image, list[0].Image); diff != "" {
			t.Fatal(diff)
		}
		if shared.bytes > maxSharedBytes {
			t.Fatalf("%d bytes are shared", shared.bytes)
		}
	}
}
