package rule

// Rank returns the place of a code among reasons: 0 for rules that need an edit, 1 for rules that deny, 2 for
// rules that the pod passes later without an edit.
func Rank(code Code) int {
	switch code {
	case CodeCompileFailed, CodeTooLarge, CodePolicyNotFound, CodePolicyTooExpensive,
		CodeEvaluationFailed, CodeUndefined, CodeWrongType:
		return 0
	case CodeNoRoom, CodeTimeout, CodeNotReached, CodeRuleDeleted, CodeWebhookPending, CodeWebhookProcessing:
		return 2
	default:
		return 1
	}
}

// IsOfPod reports whether a code withholds a pod for what the pod is: the rule may permit others.
func IsOfPod(code Code) bool {
	switch code {
	case CodeLabelMismatch, CodeNotAllowed, CodeDenied, CodeUndefined, CodeWebhookRejected:
		return true
	default:
		return false
	}
}
