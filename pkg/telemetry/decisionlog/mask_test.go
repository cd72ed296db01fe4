package decisionlog

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

func parseMasks(t *testing.T, list string) []Mask {
	t.Helper()
	masks, err := ParseMasks(list)
	if err != nil {
		t.Fatal(err)
	}
	return masks
}

// TestMaskedModule shows that the parameters of a module are masked as they are in its input, and the module of the rule stays as it is.
func TestMaskedModule(t *testing.T) {
	const parameters = `{"token":"S3CR3T","limits":{"a":"S3CR3T"},"days":7}`
	for masks, want := range map[string]string{
		"":                             parameters,
		"pod.annotations":              parameters,
		"parameters.token":             `{"days":7,"limits":{"a":"S3CR3T"},"token":"***"}`,
		"parameters":                   `{"days":"***","limits":"***","token":"***"}`,
		"*.token, parameters.limits.*": `{"days":7,"limits":{"a":"***"},"token":"***"}`,
	} {
		t.Run(masks, func(t *testing.T) {
			module := spec.Module{Custom: &spec.Custom{Parameters: json.RawMessage(parameters)}}
			got := maskedModule(module, parseMasks(t, masks))
			if diff := cmp.Diff(want, string(got.Custom.Parameters)); diff != "" || string(module.Custom.Parameters) != parameters {
				t.Errorf("parameters (-want +got):\n%s", diff)
			}
		})
	}
	if got := maskedModule(spec.Module{}, parseMasks(t, "parameters")); got.Custom != nil {
		t.Errorf("a built-in rule got the module %+v", got.Custom)
	}
}

// TestOutputsRepeatNoMaskedText has a module whose message repeats its input.
func TestOutputsRepeatNoMaskedText(t *testing.T) {
	_, found, secrets, err := masked(json.RawMessage(`{"parameters":{"token":"S3CR3T-1","other":["S3CR3T-1-long","no"]},"pod":{"name":"web"}}`), parseMasks(t, "parameters"))
	if err != nil || len(found) != 1 {
		t.Fatalf("found %v, %v", found, err)
	}
	output, err := withoutSecrets(json.RawMessage(`{"deny":["no: S3CR3T-1-long, S3CR3T-1"],"n":12345678901234567890,"S3CR3T-1":true}`), secrets)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`{"***":true,"deny":["no: ***, ***"],"n":12345678901234567890}`, string(output)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if text := hiding(secrets).Replace("cannot parse S3CR3T-1"); strings.Contains(text, "S3CR3T") {
		t.Errorf("the error is %q", text)
	}
}
