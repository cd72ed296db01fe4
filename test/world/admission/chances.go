package admission

import (
	"hash/fnv"
	"math/rand/v2"
)

// newChances returns the random numbers for the nth request of a kind. They are a function of the seed and of what they
// are for, so that they do not depend on the order in which others request theirs.
func newChances(seed uint64, key string, n uint64) *rand.Rand {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key))
	return rand.New(rand.NewPCG(seed^hash.Sum64(), n)) //nolint:gosec // Reproducible numbers are the point.
}
