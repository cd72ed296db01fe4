package podtransitionrule_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/remote"
)

// polled is a rule with two addresses.
func polled(address, poll string) string {
	return staged([]string{`{"name":"a",$s,"webhook":{"failurePolicy":"Fail","clientConfig":{"url":"` + address + `","poll":{"url":"` + poll + `"}}}}`})[0]
}

func TestValidatorDeniesAddressesInDisguise(t *testing.T) {
	for _, host := range []string{"2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[fe80::1%25eth0]", "b\u00fccher.example"} {
		t.Run(host, func(t *testing.T) {
			raw := object(``, selectWeb, polled("https://"+host+"/approve", "https://"+host+":8443/task"))
			response := validator(t).Handle(t.Context(), request(raw))
			if response.Allowed {
				t.Fatal("allowed")
			}
			var fields []string
			for _, cause := range response.Result.Details.Causes {
				fields = append(fields, cause.Field)
			}
			want := []string{"spec.rules[0].webhook.clientConfig.url", "spec.rules[0].webhook.clientConfig.poll.url"}
			if diff := cmp.Diff(want, fields); diff != "" {
				t.Errorf("fields (-want +got):\n%s\n%s", diff, response.Result.Message)
			}
		})
	}
}

// What admission lets through, the client does not call misconfigured, and the other way round.
func TestAdmissionAndTheClientReadBundlesAlike(t *testing.T) {
	const garbage = "-----BEGIN CERTIFICATE-----\\neA==\\n-----END CERTIFICATE-----\\n"
	for name, bundle := range map[string]string{
		"nothing": "", "a line break in base64": "Cg==", "white space": " \\n", "no base64": "?", "base64 of a word": "aGVsbG8=",
		"a certificate of no sense": garbage, "a key": strings.ReplaceAll(garbage, "CERTIFICATE", "PRIVATE KEY"),
	} {
		t.Run(name, func(t *testing.T) {
			rule := staged([]string{`{"name":"a",$s,"webhook":{"failurePolicy":"Fail","clientConfig":{"url":"https://a","caBundle":"` + bundle + `"}}}`})[0]
			allowed := validator(t).Handle(t.Context(), request(object(``, selectWeb, rule))).Allowed
			decoded := ""
			if err := json.Unmarshal([]byte(`"`+bundle+`"`), &decoded); err != nil {
				t.Fatal(err)
			}
			if _, err := remote.Roots(decoded); (err == nil) != allowed {
				t.Errorf("admission allows it: %v, the client: %v", allowed, err)
			}
		})
	}
}
