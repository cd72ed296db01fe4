package v1alpha1

// Bounds of the label selectors of a PodTransitionRule. The generated CRD states them too.
const (
	// MaxSelectorLabels is the maximum number of entries in a selector's matchLabels.
	MaxSelectorLabels = 64

	// MaxSelectorExpressions is the maximum number of entries in matchExpressions of one
	// selector.
	MaxSelectorExpressions = 32

	// MaxSelectorValues is the maximum number of values in one entry of matchExpressions.
	MaxSelectorValues = 64

	// MaxLabelKeyBytes is the longest label key that Kubernetes accepts: a DNS subdomain, a
	// slash and a name.
	MaxLabelKeyBytes = 317

	// MaxLabelValueBytes is the longest label value that Kubernetes accepts.
	MaxLabelValueBytes = 63
)

// Bounds of whole objects. Admission denies a spec over them, and the manager does not load a
// stored object over them.
const (
	// MaxRuleSpecBytes is the largest spec of a PodTransitionRule, as compact JSON.
	MaxRuleSpecBytes = 256 << 10

	// MaxRuleSelectorValues is the maximum number of matchLabels and values of
	// matchExpressions in all selectors of one PodTransitionRule together.
	MaxRuleSelectorValues = 4096

	// MaxNamespaceRuleBytes is the largest size of the PodTransitionRules of one namespace
	// together: their specs as compact JSON, and RuleOverheadBytes for each.
	MaxNamespaceRuleBytes = 4 << 20

	// RuleOverheadBytes is the size of a PodTransitionRule without its spec.
	RuleOverheadBytes = 2 << 10

	// MaxPolicySpecBytes is the largest spec of a PodTransitionPolicy, as compact JSON.
	MaxPolicySpecBytes = 128 << 10
)

// MaxTransitionRules is the maximum number of rules in a PodTransitionRule.
const MaxTransitionRules = 64

// MaxTrafficAdapters is the maximum number of TrafficAdapters in use: the first by name.
const MaxTrafficAdapters = 64
