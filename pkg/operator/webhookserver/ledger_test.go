package webhookserver

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func source(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", n)) }

func TestASourceGetsNoMoreThanItsShare(t *testing.T) {
	l := newLedger(10, 4)
	for i := range 4 {
		if _, ok := l.grow(&hold{source: source(1)}, 1); !ok {
			t.Fatalf("hold %d is rejected", i)
		}
	}
	if evicted, ok := l.grow(&hold{source: source(1)}, 1); ok || len(evicted) > 0 {
		t.Errorf("a fifth: ok %t, evicted %v; want a rejection", ok, evicted)
	}
}

func TestTheSourceThatHoldsMostGivesWay(t *testing.T) {
	l := newLedger(8, 5)
	give := func(n int, amount int64) *hold {
		t.Helper()
		h := &hold{source: source(n)}
		if evicted, ok := l.grow(h, amount); !ok || len(evicted) > 0 {
			t.Fatalf("source %d: ok %t, evicted %v", n, ok, evicted)
		}
		return h
	}
	oldest, newer, newest := give(1, 2), give(1, 2), give(1, 1)
	give(2, 3)
	l.used(oldest)
	evicted, ok := l.grow(&hold{source: source(3)}, 1)
	if !ok || len(evicted) != 1 || evicted[0] != newer {
		t.Fatalf("ok %t, evicted %v; want the least recently used hold of source 1", ok, evicted)
	}
	newest.pinned = true
	// Sources 1 and 2 hold three each, and source 3 one.
	evicted, ok = l.grow(&hold{source: source(3)}, 2)
	if !ok || len(evicted) != 1 || evicted[0].pinned {
		t.Errorf("ok %t, evicted %v; want one that is not pinned", ok, evicted)
	}
}

func TestBetweenEqualsThePresentHolderStays(t *testing.T) {
	l := newLedger(2, 2)
	first := &hold{source: source(1)}
	l.grow(first, 1)
	l.grow(&hold{source: source(2)}, 1)
	second := &hold{source: source(1)}
	if evicted, ok := l.grow(second, 1); ok || len(evicted) > 0 {
		t.Errorf("ok %t, evicted %v; want a rejection", ok, evicted)
	}
}

// TestLedger shows that for any sequence of calls the ledger never exceeds its limits, its
// sums are right, and only a source that holds more than another source gives way to it.
func TestLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger(20, 12)
		var live []*hold
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			if len(live) > 0 && rapid.IntRange(0, 3).Draw(t, "close") == 0 {
				i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				l.close(live[i])
			} else {
				h := &hold{source: source(rapid.IntRange(1, 5).Draw(t, "source")), pinned: rapid.IntRange(0, 5).Draw(t, "pinned") == 0}
				amount := int64(rapid.IntRange(1, 8).Draw(t, "amount"))
				before := l.heldBy(h.source)
				evicted, ok := l.grow(h, amount)
				for _, victim := range evicted {
					if victim.pinned || victim.source == h.source || l.heldBy(victim.source)+sum(evicted, victim.source) <= before {
						t.Fatalf("%+v gives way to a source that holds %d", victim, before)
					}
				}
				if ok {
					live = append(live, h)
				}
			}
			check(t, l, live)
		}
	})
}

// sum returns the sum of the holds of a source.
func sum(holds []*hold, source netip.Addr) int64 {
	var total int64
	for _, h := range holds {
		if h.source == source {
			total += h.amount
		}
	}
	return total
}

func check(t *rapid.T, l *ledger, live []*hold) {
	var total int64
	by := map[netip.Addr]int64{}
	for _, h := range live {
		if !h.gone {
			total += h.amount
			by[h.source] += h.amount
		}
	}
	if total != l.held || total > l.limit || len(by) != len(l.sources) {
		t.Fatalf("holds amount to %d of %d sources, the ledger has %d of %d, limit %d", total, len(by), l.held, len(l.sources), l.limit)
	}
	for source, amount := range by {
		if amount != l.heldBy(source) || amount > l.perSource {
			t.Fatalf("source %s holds %d, the ledger has %d", source, amount, l.heldBy(source))
		}
	}
}
