package ownerscale_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/podops-dev/podops/pkg/state/ownerscale"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// owner returns an owner of a namespace. Its name makes its UID.
func owner(namespace, name, kind string) ownerscale.Owner {
	return ownerscale.Owner{
		Key:  ownerscale.Key{Namespace: namespace, UID: types.UID(name + "-uid")},
		Kind: ownerscale.Kind{APIVersion: "example.com/v1", Kind: kind}, Name: name,
	}
}

// schedule is one under test, with a clock.
type schedule struct {
	*ownerscale.Schedule
	now time.Time
}

func newSchedule() *schedule {
	return &schedule{Schedule: ownerscale.NewSchedule(ownerscale.DefaultBounds()), now: epoch}
}

// due returns the names of the owners that are read now, all at once, and ends their reads.
func (s *schedule) due(retry ownerscale.Retry) []string {
	var names []string
	var reads []ownerscale.Read
	for {
		read, ok, _ := s.Next(s.now)
		if !ok {
			break
		}
		names, reads = append(names, read.Name), append(reads, read)
	}
	for _, read := range reads {
		s.Done(read, retry, s.now)
	}
	return names
}

func TestAnOwnerIsReadWhenItsFirstPodAppearsAndAfterChanges(t *testing.T) {
	web := owner("shop", "web", "CloneSet")
	for name, tc := range map[string]struct {
		after func(s *schedule)
		want  []string
	}{
		"nothing has changed":                      {after: func(s *schedule) { s.now = s.now.Add(time.Hour) }},
		"its spec has changed":                     {after: func(s *schedule) { s.now = s.now.Add(time.Second); s.Changed(web.Key, true, s.now) }, want: []string{"web"}},
		"its spec has changed a moment after":      {after: func(s *schedule) { s.Changed(web.Key, true, s.now) }},
		"its status has changed within 5 seconds":  {after: func(s *schedule) { s.now = s.now.Add(4 * time.Second); s.Changed(web.Key, false, s.now) }},
		"its status has changed after 5 seconds":   {after: func(s *schedule) { s.now = s.now.Add(5 * time.Second); s.Changed(web.Key, false, s.now) }, want: []string{"web"}},
		"its status has changed, 5 seconds passed": {after: func(s *schedule) { s.Changed(web.Key, false, s.now); s.now = s.now.Add(5 * time.Second) }, want: []string{"web"}},
		"its kind is watched":                      {after: func(s *schedule) { s.now = s.now.Add(time.Second); s.KindChanged(web.Kind, s.now) }, want: []string{"web"}},
		"another kind is watched": {after: func(s *schedule) {
			s.now = s.now.Add(time.Second)
			s.KindChanged(ownerscale.Kind{APIVersion: "example.com/v2", Kind: "CloneSet"}, s.now)
		}},
		"its last pod has disappeared": {after: func(s *schedule) {
			s.now = s.now.Add(time.Second)
			s.Changed(web.Key, true, s.now)
			s.Release(web.Key, s.now)
		}},
		"an owner of the same UID elsewhere has changed": {after: func(s *schedule) {
			s.now = s.now.Add(time.Second)
			s.Changed(ownerscale.Key{Namespace: "other", UID: web.UID}, true, s.now)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSchedule()
			if !s.Refer(web, s.now) {
				t.Fatal("the owner is not admitted")
			}
			if diff := cmp.Diff([]string{"web"}, s.due(ownerscale.Never)); diff != "" {
				t.Fatalf("first reads (-want +got):\n%s", diff)
			}
			tc.after(s)
			if diff := cmp.Diff(tc.want, s.due(ownerscale.Never)); diff != "" {
				t.Errorf("further reads (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFailedReadsAreRepeatedLessAndLess(t *testing.T) {
	s := newSchedule()
	web := owner("shop", "web", "CloneSet")
	s.Refer(web, s.now)
	s.due(ownerscale.Failed)
	var delays []time.Duration
	for range 9 {
		s.Changed(web.Key, true, s.now) // its controller writes it all the time
		_, ok, wait := s.Next(s.now)
		if ok {
			t.Fatal("it is read before its retry is due")
		}
		delays = append(delays, wait)
		s.now = s.now.Add(wait)
		s.due(ownerscale.Failed)
	}
	want := []time.Duration{
		2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, 64 * time.Second, 128 * time.Second,
		256 * time.Second, 5 * time.Minute,
	}
	if diff := cmp.Diff(want, delays); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
	s.now = s.now.Add(time.Second)
	s.KindChanged(web.Kind, s.now)
	if diff := cmp.Diff([]string{"web"}, s.due(ownerscale.Never)); diff != "" {
		t.Errorf("reads once the kind is back (-want +got):\n%s", diff)
	}
}

func TestReadsOfOneOwnerFollowEachOther(t *testing.T) {
	s := newSchedule()
	web := owner("shop", "web", "CloneSet")
	s.Refer(web, s.now)
	first, _, _ := s.Next(s.now)
	s.now = s.now.Add(time.Minute)
	s.Changed(web.Key, true, s.now)
	if _, ok, _ := s.Next(s.now); ok {
		t.Fatal("it is read while it is being read")
	}
	if !s.Done(first, ownerscale.Never, s.now) {
		t.Error("the owner is not present after its read")
	}
	if diff := cmp.Diff([]string{"web"}, s.due(ownerscale.Never)); diff != "" {
		t.Errorf("reads after the change during the first one (-want +got):\n%s", diff)
	}
}

func TestTheResultOfAnOwnerThatWasReleasedIsOfNoUse(t *testing.T) {
	s := newSchedule()
	web := owner("shop", "web", "CloneSet")
	s.Refer(web, s.now)
	old, _, _ := s.Next(s.now)
	s.Release(web.Key, s.now)
	s.Refer(web, s.now)
	next, ok, _ := s.Next(s.now)
	if !ok {
		t.Fatal("the owner that came back is not read")
	}
	if s.Done(old, ownerscale.Never, s.now) {
		t.Error("the result of the read before the release is used")
	}
	if !s.Done(next, ownerscale.Never, s.now) {
		t.Error("the result of the read after it is not used")
	}
}

func TestANamespaceHasAFewKindsAndOwners(t *testing.T) {
	bounds := ownerscale.DefaultBounds()
	s := newSchedule()
	for i := range bounds.Kinds {
		if !s.Refer(owner("shop", fmt.Sprintf("web-%d", i), fmt.Sprintf("Kind%d", i)), s.now) {
			t.Fatalf("kind %d is not admitted", i)
		}
	}
	more := owner("shop", "more", "More")
	if s.Refer(more, s.now) {
		t.Error("one kind too many is admitted")
	}
	if !s.Refer(owner("other", "more", "More"), s.now) {
		t.Error("the kinds of one namespace count in another namespace")
	}
	admitted := s.Release(owner("shop", "web-0", "Kind0").Key, s.now)
	if diff := cmp.Diff([]ownerscale.Owner{more}, admitted); diff != "" {
		t.Errorf("admitted once a kind is gone (-want +got):\n%s", diff)
	}

	s = newSchedule()
	for i := range bounds.Owners {
		s.Refer(owner("shop", fmt.Sprintf("web-%d", i), "CloneSet"), s.now)
	}
	if s.Refer(more, s.now) {
		t.Error("one owner too many is admitted")
	}
	s.Release(more.Key, s.now)
	if admitted := s.Release(owner("shop", "web-0", "CloneSet").Key, s.now); len(admitted) > 0 {
		t.Errorf("an owner without pods is admitted: %v", admitted)
	}
}

// TestTheReadsOfOneNamespaceDelayNoOtherOne shows that with any reads of a namespace, an owner of another namespace is
// read as soon as one of the reads in progress ends.
func TestTheReadsOfOneNamespaceDelayNoOtherOne(t *testing.T) {
	s := newSchedule()
	for namespace := range 20 {
		for i := range 50 {
			s.Refer(owner(fmt.Sprintf("hostile-%d", namespace), fmt.Sprintf("slow-%d", i), "Slow"), s.now)
		}
	}
	var slow []ownerscale.Read
	for range 100 { // each of them runs into its timeout
		for {
			read, ok, _ := s.Next(s.now)
			if !ok {
				break
			}
			slow = append(slow, read)
		}
		s.Done(slow[0], ownerscale.Failed, s.now)
		slow = slow[1:]
	}
	s.Refer(owner("shop", "web", "CloneSet"), s.now)
	for turn := 1; ; turn++ {
		read, ok, _ := s.Next(s.now)
		switch {
		case ok && read.Namespace == "shop":
			if turn > 2 {
				t.Errorf("read in turn %d", turn)
			}
			return
		case ok:
			slow = append(slow, read)
		default:
			s.Done(slow[0], ownerscale.Failed, s.now)
			slow = slow[1:]
		}
	}
}

// TestScheduleProperties shows that for events of any kind in any order, the bounds hold, no owner is read twice at a
// time, and once nothing changes any more each admitted owner is read after its last change, and nothing is
// kept of owners that no longer exist.
func TestScheduleProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bounds := ownerscale.Bounds{
			Owners: 3, Kinds: 2, AtOnce: 3, EachAtOnce: 2, Interval: time.Second, StatusInterval: 5 * time.Second,
			FirstRetry: 2 * time.Second, LastRetry: time.Minute,
		}
		s, now := ownerscale.NewSchedule(bounds), epoch
		present, stale := map[ownerscale.Key]ownerscale.Owner{}, map[ownerscale.Key]bool{}
		var running []ownerscale.Read
		anOwner := func(t *rapid.T) ownerscale.Owner {
			kind := rapid.SampledFrom([]string{"A", "B", "C"}).Draw(t, "kind")
			return owner(rapid.SampledFrom([]string{"x", "y"}).Draw(t, "namespace"), kind+rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "name"), kind)
		}
		done := func(i int, retry ownerscale.Retry) {
			read := running[i]
			running = slices.Delete(running, i, i+1)
			s.Done(read, retry, now)
		}
		next := func() bool {
			read, ok, _ := s.Next(now)
			if !ok {
				return false
			}
			each := 0
			for _, other := range running {
				if other.Namespace == read.Namespace {
					each++
				}
			}
			if len(running) >= bounds.AtOnce || each >= bounds.EachAtOnce {
				t.Fatalf("%d reads run, %d of the namespace, and one more begins", len(running), each)
			}
			if _, has := present[read.Key]; !has {
				t.Fatalf("%s without pods is read", read.Name)
			}
			running = append(running, read)
			delete(stale, read.Key)
			return true
		}
		t.Repeat(map[string]func(*rapid.T){
			"refer": func(t *rapid.T) {
				o := anOwner(t)
				if _, has := present[o.Key]; !has {
					stale[o.Key] = true
				}
				present[o.Key] = o
				s.Refer(o, now)
			},
			"release": func(t *rapid.T) {
				o := anOwner(t)
				delete(present, o.Key)
				delete(stale, o.Key)
				s.Release(o.Key, now)
			},
			"change": func(t *rapid.T) {
				o := anOwner(t)
				if _, has := present[o.Key]; has {
					stale[o.Key] = true
				}
				s.Changed(o.Key, rapid.Bool().Draw(t, "spec"), now)
			},
			"kind": func(t *rapid.T) { s.KindChanged(anOwner(t).Kind, now) },
			"next": func(*rapid.T) { next() },
			"done": func(t *rapid.T) {
				if len(running) > 0 {
					done(rapid.IntRange(0, len(running)-1).Draw(t, "read"), rapid.SampledFrom([]ownerscale.Retry{ownerscale.Never, ownerscale.Later, ownerscale.Failed}).Draw(t, "retry"))
				}
			},
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 90_000).Draw(t, "ms")) * time.Millisecond)
			},
		})
		for range 100 {
			for next() {
			}
			for len(running) > 0 {
				done(0, ownerscale.Never)
			}
			now = now.Add(bounds.LastRetry)
		}
		for _, namespace := range []string{"x", "y"} {
			if left := unread(stale, present, namespace); left > 0 && admissible(present, namespace, bounds) {
				t.Fatalf("%d owners of %s were never read: %v", left, namespace, stale)
			}
		}
		for _, key := range slices.Collect(maps.Keys(present)) {
			s.Release(key, now)
		}
		if kinds := s.Kinds(); len(kinds) > 0 {
			t.Fatalf("kinds are kept: %v", kinds)
		}
	})
}

// admissible reports whether all owners of a namespace are within the bounds.
func admissible(present map[ownerscale.Key]ownerscale.Owner, namespace string, bounds ownerscale.Bounds) bool {
	owners, kinds := 0, map[ownerscale.Kind]bool{}
	for key, o := range present {
		if key.Namespace == namespace {
			owners++
			kinds[o.Kind] = true
		}
	}
	return owners <= bounds.Owners && len(kinds) <= bounds.Kinds
}

func unread(stale map[ownerscale.Key]bool, present map[ownerscale.Key]ownerscale.Owner, namespace string) int {
	count := 0
	for key := range stale {
		if _, has := present[key]; has && key.Namespace == namespace {
			count++
		}
	}
	return count
}
