package haproxy

import (
	"sync"
	"time"
)

// drains holds the time at which servers began to drain. HAProxy does not report it: its
// time of the last change includes checks. It is safe for concurrent use.
type drains struct {
	mu    sync.Mutex
	since map[location]map[string]time.Time
}

// start records that a server begins to drain now, and replaces an earlier time.
func (l *drains) start(at location, name string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(at, name, now)
}

// elapsed returns how long a server has been draining. A server without a record starts
// now.
func (l *drains) elapsed(at location, name string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, known := l.since[at][name]
	if !known {
		l.note(at, name, now)
		return 0
	}
	return now.Sub(since)
}

func (l *drains) note(at location, name string, now time.Time) {
	if l.since == nil {
		l.since = map[location]map[string]time.Time{}
	}
	if l.since[at] == nil {
		l.since[at] = map[string]time.Time{}
	}
	l.since[at][name] = now
}

// forget removes the record of a server that no longer exists.
func (l *drains) forget(at location, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.since[at], name)
	if len(l.since[at]) == 0 {
		delete(l.since, at)
	}
}

// keep removes the records of servers at a location that no longer exist; it does not touch
// servers of other Services.
func (l *drains) keep(at location, isOurs, isThere func(name string) bool) {
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
