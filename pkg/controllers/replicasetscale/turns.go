package replicasetscale

import (
	"context"
	"hash/fnv"
)

// turns let the callers of a key take their turns one after the other. Keys share places by their hash.
type turns []chan struct{}

// newTurns returns turns with a number of places.
func newTurns(places int) turns {
	t := make(turns, places)
	for i := range t {
		t[i] = make(chan struct{}, 1)
	}
	return t
}

// take waits for the turn of a key, until the context ends. The returned function ends the turn.
func (t turns) take(ctx context.Context, key string) (end func(), err error) {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(key)) // it never fails
	place := t[hash.Sum32()%uint32(len(t))]
	select {
	case place <- struct{}{}:
		return func() { <-place }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
