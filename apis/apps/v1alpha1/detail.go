package v1alpha1

// Detail is the value of an annotation below DetailAnnotationPrefix: what the rules of
// one PodTransitionRule say of the pod.
type Detail struct {
	Stage  TransitionStage `json:"stage"`
	Passed bool            `json:"passed"`

	// RejectInfo has the rules that hold the pod back, in the order of their names.
	RejectInfo []RejectInfo `json:"rejectInfo,omitempty"`
}

// RejectInfo is one rule that holds a pod back.
type RejectInfo struct {
	RuleName string `json:"ruleName"`

	// Reason is "<code>: <message>".
	Reason string `json:"reason"`
}
