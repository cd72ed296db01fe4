package podtransitionrule

import (
	"sync"

	"github.com/podops-dev/podops/pkg/policy"
)

// memo remembers the verdicts of one rule for requests whose facts have not changed,
// so that a round asks only about those that have. It holds no more than the requests
// that wait.
type memo struct {
	mu       sync.Mutex
	verdicts map[string]remembered
}

type remembered struct {
	version       string
	operationType string
	verdict       policy.Verdict
}

func newMemo() *memo { return &memo{verdicts: map[string]remembered{}} }

// recall splits the requests into those with a remembered verdict and the rest. What
// is remembered of other requests is dropped: they no longer wait.
func (m *memo) recall(requests []policy.Request) (known map[string]policy.Verdict, rest []policy.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known = map[string]policy.Verdict{}
	kept := map[string]remembered{}
	for _, request := range requests {
		key := request.Key()
		last, ok := m.verdicts[key]
		if ok && last.version == request.Pod.Version && last.operationType == request.Type {
			known[key], kept[key] = last.verdict, last
			continue
		}
		rest = append(rest, request)
	}
	m.verdicts = kept
	return known, rest
}

func (m *memo) remember(requests []policy.Request, verdicts map[string]policy.Verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, request := range requests {
		if verdict, ok := verdicts[request.Key()]; ok {
			m.verdicts[request.Key()] = remembered{request.Pod.Version, request.Type, verdict}
		}
	}
}
