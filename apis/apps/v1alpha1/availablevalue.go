package v1alpha1

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// UnmarshalJSON reads a bound ("25%", 3) or an object {"value": bound}. It returns an error that
// names the three spellings for any other JSON.
func (v *AvailableValue) UnmarshalJSON(data []byte) error {
	var value *intstr.IntOrString
	var err error
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		nested := struct {
			Value *intstr.IntOrString `json:"value"`
		}{}
		err = json.Unmarshal(data, &nested)
		value = nested.Value
	} else {
		err = json.Unmarshal(data, &value)
	}
	if err != nil {
		return fmt.Errorf(`a bound must be a whole number, a percentage like "25%%", or {"value": ...} with one of them: %w`, err)
	}
	v.Value = value
	return nil
}
