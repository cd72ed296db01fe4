package podtransitionrule

import "sync"

// slot is the right to a background write, a write that no pod waits for. All rounds share a single slot,
// so that thousands of background writes delay no permit and put little load on the API server. A round
// that cannot take the slot postpones its background writes.
type slot struct {
	shared *sync.Mutex
	taken  bool
}

// take takes the slot if it is free.
func (s *slot) take() bool {
	if s.taken || !s.shared.TryLock() {
		return false
	}
	s.taken = true
	return true
}

// release frees the slot if this round holds it.
func (s *slot) release() {
	if s.taken {
		s.taken = false
		s.shared.Unlock()
	}
}
