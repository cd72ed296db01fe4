package kubelet

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPatchRemovesTheReasonOfAConditionThatIsTrue checks that the patch names an old
// reason, since conditions are merged.
func TestPatchRemovesTheReasonOfAConditionThatIsTrue(t *testing.T) {
	pod := newPod(withGate(corev1.ConditionFalse), created, started, withGate(corev1.ConditionTrue))
	patch, err := podPatch(pod, Synced(pod, later))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"uid":"uid-1"`, `"reason":null`, `"message":null`, `"status":"True"`, `"type":"Ready"`} {
		if !strings.Contains(patch, want) {
			t.Errorf("want %s in %s", want, patch)
		}
	}
	if strings.Contains(patch, "ContainersReady\",\"status") {
		t.Errorf("a condition that stays is in the patch: %s", patch)
	}
}

// TestStageFuncsTakeObjectsAsMaps passes maps, as kwok decodes objects.
func TestStageFuncsTakeObjectsAsMaps(t *testing.T) {
	data, err := json.Marshal(newPod(created))
	if err != nil {
		t.Fatal(err)
	}
	var object any
	if err := json.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	start := Node{}.stageFuncs(testAddresses(t), func() metav1.Time { return noon })["Started"].(func(any) (string, error))
	patch, err := start(object)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(patch, `"phase":"Running"`) || !json.Valid([]byte(patch)) {
		t.Errorf("patch: %s", patch)
	}
}
