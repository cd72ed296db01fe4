package ownerscale

import "sync"

// mailbox has the events for the goroutine of a Reader. It does not block senders, and has one entry for
// each owner, object and kind.
type mailbox struct {
	// more wakes the receiver.
	more chan struct{}

	mu   sync.Mutex
	mail mail
}

type mail struct {
	referred map[Key]referral

	// changed are the objects that have changed, and whether their spec has.
	changed map[Key]bool
	kinds   map[Kind]bool
	results []finished
}

// referral is the last state of an owner.
type referral struct {
	owner   Owner
	present bool

	// known is true if the receiver had the owner as present before.
	known bool
}

// finished is a read that has ended.
type finished struct {
	read Read
	outcome
}

func newMail() mail {
	return mail{referred: map[Key]referral{}, changed: map[Key]bool{}, kinds: map[Kind]bool{}}
}

func newMailbox() *mailbox { return &mailbox{more: make(chan struct{}, 1), mail: newMail()} }

// take returns the events since the last call.
func (m *mailbox) take() mail {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.mail
	m.mail = newMail()
	return taken
}

// refer records whether an owner has pods. An owner that came and went since the last call of take has no
// entry, so that the mailbox of a manager that does not lead is bounded.
func (m *mailbox) refer(owner Owner, present bool) {
	m.send(func(to *mail) {
		before, unread := to.referred[owner.Key]
		known := before.known || !unread && !present
		if !present && !known {
			delete(to.referred, owner.Key)
			return
		}
		to.referred[owner.Key] = referral{owner, present, known}
	})
}

func (m *mailbox) objectChanged(key Key, spec bool) {
	m.send(func(to *mail) { to.changed[key] = to.changed[key] || spec })
}

func (m *mailbox) kindChanged(kind Kind) {
	m.send(func(to *mail) { to.kinds[kind] = true })
}

func (m *mailbox) result(read Read, result outcome) {
	m.send(func(to *mail) { to.results = append(to.results, finished{read, result}) })
}

func (m *mailbox) send(write func(*mail)) {
	m.mu.Lock()
	write(&m.mail)
	m.mu.Unlock()
	select {
	case m.more <- struct{}{}:
	default:
	}
}
