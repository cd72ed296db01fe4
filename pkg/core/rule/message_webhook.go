package rule

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/podops-dev/podops/pkg/runtime/text"
)

// explainWebhook returns the state of a request at the service of a webhook rule. The message of
// the service comes last, because the end may be cut.
func explainWebhook(code Code, task Task) string {
	switch code {
	case CodeWebhookPending:
		if task.State == TaskCalling {
			return "the service is being called and has not answered yet"
		}
		return "the service has not been called yet"
	case CodeWebhookProcessing:
		return withMessage("the approval is pending at the service", task.Message)
	case CodeWebhookRejected:
		return withMessage(rejectionText(task.Class)+", and is called again later", task.Message)
	default:
		return withMessage(fmt.Sprintf("the call of the service failed (%s), and is repeated later",
			cmp.Or(task.Class, "for an unknown reason")), task.Message)
	}
}

// rejectionText returns why a service that answered did not approve.
func rejectionText(class string) string {
	switch class {
	case "Stopped":
		return "the service gave up"
	case "Expired":
		return "the service took too long"
	default:
		return "the service rejected the pod"
	}
}

// withMessage appends the message of a service in one line: events and tables must not show it as
// several lines.
func withMessage(reason, message string) string {
	line := strings.Join(strings.Fields(text.Line(message, MaxMessageBytes)), " ")
	if line == "" {
		return reason
	}
	return reason + ": " + line
}
