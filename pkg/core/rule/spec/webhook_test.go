package spec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

func TestValidateWebhook(t *testing.T) {
	type change = func(*appsv1alpha1.TransitionRuleWebhook)
	at := func(address string) change {
		return func(webhook *appsv1alpha1.TransitionRuleWebhook) { webhook.ClientConfig.URL = address }
	}
	poll := func(change func(*appsv1alpha1.WebhookPoll)) change {
		return func(webhook *appsv1alpha1.TransitionRuleWebhook) {
			webhook.ClientConfig = polled("https://example.com", "https://example.com/task")
			change(webhook.ClientConfig.Poll)
		}
	}
	seconds := func(interval, timeout int64) change {
		return poll(func(poll *appsv1alpha1.WebhookPoll) { poll.IntervalSeconds, poll.TimeoutSeconds = &interval, &timeout })
	}
	parameters := func(parameters ...appsv1alpha1.WebhookParameter) change {
		return func(webhook *appsv1alpha1.TransitionRuleWebhook) { webhook.Parameters = parameters }
	}
	secret := func(address, name string) change {
		return func(webhook *appsv1alpha1.TransitionRuleWebhook) {
			webhook.ClientConfig = receiver(address)
			webhook.ClientConfig.SecretRef = &appsv1alpha1.SecretReference{Name: name}
		}
	}
	const url, clientConfig = "rule.webhook.clientConfig.url", "rule.webhook.clientConfig."
	for name, tc := range map[string]struct {
		change change
		want   []string // "field: part of the message"
	}{
		"a URL":                      {change: at("https://example.com")},
		"with port, path and query":  {change: at("https://example.com:8443/approve?team=a%20b")},
		"without TLS":                {change: at("http://example.com")},
		"an IPv6 address":            {change: at("https://[fd00::1]:8443/")},
		"no URL":                     {change: at(""), want: []string{url + ": must begin with"}},
		"another scheme":             {change: at("file:///etc/passwd"), want: []string{url + ": must begin with"}},
		"no host":                    {change: at("https:///approve"), want: []string{url + ": must name a host"}},
		"a port and no host":         {change: at("https://:8443"), want: []string{url + ": must name a host"}},
		"a user":                     {change: at("https://me@example.com"), want: []string{url + ": must have no user"}},
		"a fragment":                 {change: at("https://example.com/#a"), want: []string{url + ": must have no fragment"}},
		"an empty fragment":          {change: at("https://example.com/#"), want: []string{url + ": must have no fragment"}},
		"a port that is none":        {change: at("https://example.com:http"), want: []string{url + ": is not a URL"}},
		"a port that is too high":    {change: at("https://example.com:65536"), want: []string{url + ": must have a port"}},
		"port 0":                     {change: at("https://example.com:0"), want: []string{url + ": must have a port"}},
		"a colon without a port":     {change: at("https://example.com:"), want: []string{url + ": has a colon"}},
		"a line break":               {change: at("https://example.com\n"), want: []string{url + ": is not a URL"}},
		"a URL that is too long":     {change: at("https://example.com/" + strings.Repeat("a", 2048)), want: []string{url + ": must have at most 2048"}},
		"no bundle in base64":        {change: func(w *appsv1alpha1.TransitionRuleWebhook) { w.ClientConfig.CABundle = "Cg==" }},
		"a bundle that is none":      {change: func(w *appsv1alpha1.TransitionRuleWebhook) { w.ClientConfig.CABundle = "?" }, want: []string{clientConfig + "caBundle: is neither"}},
		"a secret":                   {change: secret("https://example.com", "token")},
		"a secret without a name":    {change: secret("https://example.com", ""), want: []string{clientConfig + "secretRef.name: "}},
		"a secret that cannot exist": {change: secret("https://example.com", "../token"), want: []string{clientConfig + "secretRef.name: "}},
		"a secret without TLS":       {change: secret("http://example.com", "token"), want: []string{clientConfig + "secretRef: the Secret would be sent"}},
		"an unknown failure policy":  {change: func(w *appsv1alpha1.TransitionRuleWebhook) { w.FailurePolicy = "Retry" }, want: []string{"rule.webhook.failurePolicy: supported values"}},
		"a poll":                     {change: seconds(1, 604800)},
		"a poll in the other place":  {change: func(w *appsv1alpha1.TransitionRuleWebhook) { w.Poll = &appsv1alpha1.WebhookPoll{} }, want: []string{"rule.webhook.poll: it is the other spelling"}},
		"a poll without a URL":       {change: poll(func(p *appsv1alpha1.WebhookPoll) { p.URL = "" }), want: []string{clientConfig + "poll.url: must begin with"}},
		"a poll with a bundle":       {change: poll(func(p *appsv1alpha1.WebhookPoll) { p.CABundle = "?" }), want: []string{clientConfig + "poll.caBundle: is neither"}},
		"a poll with a secret, no TLS": {change: poll(func(p *appsv1alpha1.WebhookPoll) {
			p.URL, p.SecretRef = "http://a", &appsv1alpha1.SecretReference{Name: "a"}
		}), want: []string{clientConfig + "poll.secretRef: the Secret"}},
		"a query key":                   {change: poll(func(p *appsv1alpha1.WebhookPoll) { p.RawQueryKey = "task_id.v1~a-b" })},
		"a query key that is two":       {change: poll(func(p *appsv1alpha1.WebhookPoll) { p.RawQueryKey = "a=b&c" }), want: []string{clientConfig + "poll.rawQueryKey: must be"}},
		"a query key that is too long":  {change: poll(func(p *appsv1alpha1.WebhookPoll) { p.RawQueryKey = strings.Repeat("a", 64) }), want: []string{clientConfig + "poll.rawQueryKey: must be"}},
		"an interval of 0":              {change: seconds(0, 60), want: []string{clientConfig + "poll.intervalSeconds: must be from 1 to 3600"}},
		"an interval of over an hour":   {change: seconds(3601, 7200), want: []string{clientConfig + "poll.intervalSeconds: must be from 1 to 3600"}},
		"a timeout below 0":             {change: seconds(1, -1), want: []string{clientConfig + "poll.timeoutSeconds: must be from 1 to 604800"}},
		"a timeout of over a week":      {change: seconds(1, 604801), want: []string{clientConfig + "poll.timeoutSeconds: must be from 1 to 604800"}},
		"parameters":                    {change: parameters(appsv1alpha1.WebhookParameter{Key: "a", Value: "b"}, fieldParameter("c", "metadata.labels['d']"))},
		"32 parameters":                 {change: parameters(many(32)...)},
		"33 parameters":                 {change: parameters(many(33)...), want: []string{"rule.webhook.parameters: must have at most 32"}},
		"a parameter without a key":     {change: parameters(appsv1alpha1.WebhookParameter{Value: "b"}), want: []string{"rule.webhook.parameters[0].key: a parameter needs a key"}},
		"a key that is too long":        {change: parameters(appsv1alpha1.WebhookParameter{Key: strings.Repeat("a", 254), Value: "b"}), want: []string{"rule.webhook.parameters[0].key: may not be more than 253"}},
		"a value that is too long":      {change: parameters(appsv1alpha1.WebhookParameter{Key: "a", Value: strings.Repeat("b", 4097)}), want: []string{"rule.webhook.parameters[0].value: may not be more than 4096"}},
		"one key twice":                 {change: parameters(fieldParameter("a", "metadata.name"), fieldParameter("a", "metadata.uid")), want: []string{"rule.webhook.parameters[1].key: "}},
		"a parameter without a value":   {change: parameters(appsv1alpha1.WebhookParameter{Key: "a"}), want: []string{"rule.webhook.parameters[0]: a parameter must have exactly one"}},
		"a parameter of two values":     {change: parameters(withValue(fieldParameter("a", "metadata.name"), "b")), want: []string{"rule.webhook.parameters[0].valueFrom: a parameter must have exactly one"}},
		"a value from nowhere":          {change: parameters(appsv1alpha1.WebhookParameter{Key: "a", ValueFrom: &appsv1alpha1.ParameterSource{}}), want: []string{"rule.webhook.parameters[0].valueFrom.fieldRef: name a field"}},
		"a field that no pod has":       {change: parameters(fieldParameter("a", "spec.foo.bar")), want: []string{`rule.webhook.parameters[0].valueFrom.fieldRef.fieldPath: spec has no field "foo"`}},
		"a field that may hold secrets": {change: parameters(fieldParameter("a", "spec.containers[0].env")), want: []string{"rule.webhook.parameters[0].valueFrom.fieldRef.fieldPath: spec.containers may hold secrets"}},
		"the version of the pod": {change: parameters(func() appsv1alpha1.WebhookParameter {
			parameter := fieldParameter("a", "metadata.name")
			parameter.ValueFrom.FieldRef.APIVersion = "v1"
			return parameter
		}())},
		"another version": {change: parameters(func() appsv1alpha1.WebhookParameter {
			parameter := fieldParameter("a", "metadata.name")
			parameter.ValueFrom.FieldRef.APIVersion = "v2"
			return parameter
		}()), want: []string{"rule.webhook.parameters[0].valueFrom.fieldRef.apiVersion: supported values"}},
	} {
		t.Run(name, func(t *testing.T) {
			rule := appsv1alpha1.TransitionRule{
				Name: "mine", Stage: appsv1alpha1.StagePreCheck, Enforcement: appsv1alpha1.EnforcementEnforce,
				Webhook: &appsv1alpha1.TransitionRuleWebhook{
					ClientConfig: receiver("https://example.com"), FailurePolicy: appsv1alpha1.FailurePolicyFail,
				},
			}
			tc.change(rule.Webhook)
			errs := spec.Validate(rule, field.NewPath("rule"))
			if len(errs) != len(tc.want) {
				t.Fatalf("got %v, want %v", errs, tc.want)
			}
			for i, err := range errs {
				if got := err.Field + ": " + err.Detail; !strings.HasPrefix(got, tc.want[i]) {
					t.Errorf("got  %s\nwant %s", got, tc.want[i])
				}
			}
			// A rule that admission rejects does not compile if it is stored, except for spellings
			// that are normalized.
			_, err := spec.Rule(types.NamespacedName{Namespace: "shop", Name: "web"}, rule, nil)
			if (err != nil) != (len(tc.want) > 0) {
				t.Errorf("compiling: %v", err)
			}
		})
	}
}

func TestErrorsHaveNoPassword(t *testing.T) {
	for _, address := range []string{"https://me:hunter2@example.com", "https://me:hunter2@exa mple.com:x"} {
		for _, err := range spec.Validate(appsv1alpha1.TransitionRule{
			Webhook: &appsv1alpha1.TransitionRuleWebhook{ClientConfig: receiver(address)},
		}, field.NewPath("rule")) {
			if strings.Contains(err.Error(), "hunter2") {
				t.Error(err)
			}
		}
	}
}

func TestNormalizeWebhook(t *testing.T) {
	five, hour, seven := int64(5), int64(3600), int64(7)
	written := &appsv1alpha1.WebhookPoll{URL: "https://example.com/task", IntervalSeconds: &seven}
	full := &appsv1alpha1.WebhookPoll{URL: "https://example.com/task", IntervalSeconds: &seven, TimeoutSeconds: &hour}
	other := &appsv1alpha1.WebhookPoll{URL: "https://example.com/other", IntervalSeconds: &five, TimeoutSeconds: &hour}
	for name, tc := range map[string]struct {
		canonical, legacy         *appsv1alpha1.WebhookPoll
		wantCanonical, wantLegacy *appsv1alpha1.WebhookPoll
		wantErrors                []string
	}{
		"no poll stays so":             {},
		"a poll gets its defaults":     {canonical: &appsv1alpha1.WebhookPoll{URL: other.URL}, wantCanonical: other},
		"what is written stays":        {canonical: written, wantCanonical: full},
		"the other spelling moves":     {legacy: written, wantCanonical: full},
		"both spellings of one poll":   {canonical: full, legacy: written, wantCanonical: full},
		"both, and they are different": {canonical: other, legacy: written, wantCanonical: other, wantLegacy: written, wantErrors: []string{"rule.webhook.poll"}},
	} {
		t.Run(name, func(t *testing.T) {
			rule := appsv1alpha1.TransitionRule{Webhook: &appsv1alpha1.TransitionRuleWebhook{
				ClientConfig: appsv1alpha1.WebhookClientConfig{Poll: tc.canonical.DeepCopy()}, Poll: tc.legacy.DeepCopy(),
			}}
			_, errs := spec.Normalize(&rule, field.NewPath("rule"))
			var fields []string
			for _, err := range errs {
				fields = append(fields, err.Field)
			}
			if diff := cmp.Diff(tc.wantErrors, fields); diff != "" {
				t.Errorf("errors differ (-want +got):\n%s", diff)
			}
			want := &appsv1alpha1.TransitionRuleWebhook{
				ClientConfig: appsv1alpha1.WebhookClientConfig{Poll: tc.wantCanonical}, Poll: tc.wantLegacy,
				FailurePolicy: appsv1alpha1.FailurePolicyFail,
			}
			if diff := cmp.Diff(want, rule.Webhook); diff != "" {
				t.Errorf("the rule differs (-want +got):\n%s", diff)
			}
			before := rule.DeepCopy()
			_, _ = spec.Normalize(&rule, field.NewPath("rule"))
			if diff := cmp.Diff(*before, rule); diff != "" {
				t.Errorf("folding again changes it (-once +twice):\n%s", diff)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	long, short := int64(61), int64(60)
	slow := polled("https://example.com", "https://example.com/task")
	slow.Poll.IntervalSeconds, slow.Poll.TimeoutSeconds = &long, &short
	even := polled("https://example.com", "https://example.com/task")
	even.Poll.IntervalSeconds, even.Poll.TimeoutSeconds = &short, &short
	for name, tc := range map[string]struct {
		client appsv1alpha1.WebhookClientConfig
		want   []string // fields
	}{
		"all is well":                   {client: even},
		"nothing is known of the times": {client: polled("https://example.com", "https://example.com/task")},
		"no TLS":                        {client: receiver("http://example.com"), want: []string{"rule.webhook.clientConfig.url"}},
		"no TLS when polling":           {client: polled("https://example.com", "http://example.com"), want: []string{"rule.webhook.clientConfig.poll.url"}},
		"the second poll is too late":   {client: slow, want: []string{"rule.webhook.clientConfig.poll.intervalSeconds"}},
	} {
		t.Run(name, func(t *testing.T) {
			rule := appsv1alpha1.TransitionRule{Webhook: &appsv1alpha1.TransitionRuleWebhook{ClientConfig: tc.client}}
			var fields []string
			for _, warning := range spec.Warnings(rule, field.NewPath("rule")) {
				at, _, _ := strings.Cut(warning, ": ")
				fields = append(fields, at)
			}
			if diff := cmp.Diff(tc.want, fields); diff != "" {
				t.Errorf("warnings differ (-want +got):\n%s", diff)
			}
		})
	}
	if got := spec.Warnings(appsv1alpha1.TransitionRule{}, field.NewPath("rule")); len(got) > 0 {
		t.Errorf("a rule of another kind: %v", got)
	}
}

func receiver(address string) appsv1alpha1.WebhookClientConfig {
	return appsv1alpha1.WebhookClientConfig{URL: address}
}

func polled(address, poll string) appsv1alpha1.WebhookClientConfig {
	return appsv1alpha1.WebhookClientConfig{URL: address, Poll: &appsv1alpha1.WebhookPoll{URL: poll}}
}

func fieldParameter(key, path string) appsv1alpha1.WebhookParameter {
	return appsv1alpha1.WebhookParameter{
		Key: key, ValueFrom: &appsv1alpha1.ParameterSource{FieldRef: &appsv1alpha1.FieldRef{FieldPath: path}},
	}
}

func withValue(parameter appsv1alpha1.WebhookParameter, value string) appsv1alpha1.WebhookParameter {
	parameter.Value = value
	return parameter
}

func many(count int) []appsv1alpha1.WebhookParameter {
	parameters := []appsv1alpha1.WebhookParameter{}
	for i := range count {
		parameters = append(parameters, appsv1alpha1.WebhookParameter{Key: fmt.Sprint(i), Value: "a"})
	}
	return parameters
}
