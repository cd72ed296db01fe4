package v1alpha1

// Bounds of the label selectors of a PodTransitionRule. The generated CRD states them too.
const (
	// MaxSelectorLabels is how many entries matchLabels of one selector holds at most.
	MaxSelectorLabels = 64

	// MaxSelectorExpressions is how many entries matchExpressions of one selector holds at
	// most.
	MaxSelectorExpressions = 32

	// MaxSelectorValues is how many values one entry of matchExpressions holds at most.
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

	// MaxRuleSelectorValues is how many matchLabels and values of matchExpressions the
	// selectors of one PodTransitionRule hold at most, all together.
	MaxRuleSelectorValues = 4096

	// MaxNamespaceRuleBytes is the largest size of the PodTransitionRules of one namespace
	// together: their specs as compact JSON, and RuleOverheadBytes for each.
	MaxNamespaceRuleBytes = 4 << 20

	// RuleOverheadBytes is the size of a PodTransitionRule without its spec.
	RuleOverheadBytes = 2 << 10

	// MaxPolicySpecBytes is the largest spec of a PodTransitionPolicy, as compact JSON.
	MaxPolicySpecBytes = 128 << 10
)

// MaxTransitionRules is how many rules a PodTransitionRule holds at most.
const MaxTransitionRules = 64

// MaxTrafficAdapters is how many TrafficAdapters are in use at most: the first ones by name.
const MaxTrafficAdapters = 64
