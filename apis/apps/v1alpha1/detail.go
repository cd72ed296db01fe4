package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxKeyNameBytes is the largest length of an annotation key after the slash.
const maxKeyNameBytes = 63

// DetailAnnotationKey is the key of the annotation with the Detail of one PodTransitionRule. A name
// that is too long for the key of an annotation is cut and ends in the first 16 hexadecimal digits
// of the SHA-256 of the whole name.
func DetailAnnotationKey(podTransitionRule string) string {
	name := podTransitionRule
	if len(name) > maxKeyNameBytes {
		const digits = 16
		sum := sha256.Sum256([]byte(name))
		name = strings.TrimRight(name[:maxKeyNameBytes-digits-1], ".-") + "-" + hex.EncodeToString(sum[:])[:digits]
	}
	return DetailAnnotationPrefix + "/" + name
}

// Detail is the value of an annotation below DetailAnnotationPrefix: the rules of one
// PodTransitionRule that withhold the pod.
type Detail struct {
	Stage  TransitionStage `json:"stage"`
	Passed bool            `json:"passed"`

	// RejectInfo contains the rules that withhold the pod, in the order of their names.
	RejectInfo []RejectInfo `json:"rejectInfo,omitempty"`
}

// RejectInfo is one rule that withholds a pod.
type RejectInfo struct {
	RuleName string `json:"ruleName"`

	// Reason is "<code>: <message>".
	Reason string `json:"reason"`
}
