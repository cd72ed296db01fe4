package webhooktask

import (
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/text"
)

// Limits of strings in status. The API server counts characters and refuses the whole status when
// one is too long, so everything that comes from a service is held to bytes here.
const (
	maxReasonBytes = 63
	maxTaskIDBytes = 256
)

// shortened returns a message of a service as status shows it.
func shortened(message string) string { return text.Line(message, rule.MaxMessageBytes) }
