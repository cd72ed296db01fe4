package haproxy

import (
	"sync"
	"time"
)

// leaving remembers since when servers have been asked to let their requests end. HAProxy
// cannot tell: its time of the last change is that of a check, too. It is safe for
// concurrent use.
type leaving struct {
	mu    sync.Mutex
	since map[place]map[string]time.Time
}

// start notes a server that begins to leave now, whenever it did so before.
func (l *leaving) start(at place, name string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(at, name, now)
}

// elapsed is how long a server has been leaving. One that is not known starts now.
func (l *leaving) elapsed(at place, name string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, known := l.since[at][name]
	if !known {
		l.note(at, name, now)
		return 0
	}
	return now.Sub(since)
}

func (l *leaving) note(at place, name string, now time.Time) {
	if l.since == nil {
		l.since = map[place]map[string]time.Time{}
	}
	if l.since[at] == nil {
		l.since[at] = map[string]time.Time{}
	}
	l.since[at][name] = now
}

// forget is for servers that are gone.
func (l *leaving) forget(at place, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.since[at], name)
	if len(l.since[at]) == 0 {
		delete(l.since, at)
	}
}

// keep forgets the servers of a place that are not there any more; those that are not of
// this Service are left alone.
func (l *leaving) keep(at place, isOurs, isThere func(name string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.since[at] {
		if isOurs(name) && !isThere(name) {
			delete(l.since[at], name)
		}
	}
	if len(l.since[at]) == 0 {
		delete(l.since, at)
	}
}
