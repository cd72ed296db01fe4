package lifecycle

import (
	"slices"
	"strings"
	"testing"
)

// TestPrefixesHaveACommonEnd, by which labels of lifecycles are found.
func TestPrefixesHaveACommonEnd(t *testing.T) {
	for _, prefix := range slices.Concat(clientPrefixes(), ownedPrefixes()) {
		if !strings.HasSuffix(prefix, prefixEnd) {
			t.Errorf("%s does not end with %s", prefix, prefixEnd)
		}
	}
}
