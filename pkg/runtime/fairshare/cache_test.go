package fairshare_test

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/podops-dev/podops/pkg/runtime/fairshare"
)

// sized returns the size of a value that counts n bytes with its entry.
func sized(n int64) int64 { return n - fairshare.EntryBytes }

func TestAnOwnerThatTakesEverythingLosesItsOwn(t *testing.T) {
	cache := fairshare.NewCache[string, int](100_000)
	for i := range 10 {
		cache.Add("quiet", fmt.Sprintf("quiet-%d", i), i, sized(2000))
	}
	for i := range 10_000 {
		cache.Add("greedy", fmt.Sprintf("greedy-%d", i), i, sized(1000))
	}
	for i := range 10 {
		if _, ok := cache.Get(fmt.Sprintf("quiet-%d", i)); !ok {
			t.Errorf("value %d of the quiet owner is missing", i)
		}
	}
	if got := cache.BytesUsedBy("greedy"); got != 80_000 {
		t.Errorf("the greedy owner has %d bytes, want the bytes that the other one leaves", got)
	}
	if got := cache.Bytes(); got != 100_000 {
		t.Errorf("all have %d bytes", got)
	}
}

func TestTheLeastRecentlyUsedValueIsEvictedFirst(t *testing.T) {
	cache := fairshare.NewCache[int, string](3000)
	for i := range 3 {
		cache.Add("a", i, "value", sized(1000))
	}
	cache.Get(0)
	if keys := slices.Sorted(slices.Values(cache.Keys())); !slices.Equal(keys, []int{0, 1, 2}) {
		t.Errorf("the keys are %v", keys)
	}
	cache.Add("a", 3, "value", sized(1000))
	for key, want := range map[int]bool{0: true, 1: false, 2: true, 3: true} {
		if _, ok := cache.Get(key); ok != want {
			t.Errorf("key %d is there: %v, want %v", key, ok, want)
		}
	}
}

func TestAValueLargerThanTheCacheIsNotKept(t *testing.T) {
	cache := fairshare.NewCache[string, string](1000)
	cache.Add("a", "small", "value", sized(900))
	if cache.Add("a", "large", "value", 1001) {
		t.Error("a value of more bytes than the cache is kept")
	}
	if _, ok := cache.Get("small"); !ok {
		t.Error("the value that fits is missing")
	}
}

func TestTheFirstOwnerIsCharged(t *testing.T) {
	cache := fairshare.NewCache[string, string](10_000)
	cache.Add("first", "key", "old", sized(1000))
	cache.Add("second", "key", "new", sized(2000))
	if got, _ := cache.Get("key"); got != "new" {
		t.Errorf("got %q", got)
	}
	if first, second := cache.BytesUsedBy("first"), cache.BytesUsedBy("second"); first != 2000 || second != 0 {
		t.Errorf("the first owner is charged %d bytes, the second one %d", first, second)
	}
	cache.Remove("key")
	if cache.Len() != 0 || cache.Bytes() != 0 {
		t.Errorf("%d values of %d bytes are left", cache.Len(), cache.Bytes())
	}
}

// TestCacheModel compares the cache with a list of all values in the order of their use.
func TestCacheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 20_000
		cache := fairshare.NewCache[int, int](most)
		var model []modelled
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			key := rapid.IntRange(0, 30).Draw(t, "key")
			at := slices.IndexFunc(model, func(one modelled) bool { return one.key == key })
			if rapid.Bool().Draw(t, "get") {
				_, ok := cache.Get(key)
				if ok != (at >= 0) {
					t.Fatalf("key %d is there: %v", key, ok)
				}
				if ok {
					used := model[at]
					model = append(slices.Delete(model, at, at+1), used)
				}
				continue
			}
			added := modelled{key, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "owner"), rapid.Int64Range(500, 9000).Draw(t, "bytes")}
			if at >= 0 {
				added.owner = model[at].owner
				model = slices.Delete(model, at, at+1)
			}
			model = evict(append(model, added), most)
			cache.Add(added.owner, key, key, sized(added.bytes))
			if got := cache.Bytes(); got != total(model, "") || got > most {
				t.Fatalf("%d bytes, want %d", got, total(model, ""))
			}
		}
	})
}

type modelled struct {
	key   int
	owner string
	bytes int64
}

func total(model []modelled, owner string) (sum int64) {
	for _, one := range model {
		if owner == "" || one.owner == owner {
			sum += one.bytes
		}
	}
	return sum
}

// evict removes the oldest value of the largest owner until the others fit.
func evict(model []modelled, most int64) []modelled {
	for total(model, "") > most {
		largest := slices.MaxFunc(model, func(a, b modelled) int {
			return cmp.Or(cmp.Compare(total(model, a.owner), total(model, b.owner)), cmp.Compare(b.owner, a.owner))
		}).owner
		at := slices.IndexFunc(model, func(one modelled) bool { return one.owner == largest })
		model = slices.Delete(model, at, at+1)
	}
	return model
}

func TestEntryBytesCoverAnEntry(t *testing.T) {
	const entries = 20_000
	cache := fairshare.NewCache[string, int](1 << 30)
	keys := make([]string, entries)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%d", i)
	}
	before := heapAlloc()
	for i, key := range keys {
		cache.Add(key, key, i, 0) // an owner each
	}
	if each := (heapAlloc() - before) / entries; each > fairshare.EntryBytes {
		t.Errorf("an entry takes %d bytes of heap, and counts %d", each, fairshare.EntryBytes)
	}
	runtime.KeepAlive(cache)
}

func heapAlloc() int64 {
	for range 3 {
		runtime.GC()
	}
	stats := runtime.MemStats{}
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
