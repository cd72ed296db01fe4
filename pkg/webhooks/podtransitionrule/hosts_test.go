package podtransitionrule_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhooks/podtransitionrule"
)

// polled returns a rule with two addresses.
func polled(address, poll string) string {
	return staged([]string{`{"name":"a",$s,"webhook":{"failurePolicy":"Fail","clientConfig":{"url":"` + address + `","poll":{"url":"` + poll + `"}}}}`})[0]
}

func TestValidatorDeniesAddressesThatRulesMayNotReach(t *testing.T) {
	for _, host := range []string{
		"2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[fe80::1%25eth0]", "b\u00fccher.example",
		"169.254.169.254", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "127.0.0.1", "[::1]", "localhost",
	} {
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

func TestADenialNamesTheFieldTheAddressTheReasonAndTheWayOut(t *testing.T) {
	const want = `spec.rules[0].webhook.clientConfig.url: Invalid value: "https://169.254.169.254/": address 169.254.169.254 is link-local, ` +
		`which webhook rules and drain endpoints may not reach: an administrator can allow it with --rule-webhook-allow-cidr or --rule-webhook-allow-host`
	raw := object(``, selectWeb, polled("https://169.254.169.254/", "https://10.0.0.1/"))
	if response := validator(t).Handle(t.Context(), request(raw)); response.Allowed || !strings.Contains(response.Result.Message, want) {
		t.Errorf("got %+v, want %s", response.Result, want)
	}
}

func TestValidatorAllowsAddressesThatTheManagerAllows(t *testing.T) {
	guard := webhookclient.Guard{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("169.254.169.254/32")}}
	v := podtransitionrule.NewValidator(decoder(t), policies(t), policies(t), &checker{}, guard.CheckURL)
	raw := object(``, selectWeb, polled("https://169.254.169.254/", "https://169.254.169.254/task"))
	if response := v.Handle(t.Context(), request(raw)); !response.Allowed {
		t.Errorf("got %+v", response.Result)
	}
}

// TestValidatorDeniesNewAddressesOnly shows that an address that was stored before the manager rejected it does not deny other edits, but cannot be added.
func TestValidatorDeniesNewAddressesOnly(t *testing.T) {
	const metadata, right = "https://169.254.169.254/", "https://10.0.0.1/"
	named := func(name, rule string) string { return strings.Replace(rule, `"name":"a"`, `"name":"`+name+`"`, 1) }
	for name, tc := range map[string]struct {
		old, object []string
		want        []string // fields; nil: allowed
	}{
		"another rule is added": {
			old: []string{polled(metadata, metadata)}, object: []string{polled(metadata, metadata), named("b", polled(right, right))},
		},
		"another field of the rule is edited": {
			old: []string{polled(metadata, metadata)}, object: []string{strings.Replace(polled(metadata, metadata), "Fail", "Ignore", 1)},
		},
		"rules change their order": {
			old:    []string{polled(metadata, right), named("b", polled(right, right))},
			object: []string{named("b", polled(right, right)), polled(metadata, right)},
		},
		"one of two addresses is corrected": {
			old: []string{polled(metadata, metadata)}, object: []string{polled(metadata, right)},
		},
		"the rule is created": {
			object: []string{polled(metadata, right)}, want: []string{"spec.rules[0].webhook.clientConfig.url"},
		},
		"the address is edited": {
			old: []string{polled(metadata, right)}, object: []string{polled(metadata+"latest", right)}, want: []string{"spec.rules[0].webhook.clientConfig.url"},
		},
		"the address moves to another field": {
			old: []string{polled(metadata, right)}, object: []string{polled(right, metadata)}, want: []string{"spec.rules[0].webhook.clientConfig.poll.url"},
		},
		"the address moves to another rule": {
			old: []string{polled(metadata, right)}, object: []string{named("b", polled(metadata, right))}, want: []string{"spec.rules[0].webhook.clientConfig.url"},
		},
		"a poll is added": {
			old: []string{strings.Replace(polled(right, "gone"), `,"poll":{"url":"gone"}`, "", 1)}, object: []string{polled(right, metadata)},
			want: []string{"spec.rules[0].webhook.clientConfig.poll.url"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			checked := request(object(``, selectWeb, tc.object...))
			if tc.old != nil {
				checked = edited(object(``, selectWeb, tc.old...), object(``, selectWeb, tc.object...))
			}
			response := validator(t).Handle(t.Context(), checked)
			if tc.want == nil {
				if !response.Allowed {
					t.Errorf("got %+v", response.Result)
				}
				return
			}
			if response.Allowed {
				t.Fatal("allowed")
			}
			var fields []string
			for _, cause := range response.Result.Details.Causes {
				fields = append(fields, cause.Field)
			}
			if diff := cmp.Diff(tc.want, fields); diff != "" {
				t.Errorf("fields (-want +got):\n%s\n%s", diff, response.Result.Message)
			}
		})
	}
}

// TestAdmissionAndTheClientReadBundlesAlike shows that both accept and reject the same bundles.
func TestAdmissionAndTheClientReadBundlesAlike(t *testing.T) {
	const garbage = "-----BEGIN CERTIFICATE-----\\neA==\\n-----END CERTIFICATE-----\\n"
	for name, bundle := range map[string]string{
		"nothing": "", "a line break in base64": "Cg==", "white space": " \\n", "no base64": "?", "base64 of a word": "aGVsbG8=",
		"a malformed certificate": garbage, "a key": strings.ReplaceAll(garbage, "CERTIFICATE", "PRIVATE KEY"),
	} {
		t.Run(name, func(t *testing.T) {
			rule := staged([]string{`{"name":"a",$s,"webhook":{"failurePolicy":"Fail","clientConfig":{"url":"https://a","caBundle":"` + bundle + `"}}}`})[0]
			allowed := validator(t).Handle(t.Context(), request(object(``, selectWeb, rule))).Allowed
			decoded := ""
			if err := json.Unmarshal([]byte(`"`+bundle+`"`), &decoded); err != nil {
				t.Fatal(err)
			}
			if _, err := webhookclient.Roots(decoded); (err == nil) != allowed {
				t.Errorf("admission allows it: %v, the client: %v", allowed, err)
			}
		})
	}
}
