package doctor

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/rule/imports"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

const (
	kindRule   = "podtransitionrule"
	kindShared = "podtransitionpolicy"

	// defaultProgressDeadline is the default of a Deployment's progressDeadlineSeconds.
	defaultProgressDeadline = 600

	// failedAttempts is the number of failed calls for the same pods that is a finding.
	failedAttempts = 3

	// maxNamed is how many workloads a finding names.
	maxNamed = 3

	// maxMessage bounds a message of a status in a finding.
	maxMessage = 512
)

func ruleChecks() []check {
	return []check{
		{id: "rule-never-passes", reads: []Source{SourceRules, SourcePods, SourceWorkloads}, find: (*inspection).ruleNeverPasses},
		{id: "surge-without-effect", reads: []Source{SourceRules, SourceWorkloads}, find: (*inspection).surgeWithoutEffect},
		{id: "rule-limits-nothing", reads: []Source{SourceRules, SourcePods}, find: (*inspection).ruleLimitsNothing},
		{id: "rule-not-evaluated", reads: []Source{SourceRules}, find: (*inspection).ruleNotEvaluated},
		{id: "rule-quarantined", reads: []Source{SourceRules}, find: (*inspection).ruleQuarantined},
		{id: "rule-selects-nothing", reads: []Source{SourceRules, SourcePods}, find: (*inspection).ruleSelectsNothing},
		{id: "rules-exclude", reads: []Source{SourceRules, SourcePods}, find: (*inspection).rulesExclude},
		{id: "rule-in-excluded-namespace", reads: []Source{SourceRules, SourceNamespaces}, find: (*inspection).ruleInExcludedNamespace},
		{id: "policy-missing", reads: []Source{SourceRules, SourceShared}, find: (*inspection).policyNotFound},
		{id: "policy-not-compiling", reads: []Source{SourceShared}, find: (*inspection).policyNotCompiling},
		{id: "webhook-rule-secret", reads: []Source{SourceRules, SourceRuleSecrets}, find: (*inspection).webhookRuleSecret},
		{id: "webhook-rule-service", reads: []Source{SourceRules, SourceServices, SourceNamespaces}, find: (*inspection).webhookRuleService},
		{id: "webhook-rule-failing", reads: []Source{SourceRules}, find: (*inspection).webhookRuleFailing},
		{id: "max-hold-deadline", reads: []Source{SourceRules, SourceWorkloads}, find: (*inspection).maxHoldDeadline},
	}
}

// edit is the remedy that changes an object by hand.
func edit(kind, namespace, name string) string {
	if namespace == "" {
		return fmt.Sprintf("kubectl edit %s %s", kind, name)
	}
	return fmt.Sprintf("kubectl edit %s -n %s %s", kind, namespace, name)
}

// ofRule completes a finding about a PodTransitionRule.
func ofRule(owner *appsv1alpha1.PodTransitionRule, level Level, words string) Finding {
	return Finding{
		Level: level, Object: object(kindRule, owner.Namespace, owner.Name), Text: words, Remedy: edit(kindRule, owner.Namespace, owner.Name),
	}
}

// enforced returns the rules of an object that withhold pods.
func enforced(rules []appsv1alpha1.TransitionRule) []appsv1alpha1.TransitionRule {
	return slices.DeleteFunc(slices.Clone(rules), func(r appsv1alpha1.TransitionRule) bool {
		return r.Disabled || r.Enforcement == appsv1alpha1.EnforcementWarn || r.Enforcement == appsv1alpha1.EnforcementDryRun
	})
}

// stalled returns the message of the condition Stalled in a status that describes the newest generation, if
// its reason is one of these.
func stalled(owner *appsv1alpha1.PodTransitionRule, reasons ...string) string {
	condition := meta.FindStatusCondition(owner.Status.Conditions, appsv1alpha1.ConditionStalled)
	if condition == nil || condition.Status != metav1.ConditionTrue || !slices.Contains(reasons, condition.Reason) {
		return ""
	}
	return text.Line(condition.Message, maxMessage)
}

func (in *inspection) ruleNeverPasses() []Finding {
	var findings []Finding
	for i := range in.Rules {
		owner := &in.Rules[i]
		reported := stalled(owner, appsv1alpha1.ReasonNeverPasses, appsv1alpha1.ReasonNeverFinishes)
		if reported != "" {
			findings = append(findings, ofRule(owner, LevelError, reported))
		}
		pods := max(int(owner.Status.Desired), len(in.selected(owner.Namespace, owner.Spec.Selector)))
		for _, r := range enforced(owner.Spec.Rules) {
			level, words, consequence := LevelError, "", "no pod ever passes it"
			switch {
			case r.AvailablePolicy != nil && reported == "":
				words, consequence = spec.PermitsNone(r.AvailablePolicy, pods), "no available pod ever passes it"
				switch surges := in.maySurge(owner.Namespace, owner.Spec.Selector); {
				case surges && spec.Surges(r.AvailablePolicy):
					words = ""
				case surges:
					level, consequence = LevelWarning, withSurge
				}
			case r.LabelCheck != nil:
				words = neverMet(owner.Spec.Selector, r)
			}
			if words != "" {
				findings = append(findings, ofRule(owner, level, fmt.Sprintf("rule %s %s: %s", r.Name, words, consequence)))
			}
		}
	}
	return findings
}

// withSurge is what a bound as high as the desired number means for workloads that surge.
const withSurge = "an available pod is permitted only while there are more pods than desired, as in a rollout with maxSurge; " +
	"deletes and evictions of available pods wait unless it has surge"

// maySurge reports whether a rollout of a workload whose pods a selector selects creates pods beyond the desired number.
func (in *inspection) maySurge(namespace string, selector *metav1.LabelSelector) bool {
	selects := func(workload metav1.Object, template map[string]string) bool {
		return workload.GetNamespace() == namespace && selector != nil && matches(selector, template) && deferreddelete.Surges(workload)
	}
	return slices.ContainsFunc(in.Deployments, func(d appsv1.Deployment) bool { return selects(&d, d.Spec.Template.Labels) }) ||
		slices.ContainsFunc(in.DaemonSets, func(d appsv1.DaemonSet) bool { return selects(&d, d.Spec.Template.Labels) })
}

// surgeWithoutEffect finds rules whose surge starts no pod of a workload that they select.
func (in *inspection) surgeWithoutEffect() []Finding {
	var findings []Finding
	for i := range in.Rules {
		owner := &in.Rules[i]
		for _, r := range enforced(owner.Spec.Rules) {
			workloads := in.withoutSurge(owner.Namespace, owner.Spec.Selector)
			if spec.Surges(r.AvailablePolicy) && len(workloads) > 0 {
				findings = append(findings, ofRule(owner, LevelWarning, fmt.Sprintf("surge of rule %s starts no pod of %s: the pods that it withholds wait",
					r.Name, strings.Join(workloads, ", "))))
			}
		}
	}
	return findings
}

// withoutSurge returns the workloads under PodOps whose pods a selector selects and that start no further pod, with the reason.
func (in *inspection) withoutSurge(namespace string, selector *metav1.LabelSelector) (names []string) {
	add := func(kind string, workload metav1.Object, template corev1.PodTemplateSpec, why string) {
		if workload.GetNamespace() == namespace && selector != nil && appsv1alpha1.IsControlled(template.Labels) && matches(selector, template.Labels) {
			names = append(names, fmt.Sprintf("%s %s (%s)", kind, workload.GetName(), why))
		}
	}
	for i := range in.Deployments {
		if d := &in.Deployments[i]; !deferreddelete.Surges(d) {
			add("Deployment", d, d.Spec.Template, "maxSurge is 0, or the strategy Recreate")
		}
	}
	const others = "only Deployments start pods"
	for i := range in.StatefulSets {
		add("StatefulSet", &in.StatefulSets[i], in.StatefulSets[i].Spec.Template, others)
	}
	for i := range in.DaemonSets {
		add("DaemonSet", &in.DaemonSets[i], in.DaemonSets[i].Spec.Template, others)
	}
	if len(names) > maxNamed {
		names = append(names[:maxNamed], fmt.Sprintf("%d more", len(names)-maxNamed))
	}
	return names
}

// neverMet returns why no pod that a rule applies to can have the labels that it requires.
func neverMet(selects *metav1.LabelSelector, r appsv1alpha1.TransitionRule) string {
	all := []*metav1.LabelSelector{selects, r.LabelCheck.Requires}
	if r.Filter != nil {
		all = append(all, r.Filter.LabelSelector)
	}
	if key := contradiction(r.LabelCheck.Requires); key != "" {
		return fmt.Sprintf("requires values of the label %s that exclude each other", key)
	}
	if key := contradiction(all...); key != "" {
		return fmt.Sprintf("requires a value of the label %s that its selector or filter excludes", key)
	}
	return ""
}

func (in *inspection) ruleNotEvaluated() []Finding {
	var findings []Finding
	for i := range in.Rules {
		owner := &in.Rules[i]
		ready := meta.FindStatusCondition(owner.Status.Conditions, appsv1alpha1.ConditionReady)
		if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason == appsv1alpha1.ReasonPolicyTooExpensive {
			continue
		}
		findings = append(findings, ofRule(owner, LevelError,
			fmt.Sprintf("is not evaluated (%s): %s; the pods that it selects wait", ready.Reason, text.Line(ready.Message, maxMessage))))
	}
	return findings
}

func (in *inspection) ruleQuarantined() []Finding {
	var findings []Finding
	for i := range in.Rules {
		owner := &in.Rules[i]
		for _, r := range owner.Status.Rules {
			if r.Quarantined == nil {
				continue
			}
			finding := ofRule(owner, LevelError, fmt.Sprintf("rule %s has been under quarantine for %s: %s",
				r.Name, age(in.now, r.Quarantined.Since.Time), text.Line(r.Quarantined.Message, maxMessage)))
			finding.Remedy = fmt.Sprintf("%s, or kubectl annotate %s -n %s %s --overwrite %s=\"$(date)\"",
				finding.Remedy, kindRule, owner.Namespace, owner.Name, appsv1alpha1.LiftQuarantineAnnotationKey)
			findings = append(findings, finding)
		}
	}
	return findings
}

func (in *inspection) ruleSelectsNothing() []Finding {
	var findings []Finding
	for i := range in.Rules {
		owner := &in.Rules[i]
		if len(in.selected(owner.Namespace, owner.Spec.Selector)) > 0 {
			continue
		}
		words := "its selector matches no pod under PodOps"
		parsed, err := metav1.LabelSelectorAsSelector(owner.Spec.Selector)
		if err == nil && slices.ContainsFunc(in.Pods, func(pod corev1.Pod) bool {
			return pod.Namespace == owner.Namespace && !appsv1alpha1.IsControlled(pod.Labels) && parsed.Matches(labels.Set(pod.Labels))
		}) {
			words = fmt.Sprintf("its selector matches only pods without the label %s=true", appsv1alpha1.ControlLabelKey)
		}
		finding := ofRule(owner, LevelWarning, words)
		finding.Remedy = fmt.Sprintf("kubectl get pods -n %s --show-labels; %s", owner.Namespace, finding.Remedy)
		findings = append(findings, finding)
	}
	return findings
}

// ruleLimitsNothing finds counts that are as high as the number of pods, such as 25 for 25%.
func (in *inspection) ruleLimitsNothing() []Finding {
	var findings []Finding
	for i := range in.Rules {
		owner := &in.Rules[i]
		pods := max(int(owner.Status.Desired), len(in.selected(owner.Namespace, owner.Spec.Selector)))
		for _, r := range enforced(owner.Spec.Rules) {
			words := spec.PermitsAll(r.AvailablePolicy, pods)
			if words == "" || r.Filter != nil {
				continue
			}
			findings = append(findings, ofRule(owner, LevelWarning, fmt.Sprintf("rule %s %s", r.Name, words)))
		}
	}
	return findings
}

// labelled is a rule that requires labels, and its object.
type labelled struct {
	object *appsv1alpha1.PodTransitionRule
	rule   appsv1alpha1.TransitionRule
}

// rulesExclude finds pairs of rules that no pod can meet together.
func (in *inspection) rulesExclude() []Finding {
	byNamespace := map[string][]labelled{}
	for i := range in.Rules {
		for _, r := range enforced(in.Rules[i].Spec.Rules) {
			if r.LabelCheck != nil {
				byNamespace[in.Rules[i].Namespace] = append(byNamespace[in.Rules[i].Namespace], labelled{&in.Rules[i], r})
			}
		}
	}
	var findings []Finding
	for _, all := range byNamespace {
		for i, a := range all {
			for _, b := range all[i+1:] {
				if key := a.excludes(b); key != "" && in.together(a, b) {
					findings = append(findings, ofRule(a.object, LevelError, fmt.Sprintf(
						"rule %s and rule %s/%s exclude each other: both apply to the same pods, and require values of the label %s that exclude each other",
						a.rule.Name, b.object.Name, b.rule.Name, key)))
				}
			}
		}
	}
	return findings
}

// excludes returns the label of which both rules together can never be met; empty without such a label,
// or if both never apply to the same operation.
func (l labelled) excludes(other labelled) string {
	alone := contradiction(l.rule.LabelCheck.Requires) != "" || contradiction(other.rule.LabelCheck.Requires) != ""
	types := len(l.rule.Conditions) == 0 || len(other.rule.Conditions) == 0 ||
		slices.ContainsFunc(l.rule.Conditions, func(t string) bool { return slices.Contains(other.rule.Conditions, t) })
	if alone || !types || stage(l.rule) != stage(other.rule) {
		return ""
	}
	return contradiction(l.rule.LabelCheck.Requires, other.rule.LabelCheck.Requires)
}

func stage(r appsv1alpha1.TransitionRule) appsv1alpha1.TransitionStage {
	if r.Stage == "" {
		return appsv1alpha1.StagePreCheck
	}
	return r.Stage
}

// together reports whether both rules apply to one pod.
func (in *inspection) together(a, b labelled) bool {
	return slices.ContainsFunc(in.selected(a.object.Namespace, a.object.Spec.Selector), func(pod *corev1.Pod) bool {
		for _, l := range []labelled{a, b} {
			filter := l.rule.Filter
			if !matches(l.object.Spec.Selector, pod.Labels) || filter != nil && filter.LabelSelector != nil && !matches(filter.LabelSelector, pod.Labels) {
				return false
			}
		}
		return true
	})
}

func matches(selects *metav1.LabelSelector, all map[string]string) bool {
	parsed, err := metav1.LabelSelectorAsSelector(selects)
	return err == nil && parsed.Matches(labels.Set(all))
}

// systemNamespace is always out of PodOps.
const systemNamespace = "kube-system"

func (in *inspection) ruleInExcludedNamespace() []Finding {
	excluded := map[string]bool{systemNamespace: true}
	for _, namespace := range in.Namespaces {
		if namespace.Labels[appsv1alpha1.ControlLabelKey] == "false" {
			excluded[namespace.Name] = true
		}
	}
	var findings []Finding
	for i := range in.Rules {
		if owner := &in.Rules[i]; excluded[owner.Namespace] {
			finding := ofRule(owner, LevelWarning, "is in a namespace that is out of PodOps: no webhook is called for its pods")
			finding.Remedy = fmt.Sprintf("kubectl label namespace %s %s-", owner.Namespace, appsv1alpha1.ControlLabelKey)
			if owner.Namespace == systemNamespace {
				finding.Remedy = "create its pods and it in another namespace"
			}
			findings = append(findings, finding)
		}
	}
	return findings
}

func (in *inspection) policyNotFound() []Finding {
	known := imports.Policies{}
	for i := range in.Shared {
		known[in.Shared[i].Name] = &in.Shared[i]
	}
	var findings []Finding
	for i := range in.Rules {
		for _, r := range in.Rules[i].Spec.Rules {
			if r.Disabled || r.Rego == nil || r.Rego.PolicyRef == nil {
				continue
			}
			for _, name := range known.Closure(r.Rego.PolicyRef.Name) {
				if _, exists := known[name]; exists {
					continue
				}
				missing := fmt.Sprintf("refers to %s %s", kindShared, name)
				if name != r.Rego.PolicyRef.Name {
					missing = fmt.Sprintf("refers to %s %s, which needs %s", kindShared, r.Rego.PolicyRef.Name, name)
				}
				finding := ofRule(&in.Rules[i], LevelError, fmt.Sprintf("rule %s %s, which does not exist: the pods that it applies to wait", r.Name, missing))
				finding.Remedy = fmt.Sprintf("kubectl get %s; %s", kindShared, finding.Remedy)
				findings = append(findings, finding)
			}
		}
	}
	return findings
}

func (in *inspection) policyNotCompiling() []Finding {
	var findings []Finding
	for _, policy := range in.Shared {
		ready := meta.FindStatusCondition(policy.Status.Conditions, appsv1alpha1.ConditionReady)
		if ready == nil || ready.Status != metav1.ConditionFalse {
			continue
		}
		findings = append(findings, Finding{
			Level: LevelError, Object: object(kindShared, "", policy.Name), Remedy: edit(kindShared, "", policy.Name),
			Text: fmt.Sprintf("does not compile (%s): %s; %d rules use it", ready.Reason, text.Line(ready.Message, maxMessage), policy.Status.UserCount),
		})
	}
	return findings
}

// endpoint is an address that a webhook rule calls, with the Secret for it.
type endpoint struct {
	url    string
	secret *appsv1alpha1.SecretReference
}

func endpoints(w *appsv1alpha1.TransitionRuleWebhook) []endpoint {
	all := []endpoint{{w.ClientConfig.URL, w.ClientConfig.SecretRef}}
	for _, poll := range []*appsv1alpha1.WebhookPoll{w.ClientConfig.Poll, w.Poll} {
		if poll != nil {
			all = append(all, endpoint{poll.URL, poll.SecretRef})
		}
	}
	return all
}

func (in *inspection) webhookRuleSecret() []Finding {
	secrets := map[types.NamespacedName]*corev1.Secret{}
	for i := range in.RuleSecrets {
		secrets[types.NamespacedName{Namespace: in.RuleSecrets[i].Namespace, Name: in.RuleSecrets[i].Name}] = &in.RuleSecrets[i]
	}
	var findings []Finding
	in.eachEndpoint(func(owner *appsv1alpha1.PodTransitionRule, r appsv1alpha1.TransitionRule, e endpoint) {
		if e.secret == nil {
			return
		}
		var problem string
		switch secret := secrets[types.NamespacedName{Namespace: owner.Namespace, Name: e.secret.Name}]; {
		case secret == nil:
			problem = "which does not exist"
		case len(secret.Data["token"]) == 0 && (len(secret.Data[corev1.TLSCertKey]) == 0 || len(secret.Data[corev1.TLSPrivateKeyKey]) == 0):
			problem = "which has neither token nor tls.crt and tls.key"
		default:
			return
		}
		finding := ofRule(owner, LevelError, fmt.Sprintf("rule %s refers to secret %s, %s: its service is not called", r.Name, e.secret.Name, problem))
		finding.Remedy = fmt.Sprintf("kubectl create secret generic -n %s %s --from-file=token=FILE --dry-run=client -o yaml | kubectl apply -f -",
			owner.Namespace, e.secret.Name)
		findings = append(findings, finding)
	})
	return findings
}

// eachEndpoint visits the addresses of all rules that are not disabled.
func (in *inspection) eachEndpoint(visit func(*appsv1alpha1.PodTransitionRule, appsv1alpha1.TransitionRule, endpoint)) {
	for i := range in.Rules {
		for _, r := range in.Rules[i].Spec.Rules {
			if r.Disabled || r.Webhook == nil {
				continue
			}
			for _, e := range endpoints(r.Webhook) {
				visit(&in.Rules[i], r, e)
			}
		}
	}
}

func (in *inspection) webhookRuleService() []Finding {
	var findings []Finding
	in.eachEndpoint(func(owner *appsv1alpha1.PodTransitionRule, r appsv1alpha1.TransitionRule, e endpoint) {
		name, ok := parseServiceAddress(e.url)
		if !ok || !in.inspected[name.Namespace] || in.services[name] != nil {
			return
		}
		findings = append(findings, ofRule(owner, LevelError,
			fmt.Sprintf("rule %s calls %s, which does not exist", r.Name, object("service", name.Namespace, name.Name))))
	})
	return findings
}

// parseServiceAddress returns the Service that a URL names, as <name>.<namespace>.svc with or without the domain of the
// cluster.
func parseServiceAddress(address string) (types.NamespacedName, bool) {
	parsed, err := url.Parse(address)
	if err != nil {
		return types.NamespacedName{}, false
	}
	parts := strings.Split(parsed.Hostname(), ".")
	if len(parts) < 3 || parts[2] != "svc" {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: parts[1], Name: parts[0]}, true
}

func (in *inspection) webhookRuleFailing() []Finding {
	var findings []Finding
	for i := range in.Rules {
		owner := &in.Rules[i]
		for _, state := range owner.Status.RuleStates {
			if state.WebhookStatus == nil {
				continue
			}
			for _, task := range state.WebhookStatus.TaskStates {
				if task.Phase != appsv1alpha1.TaskFailed || task.Attempts < failedAttempts {
					continue
				}
				finding := ofRule(owner, LevelWarning, fmt.Sprintf("%d calls of rule %s have failed in a row (%s): %s",
					task.Attempts, state.Name, task.Reason, text.Line(task.Message, maxMessage)))
				finding.Remedy = fmt.Sprintf("kubectl get events -n %s --field-selector involvedObject.name=%s", owner.Namespace, owner.Name)
				findings = append(findings, finding)
				break
			}
		}
	}
	return findings
}

func (in *inspection) maxHoldDeadline() []Finding {
	var findings []Finding
	for i := range in.Rules {
		owner := &in.Rules[i]
		if owner.Spec.MaxHold == nil {
			continue
		}
		for _, deployment := range in.Deployments {
			seconds := int32(defaultProgressDeadline)
			if deployment.Spec.ProgressDeadlineSeconds != nil {
				seconds = *deployment.Spec.ProgressDeadlineSeconds
			}
			deadline := time.Duration(seconds) * time.Second
			if deployment.Namespace != owner.Namespace || !matches(owner.Spec.Selector, deployment.Spec.Template.Labels) || owner.Spec.MaxHold.Duration < deadline {
				continue
			}
			findings = append(findings, ofRule(owner, LevelWarning, fmt.Sprintf(
				"maxHold %s is not below progressDeadlineSeconds of deployment %s (%s): its rollout is reported as failed before a pod is released",
				owner.Spec.MaxHold.Duration, deployment.Name, deadline)))
		}
	}
	return findings
}

// ReferencedSecrets returns the names of the Secrets that webhook rules refer to.
func ReferencedSecrets(rules []appsv1alpha1.PodTransitionRule) []types.NamespacedName {
	var names []types.NamespacedName
	in := &inspection{Snapshot: Snapshot{Rules: rules}}
	in.eachEndpoint(func(owner *appsv1alpha1.PodTransitionRule, _ appsv1alpha1.TransitionRule, e endpoint) {
		if e.secret != nil {
			names = append(names, types.NamespacedName{Namespace: owner.Namespace, Name: e.secret.Name})
		}
	})
	return names
}
