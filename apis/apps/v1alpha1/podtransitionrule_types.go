package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// PodTransitionRule contains the rules that must pass before the selected pods may be
// operated on (stage PreCheck) and before they get traffic again (stage PostCheck). A pod
// advances when every rule of every PodTransitionRule that selects it has passed.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ptr,categories=podops
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=".status.desired",description="Pods that percentages are taken of"
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=".status.available",description="Selected pods that may serve"
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=".status.waiting",description="Selected pods that wait in a stage"
// +kubebuilder:printcolumn:name="Off-Traffic",type=integer,JSONPath=".status.offTraffic",description="Selected pods that PodOps keeps off traffic"
// +kubebuilder:printcolumn:name="Blocked By",type=string,JSONPath=".status.blockedBy",description="The rule that the first waiting pod waits for, and the code of its reason"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=".status.selected",priority=1,description="Pods the selector matches"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].status",priority=1,description="Whether every rule is compiled and evaluated"
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=".status.blocked[0].message",priority=1,description="Why the first waiting pod waits"
type PodTransitionRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec PodTransitionRuleSpec `json:"spec"`

	// status is the state that PodOps last observed. It is a report: apart from
	// status.permits no decision is derived from it.
	// +optional
	Status PodTransitionRuleStatus `json:"status,omitzero"`
}

// PodTransitionRuleList is a list of PodTransitionRules.
//
// +kubebuilder:object:root=true
type PodTransitionRuleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodTransitionRule `json:"items"`
}

// PodTransitionRuleSpec selects pods and lists their rules.
type PodTransitionRuleSpec struct {
	// selector selects the pods under these rules, in the namespace of this resource.
	// It must have at least one requirement: an empty selector is rejected, because
	// it would select every pod of the namespace by accident.
	// +required
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="selector must have at least one of matchLabels or matchExpressions: an empty selector would catch every pod of the namespace"
	Selector *metav1.LabelSelector `json:"selector"`

	// rules are evaluated together; their order in the list has no effect. Names are unique. Cheap
	// rules are evaluated before expensive rules, and availability last, so that only a pod that
	// passes all other rules takes a slot.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Rules []TransitionRule `json:"rules"`

	// maxHold bounds for how long these rules may hold back a delete or an eviction that PodOps
	// defers, from 1s to 720h. The time is measured by the manager, from when it first observed
	// that the pod waits. Unset: the flag --max-hold of the manager, which is unlimited by default.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('720h')",message="maxHold must be from 1s to 720h"
	MaxHold *metav1.Duration `json:"maxHold,omitempty"`

	// onMaxHold is the action when maxHold has passed. Undo cancels the operation, and the pod
	// keeps serving; its actor may begin it again. Release lets the pod pass these rules, after
	// its traffic is off, and records a warning. Unset: the flag --on-max-hold of the manager,
	// which is Undo by default.
	// +optional
	OnMaxHold HoldAction `json:"onMaxHold,omitempty"`

	// unguardedUpdates is the answer to a request that changes the spec of a selected pod on a node in
	// place (images, resources, activeDeadlineSeconds and so on; ephemeral containers excepted) while no
	// operation of another type than delete may operate on the pod. Allow lets it pass, and records
	// the event UpdatedUnguarded. Deny denies it, with the name of this resource. Unset: Allow.
	// +optional
	UnguardedUpdates UnguardedUpdates `json:"unguardedUpdates,omitempty"`
}

// UnguardedUpdates is the answer to updates of pods in place without an operation.
// +kubebuilder:validation:Enum=Allow;Deny
type UnguardedUpdates string

const (
	// UnguardedUpdatesAllow lets such an update pass, and reports it.
	UnguardedUpdatesAllow UnguardedUpdates = "Allow"

	// UnguardedUpdatesDeny denies such an update.
	UnguardedUpdatesDeny UnguardedUpdates = "Deny"
)

// HoldAction is the action when a pod has waited for the maximum time.
// +kubebuilder:validation:Enum=Undo;Release
type HoldAction string

const (
	// HoldUndo cancels the operation.
	HoldUndo HoldAction = "Undo"

	// HoldRelease lets the pod pass.
	HoldRelease HoldAction = "Release"
)

// TransitionStage is the point of a lifecycle at which a rule is evaluated.
// +kubebuilder:validation:Enum=PreCheck;PostCheck
type TransitionStage string

const (
	// StagePreCheck is before a pod is prepared for an operation.
	StagePreCheck TransitionStage = "PreCheck"

	// StagePostCheck is after an operation, before the pod gets traffic again, and before a new pod gets traffic.
	StagePostCheck TransitionStage = "PostCheck"
)

// Enforcement is the consequence when a rule does not pass.
// +kubebuilder:validation:Enum=Enforce;Warn;DryRun
type Enforcement string

const (
	// EnforcementEnforce keeps the pod waiting.
	EnforcementEnforce Enforcement = "Enforce"

	// EnforcementWarn lets the pod pass and records a warning event.
	EnforcementWarn Enforcement = "Warn"

	// EnforcementDryRun lets the pod pass and only counts.
	EnforcementDryRun Enforcement = "DryRun"
)

// ExemptRevisions are the revisions whose pods pass a rule.
// +kubebuilder:validation:Enum=None;Abandoned;Outdated
type ExemptRevisions string

const (
	// ExemptNone exempts no pod.
	ExemptNone ExemptRevisions = "None"

	// ExemptAbandoned exempts pods of abandoned revisions.
	ExemptAbandoned ExemptRevisions = "Abandoned"

	// ExemptOutdated exempts pods of all revisions but the newest.
	ExemptOutdated ExemptRevisions = "Outdated"
)

// TransitionRule is one rule: when it applies, and exactly one kind of check.
//
// +kubebuilder:validation:XValidation:rule="!has(self.availablePolicy) || !has(self.exemptRevisions) || self.exemptRevisions == 'None'",message="exemptRevisions does not apply to availablePolicy: every pod counts"
// +kubebuilder:validation:XValidation:rule="[has(self.availablePolicy), has(self.labelCheck), has(self.approval), has(self.webhook), has(self.rego)].filter(kind, kind).size() == 1",message="a rule must have exactly one of availablePolicy, labelCheck, approval, webhook or rego"
// +kubebuilder:validation:XValidation:rule="!has(self.approval) || !has(self.stage) || self.stage in ['PreCheck', 'PreTrafficOff']",message="approval applies in the stage PreCheck only"
// +kubebuilder:validation:XValidation:rule="!has(self.approval) || !has(self.exemptRevisions) || self.exemptRevisions != 'Outdated'",message="exemptRevisions Outdated does not apply to approval: it exempts every pod that a rollout replaces"
type TransitionRule struct {
	// name identifies the rule within this resource, in messages, in status and in
	// the skip annotation of a pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$`
	Name string `json:"name"`

	// disabled switches the rule off without deleting it. Default: false.
	// +optional
	Disabled bool `json:"disabled,omitempty"`

	// stage is when the rule is evaluated: PreCheck, before an operation, or PostCheck,
	// after it. The older names PreTrafficOff and PreTrafficOn are accepted and
	// rewritten, with a warning.
	// +optional
	// +kubebuilder:default=PreCheck
	Stage TransitionStage `json:"stage,omitempty"`

	// enforcement is the consequence when the rule does not pass. Default: Enforce.
	// +optional
	// +kubebuilder:default=Enforce
	Enforcement Enforcement `json:"enforcement,omitempty"`

	// conditions are operation types ("update", "delete"): the rule applies to
	// these types only. New pods have the type "create" in PostCheck. Empty: to all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:MinLength=1
	Conditions []string `json:"conditions,omitempty"`

	// filter limits the rule to matching pods. Unset: all selected pods.
	// +optional
	Filter *TransitionRuleFilter `json:"filter,omitempty"`

	// exemptRevisions lets pods pass the rule in PreCheck whose revision the Deployment or StatefulSet
	// replaces. Abandoned: only pods of a revision that was replaced, by a rollback or a later
	// revision, before its rollout had ended. Outdated: pods of every old revision. Not for
	// availablePolicy. Default: None.
	// +optional
	ExemptRevisions ExemptRevisions `json:"exemptRevisions,omitempty"`

	// availablePolicy bounds how many of the selected pods may be unavailable.
	// +optional
	AvailablePolicy *AvailablePolicy `json:"availablePolicy,omitempty"`

	// labelCheck requires labels on the pod.
	// +optional
	LabelCheck *LabelCheck `json:"labelCheck,omitempty"`

	// approval requires that users have approved the revision that replaces the pod.
	// +optional
	Approval *ApprovalRule `json:"approval,omitempty"`

	// webhook calls an external service.
	// +optional
	Webhook *TransitionRuleWebhook `json:"webhook,omitempty"`

	// rego is a policy of the user: a module in Rego that allows or denies one pod.
	// +optional
	Rego *RegoRule `json:"rego,omitempty"`
}

// TransitionRuleFilter narrows a rule to some of the selected pods.
type TransitionRuleFilter struct {
	// labelSelector matches the pods to which the rule applies. Pods it does not
	// match pass the rule. Unset or empty: all pods.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// AvailablePolicy bounds unavailability. A pod is available when it carries
// service-available, is Ready, and is neither terminating nor finished. A pod that
// is already unavailable passes at once. With both bounds set, both must hold.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnavailablePolicy) && !has(self.minAvailablePolicy)",message="maxUnavailablePolicy and minAvailablePolicy are not evaluated: use maxUnavailableValue or minAvailableValue"
type AvailablePolicy struct {
	// maxUnavailableValue is the number of selected pods that may be unavailable
	// at once: a count, or a percentage of the desired pods, rounded down but
	// never to 0. With 0 or "0%" an available pod passes only while there are more
	// available pods than desired, as in a rollout with maxSurge. Unset: no upper limit.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : type(self) == string && self.matches('^(100|[1-9]?[0-9])%$')",message="maxUnavailableValue must be a whole number from 0, or a percentage from \"0%\" to \"100%\" without spaces"
	MaxUnavailableValue *intstr.IntOrString `json:"maxUnavailableValue,omitempty"`

	// minAvailableValue is the number of selected pods that must stay available: a
	// count, or a percentage of the desired pods, rounded up. Unset: no lower limit.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : type(self) == string && self.matches('^(100|[1-9]?[0-9])%$')",message="minAvailableValue must be a whole number from 0, or a percentage from \"0%\" to \"100%\" without spaces"
	MinAvailableValue *intstr.IntOrString `json:"minAvailableValue,omitempty"`

	// surge is the number of pods that a Deployment may have beyond its replicas so that a pod
	// which this rule withholds can go: a count, or a percentage of the replicas, rounded up. Another pod
	// starts in its place, and it passes once that is available. Never more than
	// the maxSurge of the Deployment. For pods of Deployments only. Unset or 0: no pod is started.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : type(self) == string && self.matches('^(100|[1-9]?[0-9])%$')",message="surge must be a whole number from 0, or a percentage from \"0%\" to \"100%\" without spaces"
	Surge *intstr.IntOrString `json:"surge,omitempty"`

	// maxUnavailable is the other spelling of maxUnavailableValue: the bound itself, or
	// an object {value: bound}. Admission moves it there; both set to different values is
	// denied.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	MaxUnavailable *AvailableValue `json:"maxUnavailable,omitempty"`

	// minAvailable is the other spelling of minAvailableValue: the bound itself, or an
	// object {value: bound}. Admission moves it there; both set to different values is
	// denied.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	MinAvailable *AvailableValue `json:"minAvailable,omitempty"`

	// maxUnavailablePolicy is part of the wire format and is not evaluated. A rule that sets it
	// is denied.
	// +optional
	MaxUnavailablePolicy *AdaptivePolicy `json:"maxUnavailablePolicy,omitempty"`

	// minAvailablePolicy is part of the wire format and is not evaluated. A rule that sets it
	// is denied.
	// +optional
	MinAvailablePolicy *AdaptivePolicy `json:"minAvailablePolicy,omitempty"`
}

// AvailableValue is the other spelling of a bound. It is read from the bound itself and from
// an object {value: bound}, and written as the object.
type AvailableValue struct {
	// value is a count or a percentage, as in the field that it is moved to.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	Value *intstr.IntOrString `json:"value"`
}

// AdaptivePolicy is a bound that grows with the number of pods as coeff * pods^pow.
type AdaptivePolicy struct {
	// expFunc holds the two numbers of the function.
	// +optional
	ExpFunc *ExpFunc `json:"expFunc,omitempty"`
}

// ExpFunc is coeff * x^pow.
type ExpFunc struct {
	// coeff is the factor, a decimal number.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Coeff string `json:"coeff,omitempty"`

	// pow is the exponent, a decimal number.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Pow string `json:"pow,omitempty"`
}

// LabelCheck passes when the labels of the pod match.
type LabelCheck struct {
	// requires is a label selector that the pod must match. Empty matches all pods.
	// +required
	Requires *metav1.LabelSelector `json:"requires"`
}

// ApprovalRule passes when enough users have approved the pod template of the workload at the top of the pod's
// controllers, by PodOperationApprovals, and none has denied it. A pod that runs this template already passes: no revision
// replaces it. For pods of Deployments, StatefulSets and DaemonSets; every pod of a DaemonSet needs the approval.
type ApprovalRule struct {
	// minApprovals is the number of users who must have approved. Default: 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	MinApprovals int32 `json:"minApprovals,omitempty"`

	// allowAuthor lets the approval of the user count who wrote the pod template. While it is false, and the author is not
	// known, one approval more is required. Default: false.
	// +optional
	AllowAuthor bool `json:"allowAuthor,omitempty"`
}

// FailurePolicy is the consequence of an error of a webhook.
// +kubebuilder:validation:Enum=Fail;Ignore
type FailurePolicy string

const (
	// FailurePolicyFail keeps the pods waiting.
	FailurePolicyFail FailurePolicy = "Fail"

	// FailurePolicyIgnore lets the pods pass.
	FailurePolicyIgnore FailurePolicy = "Ignore"
)

// TransitionRuleWebhook calls an HTTP service for the pods that wait in a stage.
type TransitionRuleWebhook struct {
	// clientConfig is the address of the service.
	// +required
	ClientConfig WebhookClientConfig `json:"clientConfig"`

	// poll is the other spelling of clientConfig.poll. Admission moves it there; both set
	// to different values is denied.
	// +optional
	Poll *WebhookPoll `json:"poll,omitempty"`

	// failurePolicy is the consequence of an error of the service. Default: Fail.
	// +optional
	// +kubebuilder:default=Fail
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`

	// parameters are sent with each pod.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=32
	Parameters []WebhookParameter `json:"parameters,omitempty"`
}

// WebhookClientConfig is the address of a rule webhook.
type WebhookClientConfig struct {
	// url receives the POST with the waiting pods.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https?://`
	URL string `json:"url"`

	// caBundle contains the CAs of the certificate of the service: PEM, or PEM in
	// base64. Empty (or "Cg==", a lone line break): the roots of the system.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle string `json:"caBundle,omitempty"`

	// secretRef names a Secret in the namespace of the rule that identifies PodOps to the
	// service at url: key "token" is sent as a bearer token, "tls.crt" and "tls.key" are
	// a client certificate. It needs an https url.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// poll makes PodOps poll the service until its response is finished.
	// +optional
	Poll *WebhookPoll `json:"poll,omitempty"`
}

// SecretReference names a Secret in the namespace of the rule.
type SecretReference struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// Defaults of a WebhookPoll, in seconds. The generated CRD states them too.
const (
	DefaultPollIntervalSeconds = 5
	DefaultPollTimeoutSeconds  = 3600
)

// WebhookPoll configures how the result of a task is fetched.
type WebhookPoll struct {
	// url receives the GET for the result.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https?://`
	URL string `json:"url"`

	// rawQueryKey is the query parameter with the task id. Default: task-id.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	RawQueryKey string `json:"rawQueryKey,omitempty"`

	// caBundle is as in clientConfig.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle string `json:"caBundle,omitempty"`

	// secretRef is as in clientConfig, for the service at the url of the poll.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// intervalSeconds is the time between two polls. Default: 5.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	IntervalSeconds *int64 `json:"intervalSeconds,omitempty"`

	// timeoutSeconds bounds the whole task, from its first call. Default: 3600, because a
	// service that is polled often waits for an approval by a person.
	// +optional
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	TimeoutSeconds *int64 `json:"timeoutSeconds,omitempty"`
}

// WebhookParameter is one named value that is sent with each pod.
//
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.valueFrom)",message="a parameter must have exactly one of value or valueFrom"
type WebhookParameter struct {
	// key names the parameter.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`

	// value is a constant, and not empty: a parameter without a value can be left out.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Value string `json:"value,omitempty"`

	// valueFrom reads the value from the pod.
	// +optional
	ValueFrom *ParameterSource `json:"valueFrom,omitempty"`
}

// ParameterSource is the location of a value in a pod.
type ParameterSource struct {
	// type is part of the wire format and has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Type string `json:"type,omitempty"`

	// fieldRef is a field of the pod.
	// +required
	FieldRef *FieldRef `json:"fieldRef"`
}

// FieldRef is a field of a pod.
type FieldRef struct {
	// apiVersion is the version of the pod schema. Default: v1.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	APIVersion string `json:"apiVersion,omitempty"`

	// fieldPath is a dotted path ("status.podIP", "metadata.labels['zone']").
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	FieldPath string `json:"fieldPath"`
}

// RegoRule is a policy of the user: a module, or a reference to a shared module.
//
// +kubebuilder:validation:XValidation:rule="has(self.module) != has(self.policyRef)",message="rego must have exactly one of module or policyRef"
type RegoRule struct {
	// module is Rego source of package rule or a package below it, with either allow or deny.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Module string `json:"module,omitempty"`

	// policyRef names a PodTransitionPolicy.
	// +optional
	PolicyRef *PolicyReference `json:"policyRef,omitempty"`

	// parameters are the module's input.parameters. The parameters of a policyRef are
	// validated against the schema of the PodTransitionPolicy, and completed by its
	// defaults.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:MaxProperties=256
	Parameters *apiextensionsv1.JSON `json:"parameters,omitempty"`
}

// PolicyReference names a PodTransitionPolicy.
type PolicyReference struct {
	// name of the PodTransitionPolicy.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}
