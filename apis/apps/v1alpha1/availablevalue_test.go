package v1alpha1_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

func TestAvailableValueIsReadFromEachSpelling(t *testing.T) {
	percent, count := ptr.To(intstr.FromString("25%")), ptr.To(intstr.FromInt32(3))
	for text, want := range map[string]*intstr.IntOrString{
		`"25%"`: percent, `{"value": "25%"}`: percent, `3`: count, ` {"value": 3}`: count, `{}`: nil, `{"value": null}`: nil,
	} {
		t.Run(text, func(t *testing.T) {
			var got struct {
				V *appsv1alpha1.AvailableValue `json:"v"`
			}
			if err := json.Unmarshal([]byte(`{"v":`+text+`}`), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.V.Value); diff != "" {
				t.Errorf("value (-want +got):\n%s", diff)
			}
		})
	}
	for _, text := range []string{`true`, `[1]`, `1.5`, `{"value": true}`, `4294967296`} {
		t.Run(text, func(t *testing.T) {
			err := json.Unmarshal([]byte(text), &appsv1alpha1.AvailableValue{})
			if err == nil || !strings.Contains(err.Error(), `a bound must be a whole number, a percentage like "25%", or {"value": ...}`) {
				t.Errorf("got %v", err)
			}
		})
	}
}
