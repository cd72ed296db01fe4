package inspection_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/podops-dev/podops/pkg/webhooks/inspection"
)

func TestBySize(t *testing.T) {
	const most = 64
	object := func(metadata, text string) string {
		return fmt.Sprintf(`{"metadata":{"name":"web"%s},"spec":{"text":"%s"}}`, metadata, text)
	}
	small, large, other := object("", "x"), object("", strings.Repeat("x", 100)), object("", strings.Repeat("y", 100))
	for name, tc := range map[string]struct {
		object, old string
		decided     bool
		allowed     bool
	}{
		"a small one is undecided":            {object: small},
		"a large new one":                     {object: large, decided: true},
		"a large edit":                        {object: large, old: other, decided: true},
		"an edit that makes it large":         {object: large, old: small, decided: true},
		"an edit that makes it small":         {object: small, old: large},
		"a large one whose spec stays":        {object: object(`,"labels":{"a":"b"}`, strings.Repeat("x", 100)), old: large, decided: true, allowed: true},
		"a large terminating one":             {object: object(`,"deletionTimestamp":"2026-01-02T12:00:00Z"`, strings.Repeat("x", 100)), old: other, decided: true, allowed: true},
		"one that is no JSON":                 {object: `{"spec":` + strings.Repeat("x", 100)},
		"one without a spec":                  {object: `{"metadata":{"annotations":{"a":"` + strings.Repeat("x", 100) + `"}}}`},
		"large metadata alone is not bounded": {object: object(`,"annotations":{"a":"`+strings.Repeat("x", 100)+`"}`, "x")},
	} {
		t.Run(name, func(t *testing.T) {
			req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(tc.object)},
			}}
			if tc.old != "" {
				req.Operation, req.OldObject.Raw = admissionv1.Update, []byte(tc.old)
			}
			response, decided := inspection.BySize(req, schema.GroupKind{Group: "g", Kind: "K"}, most)
			if decided != tc.decided || response.Allowed != tc.allowed {
				t.Fatalf("got %t, %+v", decided, response)
			}
			if decided && !tc.allowed && (response.Result.Code != http.StatusUnprocessableEntity || !strings.Contains(response.Result.Message, `"web" is invalid: spec: Forbidden: has 111 bytes as JSON, at most 64 are allowed`)) {
				t.Errorf("got %+v", response.Result)
			}
		})
	}
}
