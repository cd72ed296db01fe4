package rolloutview_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/view/rolloutview"
)

func linesOf(changes []rolloutview.Change) []string {
	lines := []string{}
	for _, change := range changes {
		lines = append(lines, change.String())
	}
	return lines
}

func TestChanges(t *testing.T) {
	first := rolling(2).pods("1", 1, waiting).rules("NoRoom", "web/availability", "no slot")
	before := rolloutview.Of(&first.in, first.target, at(20))
	if got := linesOf(rolloutview.Changes(rolloutview.View{}, before)); len(got) != 1 {
		t.Errorf("a view shows %d pods at first, want 1", len(got))
	}
	same := rolling(2).pods("1", 1, waiting).rules("NoRoom", "web/availability", "no slot, now with other numbers")
	if got := rolloutview.Changes(before, rolloutview.Of(&same.in, same.target, at(21))); len(got) != 0 {
		t.Errorf("other numbers in a message are a change: %v", got)
	}
	other := rolling(2).pods("1", 1, waiting).pods("2", 1, starting).rules("Denied", "web/approved", "no")
	withheld := rolloutview.Of(&other.in, other.target, at(22))
	want := []string{
		"00:00:22  web-6d4f5c7b9d-00000  PreCheck                 web/approved: no",
		"00:00:22  web-7b9d8e6f5c-00001  Starting",
	}
	if diff := cmp.Diff(want, linesOf(rolloutview.Changes(before, withheld))); diff != "" {
		t.Errorf("another reason, and a new pod (-want +got):\n%s", diff)
	}
	moved := rolling(2).pods("1", 1, preparing)
	want = []string{
		"00:00:23  web-6d4f5c7b9d-00000  PreCheck → Preparing     waits for Service/default/web to confirm that traffic is off (finalizer prot.podopslifecycle.kusionstack.io/lb)",
		"00:00:23  web-7b9d8e6f5c-00001  Starting → Gone",
	}
	if diff := cmp.Diff(want, linesOf(rolloutview.Changes(withheld, rolloutview.Of(&moved.in, moved.target, at(23))))); diff != "" {
		t.Errorf("a permit, and a pod that is gone (-want +got):\n%s", diff)
	}
}
