package spec_test

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// bound is a count or a percentage.
func bound(value any) *intstr.IntOrString {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	decoded := intstr.IntOrString{}
	if err := json.Unmarshal(encoded, &decoded); err != nil {
		panic(err)
	}
	return &decoded
}

func matchLabels(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}
