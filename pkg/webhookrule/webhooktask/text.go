package webhooktask

import (
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// Limits of strings in status. The API server counts characters and rejects the whole status if one
// string is too long, so all strings of services are bounded in bytes here.
const (
	maxReasonBytes = 63

	// MaxTaskIDBytes bounds the id of a task.
	MaxTaskIDBytes = 256
)

// shortened returns a message of a service as status shows it.
func shortened(message string) string { return text.Line(message, rule.MaxMessageBytes) }
