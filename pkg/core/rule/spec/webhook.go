package spec

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podfields"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/cabundle"
)

// Bounds of a poll, as in the CRD, in seconds.
const (
	maxPollInterval = 3600
	maxPollTimeout  = 604800
)

// Bounds of calls, as in the CRD.
const (
	maxURLBytes            = 2048
	maxParameters          = 32
	maxParameterKeyBytes   = 253
	maxParameterValueBytes = 4096
	maxQueryKeyBytes       = 63
)

// normalizeWebhook moves the poll to clientConfig and fills in defaults. A poll in both places is
// compared with its defaults.
func normalizeWebhook(webhook *appsv1alpha1.TransitionRuleWebhook, path *field.Path) field.ErrorList {
	if webhook.FailurePolicy == "" {
		webhook.FailurePolicy = appsv1alpha1.FailurePolicyFail
	}
	normalizePoll(webhook.ClientConfig.Poll)
	if webhook.Poll == nil {
		return nil
	}
	moved := webhook.Poll.DeepCopy()
	normalizePoll(moved)
	canonical := webhook.ClientConfig.Poll
	if canonical != nil && !equality.Semantic.DeepEqual(canonical, moved) {
		return field.ErrorList{field.Invalid(path.Child("poll"), shown(moved.URL),
			"differs from clientConfig.poll, which means the same: set one of them")}
	}
	webhook.ClientConfig.Poll, webhook.Poll = moved, nil
	return nil
}

func normalizePoll(poll *appsv1alpha1.WebhookPoll) {
	if poll == nil {
		return
	}
	if poll.IntervalSeconds == nil {
		poll.IntervalSeconds = ptr.To[int64](appsv1alpha1.DefaultPollIntervalSeconds)
	}
	if poll.TimeoutSeconds == nil {
		poll.TimeoutSeconds = ptr.To[int64](appsv1alpha1.DefaultPollTimeoutSeconds)
	}
}

// validateWebhook checks the fields only: calls show whether the service exists. A normalized rule
// has its poll in clientConfig.
func validateWebhook(webhook appsv1alpha1.TransitionRuleWebhook, path *field.Path) field.ErrorList {
	client, clientPath := webhook.ClientConfig, path.Child("clientConfig")
	errs := validateReceiver(client.URL, client.CABundle, client.SecretRef, clientPath)
	if client.Poll != nil {
		errs = append(errs, validatePoll(*client.Poll, clientPath.Child("poll"))...)
	}
	if webhook.Poll != nil {
		errs = append(errs, field.Forbidden(path.Child("poll"),
			"it is the other spelling of clientConfig.poll, which is the one to set"))
	}
	errs = append(errs, validateEnum(webhook.FailurePolicy, path.Child("failurePolicy"),
		appsv1alpha1.FailurePolicyFail, appsv1alpha1.FailurePolicyIgnore)...)
	return append(errs, validateParameters(webhook.Parameters, path.Child("parameters"))...)
}

// validateReceiver checks the address of the service, its trust, and the credentials of PodOps.
func validateReceiver(
	address, bundle string, secret *appsv1alpha1.SecretReference, path *field.Path,
) field.ErrorList {
	errs := field.ErrorList{}
	if _, err := ParseURL(address); err != nil {
		errs = append(errs, field.Invalid(path.Child("url"), shown(address), err.Error()))
	}
	if _, err := cabundle.Parse(bundle); err != nil {
		errs = append(errs, field.Invalid(path.Child("caBundle"), "", err.Error()))
	}
	if secret == nil {
		return errs
	}
	at := path.Child("secretRef")
	if problems := validation.IsDNS1123Subdomain(secret.Name); len(problems) > 0 {
		errs = append(errs, field.Invalid(at.Child("name"), secret.Name, strings.Join(problems, "; ")))
	}
	if strings.HasPrefix(address, "http://") {
		errs = append(errs, field.Forbidden(at,
			"the Secret would be sent unencrypted: write an https url, or leave out secretRef"))
	}
	return errs
}

// ParseURL parses the URL of a webhook rule, for admission and for the client of the service. Errors
// are predicates without a subject, and have no part of the URL, which may have secrets in it.
func ParseURL(address string) (*url.URL, error) {
	if len(address) > maxURLBytes {
		return nil, fmt.Errorf("must have at most %d bytes", maxURLBytes)
	}
	if !strings.HasPrefix(address, "https://") && !strings.HasPrefix(address, "http://") {
		return nil, errors.New("must begin with https:// or http://")
	}
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("is not a URL: write it as https://host:port/path")
	}
	switch {
	case parsed.User != nil:
		return nil, errors.New("must have no user and password: put them into a Secret, and name it in secretRef")
	case parsed.Hostname() == "":
		return nil, errors.New("must name a host")
	case parsed.Fragment != "" || strings.Contains(address, "#"):
		return nil, errors.New("must have no fragment (#...): it would not be sent")
	case strings.HasSuffix(parsed.Host, ":"):
		return nil, errors.New("has a colon without a port: give one, or leave out the colon")
	}
	if port := parsed.Port(); port != "" {
		if number, err := strconv.Atoi(port); err != nil || len(validation.IsValidPortNum(number)) > 0 {
			return nil, errors.New("must have a port from 1 to 65535")
		}
	}
	return parsed, nil
}

// shown returns an address for an error, without credentials.
func shown(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return parsed.Redacted()
}

func validatePoll(poll appsv1alpha1.WebhookPoll, path *field.Path) field.ErrorList {
	errs := validateReceiver(poll.URL, poll.CABundle, poll.SecretRef, path)
	key := poll.RawQueryKey
	if !isQueryKey(key) { // none is the default
		errs = append(errs, field.Invalid(path.Child("rawQueryKey"), key, fmt.Sprintf(
			"must be at most %d letters, digits, dots, dashes, underscores or tildes: it is written into the query of url", maxQueryKeyBytes)))
	}
	errs = append(errs, validateSeconds(poll.IntervalSeconds, maxPollInterval, path.Child("intervalSeconds"))...)
	return append(errs, validateSeconds(poll.TimeoutSeconds, maxPollTimeout, path.Child("timeoutSeconds"))...)
}

// isQueryKey reports whether a key needs no escaping in a query.
func isQueryKey(key string) bool {
	const unreserved = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"
	return len(key) <= maxQueryKeyBytes && strings.Trim(key, unreserved) == ""
}

// validateSeconds accepts 1 to most, and nil, which is the default.
func validateSeconds(seconds *int64, most int64, path *field.Path) field.ErrorList {
	if seconds == nil || *seconds >= 1 && *seconds <= most {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *seconds, fmt.Sprintf("must be from 1 to %d", most))}
}

func validateParameters(parameters []appsv1alpha1.WebhookParameter, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	if len(parameters) > maxParameters {
		errs = append(errs, field.TooMany(path, len(parameters), maxParameters))
	}
	seen := map[string]bool{}
	for i, parameter := range parameters {
		at := path.Index(i)
		switch {
		case parameter.Key == "":
			errs = append(errs, field.Required(at.Child("key"), "a parameter needs a key"))
		case len(parameter.Key) > maxParameterKeyBytes:
			errs = append(errs, field.TooLong(at.Child("key"), "", maxParameterKeyBytes))
		case seen[parameter.Key]:
			errs = append(errs, field.Duplicate(at.Child("key"), parameter.Key))
		}
		seen[parameter.Key] = true
		errs = append(errs, validateParameter(parameter, at)...)
	}
	return errs
}

func validateParameter(parameter appsv1alpha1.WebhookParameter, path *field.Path) field.ErrorList {
	from := parameter.ValueFrom
	switch {
	case parameter.Value != "" && from != nil:
		return field.ErrorList{field.Forbidden(path.Child("valueFrom"),
			"a parameter must have exactly one of value or valueFrom, and it has value already")}
	case parameter.Value == "" && from == nil:
		return field.ErrorList{field.Required(path, "a parameter must have exactly one of value, not empty, or valueFrom")}
	case from == nil:
		if len(parameter.Value) > maxParameterValueBytes {
			return field.ErrorList{field.TooLong(path.Child("value"), "", maxParameterValueBytes)}
		}
		return nil
	case from.FieldRef == nil:
		return field.ErrorList{field.Required(path.Child("valueFrom", "fieldRef"), "name a field of the pod")}
	}
	at := path.Child("valueFrom", "fieldRef")
	errs := field.ErrorList{}
	if version := from.FieldRef.APIVersion; version != "" {
		errs = append(errs, validateEnum(version, at.Child("apiVersion"), "v1")...)
	}
	if err := podfields.Validate(from.FieldRef.FieldPath); err != nil {
		errs = append(errs, field.Invalid(at.Child("fieldPath"), from.FieldRef.FieldPath, err.Error()))
	}
	return errs
}

// Warnings lists settings of a valid rule that are probably mistakes. path is the path of the rule.
func Warnings(rule appsv1alpha1.TransitionRule, path *field.Path) []string {
	warnings := append(foreignTypes(rule, path.Child("conditions")), requiresNothing(rule.LabelCheck, path)...)
	if rule.Webhook == nil {
		return warnings
	}
	client := rule.Webhook.ClientConfig
	path = path.Child("webhook", "clientConfig")
	warnings = append(warnings, plainText(client.URL, client.CABundle, path)...)
	poll := client.Poll
	if poll == nil {
		return warnings
	}
	path = path.Child("poll")
	warnings = append(warnings, plainText(poll.URL, poll.CABundle, path)...)
	if poll.IntervalSeconds != nil && poll.TimeoutSeconds != nil && *poll.IntervalSeconds > *poll.TimeoutSeconds {
		warnings = append(warnings, fmt.Sprintf("%s: %d s is longer than timeoutSeconds (%d s): a task would be given up before its second poll",
			path.Child("intervalSeconds"), *poll.IntervalSeconds, *poll.TimeoutSeconds))
	}
	return warnings
}

// foreignTypes warns about types of operations that PodOps itself never starts: a typing error
// looks like the type of an operation controller.
func foreignTypes(entry appsv1alpha1.TransitionRule, path *field.Path) []string {
	var warnings []string
	for i, name := range entry.Conditions {
		if !rule.BeginsOperation(name, entry.Stage) {
			warnings = append(warnings, fmt.Sprintf("%s: PodOps itself begins no operation of type %q for this stage, only of type %q in PreCheck, for "+
				"rollouts and scale-ins of a Deployment alike, and %q of new pods in PostCheck: this type applies only if an operation controller of yours uses it",
				path.Index(i), name, appsv1alpha1.DeleteOperationType, appsv1alpha1.CreateOperationType))
		}
	}
	return warnings
}

// requiresNothing warns about a label selector that every pod matches.
func requiresNothing(check *appsv1alpha1.LabelCheck, path *field.Path) []string {
	if check == nil || check.Requires == nil || len(check.Requires.MatchLabels)+len(check.Requires.MatchExpressions) > 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: it is empty, so every pod passes this rule", path.Child("labelCheck", "requires"))}
}

// plainText warns about an address without TLS.
func plainText(address, bundle string, path *field.Path) []string {
	if !strings.HasPrefix(address, "http://") {
		return nil
	}
	warnings := []string{fmt.Sprintf("%s: without TLS an attacker in the network can read the request and forge the approval: use https", path.Child("url"))}
	if certificates, err := cabundle.Parse(bundle); err == nil && len(certificates) > 0 {
		warnings = append(warnings, fmt.Sprintf("%s: has no effect on an http url", path.Child("caBundle")))
	}
	return warnings
}
