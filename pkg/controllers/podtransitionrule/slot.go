package podtransitionrule

import "sync"

// maxBackgroundWrites bounds the background writes of statuses in one round, and those of annotations. Each round evaluates
// all rules of a namespace: with fewer writes its statuses and annotations would follow its pods late.
const maxBackgroundWrites = 8

// slot is the right to background writes, which no pod waits for. All rounds share a single slot,
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
