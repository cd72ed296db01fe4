package rule

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
)

// explainWebhook says how far the service of a webhook rule has come with a request. The message of
// the service comes last: it is the part that may be cut.
func explainWebhook(code Code, task Task) string {
	switch code {
	case CodeWebhookPending:
		if task.State == TaskCalling {
			return "the service is being called and has not answered yet"
		}
		return "the service has not been called yet"
	case CodeWebhookProcessing:
		return saying("the service works on it", task.Message)
	case CodeWebhookRejected:
		return saying(refusal(task.Class)+", and is asked again later", task.Message)
	default:
		return saying(fmt.Sprintf("the service could not be asked (%s), and is asked again later",
			cmp.Or(task.Class, "for no known reason")), task.Message)
	}
}

// refusal is why a service that was asked did not approve.
func refusal(class string) string {
	switch class {
	case "Stopped":
		return "the service gave up"
	case "Expired":
		return "the service took too long"
	default:
		return "the service said no"
	}
}

// saying adds what a service said in one line: it goes into events and tables, and must not look
// like more than one of them.
func saying(text, message string) string {
	line := strings.Join(strings.FieldsFunc(strings.ToValidUTF8(message, "?"), func(char rune) bool {
		return unicode.IsSpace(char) || !unicode.IsPrint(char)
	}), " ")
	if line == "" {
		return text
	}
	return text + ": " + line
}
