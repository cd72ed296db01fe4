package webhookserver

import "net/netip"

// ledger divides an amount between sources. It is a plain value: it calls nothing and
// is not safe for concurrent use.
//
// No source gets more than perSource. When the limit is reached, the source that holds most gives
// way to a source that holds less; between equals the present holder stays.
type ledger struct {
	limit     int64
	perSource int64

	held    int64
	sources map[netip.Addr]*account
}

// account contains the holds of one source.
type account struct {
	held int64
	// holds are ordered by use, the least recently used first.
	holds []*hold
}

// hold is a part of the ledger's amount. It is zero until it grows.
type hold struct {
	source netip.Addr
	amount int64

	// pinned holds are not evicted.
	pinned bool

	// evict ends the use of the hold. It is called without locks, once, and after the
	// ledger has reclaimed the amount.
	evict func()

	// gone holds have been evicted or closed.
	gone bool
}

func newLedger(limit, perSource int64) *ledger {
	return &ledger{limit: limit, perSource: perSource, sources: map[netip.Addr]*account{}}
}

// grow increases a hold. It returns the holds that were evicted for it. It does not grow when
// the source is at its limit, or when no source holds more than it does.
func (l *ledger) grow(h *hold, amount int64) (evicted []*hold, ok bool) {
	own := l.heldBy(h.source)
	if h.gone || own+amount > l.perSource {
		return nil, false
	}
	for l.held+amount > l.limit {
		victim := l.victim(own)
		if victim == nil {
			return evicted, false
		}
		l.close(victim)
		evicted = append(evicted, victim)
	}
	l.add(h, amount)
	return evicted, true
}

// victim returns the hold to evict for a source that holds own: the least recently used
// one of the source that holds most. It is nil when no other source holds more.
func (l *ledger) victim(own int64) *hold {
	var victim *hold
	most := own
	for _, a := range l.sources {
		if a.held <= most {
			continue
		}
		for _, h := range a.holds {
			if !h.pinned {
				victim, most = h, a.held
				break
			}
		}
	}
	return victim
}

func (l *ledger) add(h *hold, amount int64) {
	a := l.sources[h.source]
	if a == nil {
		a = &account{}
		l.sources[h.source] = a
	}
	if h.amount == 0 {
		a.holds = append(a.holds, h)
	}
	h.amount += amount
	a.held += amount
	l.held += amount
}

// used moves a hold behind the others of its source in the order of eviction.
func (l *ledger) used(h *hold) {
	a := l.sources[h.source]
	if h.gone || h.amount == 0 || a == nil {
		return
	}
	a.remove(h)
	a.holds = append(a.holds, h)
}

// close releases the amount of a hold. It may be called more than once.
func (l *ledger) close(h *hold) {
	if h.gone {
		return
	}
	h.gone = true
	a := l.sources[h.source]
	if h.amount == 0 || a == nil {
		return
	}
	a.remove(h)
	a.held -= h.amount
	l.held -= h.amount
	if len(a.holds) == 0 {
		delete(l.sources, h.source)
	}
}

func (l *ledger) heldBy(source netip.Addr) int64 {
	if a := l.sources[source]; a != nil {
		return a.held
	}
	return 0
}

func (a *account) remove(h *hold) {
	for i, other := range a.holds {
		if other == h {
			a.holds = append(a.holds[:i], a.holds[i+1:]...)
			return
		}
	}
}
