package podtransitionrule_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gomodules.xyz/jsonpatch/v2"
	jsonpatchapply "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/webhooks/podtransitionrule"
	"github.com/podops-dev/podops/test/golden"
)

const selectWeb = `"selector":{"matchLabels":{"app":"web"}}`

func TestMutator(t *testing.T) {
	const deleting = `,"deletionTimestamp":"2026-01-01T00:00:00Z"`

	// The key is the name of the golden file with spaces.
	for name, raw := range map[string]string{
		"a canonical rule is unchanged":    object(``, selectWeb, `{"name":"a","stage":"PreCheck","enforcement":"Enforce","availablePolicy":{"maxUnavailableValue":"25%"}}`),
		"short bounds are normalized":      object(``, selectWeb, `{"name":"a","stage":"PreCheck","enforcement":"Warn","availablePolicy":{"maxUnavailable":"25%","minAvailable":3}}`),
		"nested bounds are normalized":     object(``, selectWeb, `{"name":"a","stage":"PreCheck","enforcement":"Warn","availablePolicy":{"maxUnavailable":{"value":"25%"},"minAvailable":{"value":3}}}`),
		"both spellings of one value pass": object(``, selectWeb, `{"name":"a","stage":"PreCheck","enforcement":"Warn","availablePolicy":{"maxUnavailable":{"value":1},"maxUnavailableValue":1}}`),
		"two different values are denied":  object(``, selectWeb, `{"name":"a","availablePolicy":{"maxUnavailable":{"value":1},"maxUnavailableValue":2}}`),
		"no bound at all is denied":        object(``, selectWeb, `{"name":"a","availablePolicy":{}}`),
		"an adaptive bound passes":         object(``, selectWeb, `{"name":"a","stage":"PreCheck","enforcement":"Enforce","availablePolicy":{"maxUnavailablePolicy":{}}}`),
		"older stages are normalized":      object(``, selectWeb, `{"name":"a","stage":"PreTrafficOff","labelCheck":{"requires":{}}}`, `{"name":"b","stage":"PreTrafficOn","labelCheck":{"requires":{}}}`),
		"defaults are filled in":           object(``, selectWeb, `{"name":"a","labelCheck":{"requires":{}}}`),
		"unknown fields are kept":          object(``, selectWeb+`,"later":true`, `{"name":"a","news":{"value":1},"labelCheck":{"requires":{}}}`),
		"a poll is moved":                  object(``, selectWeb, `{"name":"a","stage":"PreCheck","enforcement":"Enforce","webhook":{"clientConfig":{"url":"https://a"},"poll":{"url":"https://a/task"}}}`),
		"two different polls are denied":   object(``, selectWeb, `{"name":"a","webhook":{"clientConfig":{"url":"https://a","poll":{"url":"https://b"}},"poll":{"url":"https://c"}}}`),
		"a terminating rule passes":        object(deleting, selectWeb, `{"name":"a","availablePolicy":{"maxUnavailable":{"value":1},"maxUnavailableValue":2}}`),
		"a body that is no rule passes":    object(``, selectWeb, `"a"`),
		"malformed JSON passes":            `{`,
	} {
		t.Run(name, func(t *testing.T) {
			response := podtransitionrule.NewMutator(decoder(t)).Handle(t.Context(), request(raw))
			checkGolden(t, strings.ReplaceAll(name, " ", "-"), response)
		})
	}
}

func TestValidatorDenies(t *testing.T) {
	for name, tc := range map[string]struct {
		selector string // default: selectWeb
		rules    []string
		want     []string // fields, as causes of the status
	}{
		"no selector":          {selector: `"x":1`, rules: []string{`{"name":"a",$s,"labelCheck":{"requires":{}}}`}, want: []string{"spec.selector"}},
		"an empty selector":    {selector: `"selector":{}`, rules: []string{`{"name":"a",$s,"labelCheck":{"requires":{}}}`}, want: []string{"spec.selector"}},
		"a malformed selector": {selector: `"selector":{"matchLabels":{"no spaces":"x"}}`, rules: []string{`{"name":"a",$s,"labelCheck":{"requires":{}}}`}, want: []string{"spec.selector"}},
		"a malformed filter": {
			rules: []string{`{"name":"a",$s,"filter":{"labelSelector":{"matchExpressions":[{"key":"a","operator":"Near"}]}},"labelCheck":{"requires":{}}}`},
			want:  []string{"spec.rules[0].filter.labelSelector"},
		},
		"a webhook that cannot be called, each reason with its field": {
			rules: []string{
				`{"name":"a",$s,"webhook":{"failurePolicy":"Fail","clientConfig":{"url":"https://me@example.com","caBundle":"?","poll":{"url":"http://a","secretRef":{"name":"b"}}}}}`,
				`{"name":"b",$s,"webhook":{"failurePolicy":"Fail","clientConfig":{"url":"https://a"},"parameters":[{"key":"a","valueFrom":{"fieldRef":{"fieldPath":"spec.foo.bar"}}}]}}`,
			},
			want: []string{
				"spec.rules[0].webhook.clientConfig.url", "spec.rules[0].webhook.clientConfig.caBundle",
				"spec.rules[0].webhook.clientConfig.poll.secretRef",
				"spec.rules[1].webhook.parameters[0].valueFrom.fieldRef.fieldPath",
			},
		},
		"a negative number of pods": {
			rules: []string{`{"name":"a",$s,"availablePolicy":{"maxUnavailableValue":-1}}`}, want: []string{"spec.rules[0].availablePolicy.maxUnavailableValue"},
		},
		"several errors at once, each with its field": {
			rules: []string{
				`{"name":"",$s,"labelCheck":{}}`,
				`{"name":"b","stage":"Later","enforcement":"Maybe","labelCheck":{"requires":{}}}`,
				`{"name":"c",$s}`,
			},
			want: []string{
				"spec.rules[0].name", "spec.rules[0].labelCheck.requires",
				"spec.rules[1].stage", "spec.rules[1].enforcement", "spec.rules[2]",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			selector := tc.selector
			if selector == "" {
				selector = selectWeb
			}
			response := validator(t).Handle(t.Context(), request(object(``, selector, staged(tc.rules)...)))
			if response.Allowed || response.Result == nil || response.Result.Code != http.StatusUnprocessableEntity ||
				response.Result.Reason != metav1.StatusReasonInvalid || response.Result.Details == nil {
				t.Fatalf("got %+v, want 422 with details", response)
			}
			var fields []string
			for _, cause := range response.Result.Details.Causes {
				fields = append(fields, cause.Field)
				if !strings.Contains(response.Result.Message, cause.Field) {
					t.Errorf("message %q does not name %s", response.Result.Message, cause.Field)
				}
			}
			if diff := cmp.Diff(tc.want, fields); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidatorAllows(t *testing.T) {
	const deleting = `,"deletionTimestamp":"2026-01-01T00:00:00Z"`

	for name, tc := range map[string]struct {
		raw  string
		want []string // warnings
	}{
		"a label check": {raw: object(``, selectWeb, staged([]string{`{"name":"a",$s,"labelCheck":{"requires":{"matchLabels":{"a":"b"}}}}`})...)},
		"a label check for nothing, with a warning": {
			raw:  object(``, selectWeb, staged([]string{`{"name":"a",$s,"labelCheck":{"requires":{}}}`})...),
			want: []string{"spec.rules[0].labelCheck.requires: it is empty, so every pod passes this rule"},
		},
		"the type of PodOps itself": {raw: object(``, selectWeb, staged([]string{`{"name":"a",$s,"conditions":["delete"],"labelCheck":{"requires":{"matchLabels":{"a":"b"}}}}`})...)},
		"the type of new pods": {raw: object(``, selectWeb, staged([]string{
			`{"name":"a",$s,"stage":"PostCheck","conditions":["create"],"labelCheck":{"requires":{"matchLabels":{"a":"b"}}}}`,
		})...)},
		"types of others, with a warning": {
			raw: object(``, selectWeb, staged([]string{`{"name":"a",$s,"conditions":["delete","updat"],"labelCheck":{"requires":{"matchLabels":{"a":"b"}}}}`})...),
			want: []string{`spec.rules[0].conditions[1]: PodOps itself begins no operation of type "updat" for this stage, only of type "delete" in PreCheck, ` +
				`for rollouts and scale-ins of a Deployment alike, and "create" of new pods in PostCheck: this type applies only if an operation controller of yours uses it`},
		},
		"a percentage below 100": {raw: object(``, selectWeb, staged([]string{`{"name":"a",$s,"availablePolicy":{"minAvailableValue":"99%"}}`})...)},
		"a maximum of 0, with a warning": {
			raw:  object(``, selectWeb, staged([]string{`{"name":"a",$s,"availablePolicy":{"maxUnavailableValue":0}}`})...),
			want: []string{"spec.rules[0].availablePolicy: the rule has maxUnavailable 0: an available pod passes only while there are more pods than desired, as in a rollout with maxSurge; deletes and evictions of available pods wait unless it has surge"},
		},
		"100% that must stay, with surge": {raw: object(``, selectWeb, staged([]string{
			`{"name":"a",$s,"availablePolicy":{"minAvailableValue":"100%","surge":1}}`, `{"name":"b",$s,"availablePolicy":{"maxUnavailableValue":0,"surge":"50%"}}`,
		})...)},
		"100% that must stay, with a warning": {
			raw: object(``, selectWeb, staged([]string{
				`{"name":"a",$s,"availablePolicy":{"minAvailableValue":"99%"}}`, `{"name":"b",$s,"availablePolicy":{"minAvailableValue":"100%"}}`,
			})...),
			want: []string{"spec.rules[1].availablePolicy: the rule has minAvailable 100%: an available pod passes only while there are more pods than desired, as in a rollout with maxSurge; deletes and evictions of available pods wait unless it has surge"},
		},
		"a webhook that does not respond": {raw: object(``, selectWeb, staged([]string{`{"name":"a",$s,"webhook":{"failurePolicy":"Fail","clientConfig":{"url":"https://10.0.0.1:1"}}}`})...)},
		"a webhook without TLS, with a warning": {
			raw:  object(``, selectWeb, staged([]string{`{"name":"a",$s,"webhook":{"failurePolicy":"Fail","clientConfig":{"url":"http://example.com"}}}`})...),
			want: []string{"spec.rules[0].webhook.clientConfig.url: without TLS an attacker in the network can read the request and forge the approval: use https"},
		},
		"a terminating rule with any spec": {raw: object(deleting, `"selector":{}`, `{"name":""}`)},
	} {
		t.Run(name, func(t *testing.T) {
			response := validator(t).Handle(t.Context(), request(tc.raw))
			if !response.Allowed {
				t.Fatalf("got %+v", response.Result)
			}
			if diff := cmp.Diff(tc.want, response.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNormalizedRulesAreValid shows that the two webhooks agree: the Validator accepts the rules
// that the Mutator writes.
func TestNormalizedRulesAreValid(t *testing.T) {
	raw := object(``, selectWeb, `{"name":"a","stage":"PreTrafficOff","availablePolicy":{"maxUnavailable":{"value":"25%"},"minAvailable":{"value":3}}}`,
		`{"name":"b","webhook":{"clientConfig":{"url":"https://a"},"poll":{"url":"https://a/task"}}}`)
	before := validator(t).Handle(t.Context(), request(raw))
	if before.Allowed {
		t.Fatal("the older spellings are valid as they stand: this test shows nothing")
	}
	normalized := apply(t, raw, podtransitionrule.NewMutator(decoder(t)).Handle(t.Context(), request(raw)))
	if response := validator(t).Handle(t.Context(), request(normalized)); !response.Allowed {
		t.Errorf("got %s for %s", response.Result.Message, normalized)
	}
}

func TestValidatorRejectsMalformedRules(t *testing.T) {
	response := validator(t).Handle(t.Context(), request(`{`))
	if response.Allowed || response.Result.Code != http.StatusBadRequest {
		t.Errorf("got %+v, want 400", response)
	}
}

// apply applies a patch, as the API server does.
func apply(t *testing.T, raw string, response admission.Response) string {
	t.Helper()
	patch, err := json.Marshal(response.Patches)
	if err != nil {
		t.Fatal(err)
	}
	operations, err := jsonpatchapply.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := operations.Apply([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return string(patched)
}

func decoder(t *testing.T) admission.Decoder {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := appsv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return admission.NewDecoder(scheme)
}

func request(raw string) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "request", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(raw)},
	}}
}

// object returns a PodTransitionRule; metadata is a part of the JSON of its metadata.
func object(metadata, selector string, rules ...string) string {
	return `{"apiVersion":"apps.kusionstack.io/v1alpha1","kind":"PodTransitionRule","metadata":{"namespace":"default","name":"web"` + metadata +
		`},"spec":{` + selector + `,"rules":[` + strings.Join(rules, ",") + `]},"status":{"selected":0,"desired":0,"available":0,"waiting":0}}`
}

// staged adds the fields that the mutating webhook and the schema add: stage and enforcement.
func staged(rules []string) []string {
	filled := slices.Clone(rules)
	for i := range filled {
		filled[i] = strings.Replace(filled[i], "$s", `"stage":"PreCheck","enforcement":"Enforce"`, 1)
	}
	return filled
}

// checkGolden compares the visible part of a response with a file.
func checkGolden(t *testing.T, name string, response admission.Response) {
	t.Helper()
	visible := struct {
		Allowed  bool                  `json:"allowed"`
		Code     int32                 `json:"code,omitempty"`
		Message  string                `json:"message,omitempty"`
		Warnings []string              `json:"warnings,omitempty"`
		Patch    []jsonpatch.Operation `json:"patch,omitempty"`
	}{Allowed: response.Allowed, Warnings: response.Warnings, Patch: slices.Clone(response.Patches)}
	slices.SortFunc(visible.Patch, func(a, b jsonpatch.Operation) int { return strings.Compare(a.Path, b.Path) })
	if response.Result != nil {
		visible.Code, visible.Message = response.Result.Code, response.Result.Message
	}
	got, err := json.MarshalIndent(visible, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	golden.Check(t, filepath.Join("testdata", name+".json"), string(got))
}

// TestLargeRules shows that a spec over its bound is not decoded. The mutator passes it on to the
// schema, which names the field, and the validator denies it, unless it is stored like that.
func TestLargeRules(t *testing.T) {
	rule := `{"name":"a","labelCheck":{"requires":{"matchExpressions":[{"key":"a","operator":"In","values":["` +
		strings.Repeat(`x","`, 100_000) + `x"]}]}}}`
	large := request(object(``, selectWeb, rule))
	if response := podtransitionrule.NewMutator(decoder(t)).Handle(t.Context(), large); !response.Allowed || len(response.Patches) > 0 {
		t.Errorf("mutator: %+v", response)
	}
	response := validator(t).Handle(t.Context(), large)
	if response.Allowed || response.Result.Code != http.StatusUnprocessableEntity ||
		!strings.Contains(response.Result.Message, "spec: Forbidden: has 400") {
		t.Errorf("validator: %+v", response.Result)
	}
	labelled := edited(object(``, selectWeb, rule), object(`,"labels":{"a":"b"}`, selectWeb, rule))
	if response := validator(t).Handle(t.Context(), labelled); !response.Allowed {
		t.Errorf("validator of a new label: %+v", response.Result)
	}
	few := strings.Replace(rule, strings.Repeat(`x","`, 99_900), "", 1)
	response = validator(t).Handle(t.Context(), request(object(``, selectWeb, few)))
	if response.Allowed || !strings.Contains(response.Result.Message, "spec.rules[0].labelCheck.requires.matchExpressions[0].values: Too many: 101") {
		t.Errorf("validator of 101 values: %+v", response.Result)
	}
}
