package heapsize_test

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/podops-dev/podops/pkg/heapsize"
)

type node struct {
	name     string
	children []*node
	values   map[string]any
	parent   *node
	skipped  []byte
}

func tree(depth int, parent *node) *node {
	made := &node{name: strings.Repeat("n", 10+depth), values: map[string]any{}, parent: parent}
	for i := range depth * 3 {
		made.values[fmt.Sprintf("key-%d", i)] = i * 1000
	}
	for range min(depth, 4) {
		made.children = append(made.children, tree(depth-1, made))
	}
	return made
}

// TestOfEqualsTheHeap compares with the heap after a garbage collection.
func TestOfEqualsTheHeap(t *testing.T) {
	for name, build := range map[string]func() any{
		"a long string":       func() any { return strings.Repeat("x", 100000) },
		"many short strings":  func() any { return words(10000, 5) },
		"a tree with parents": func() any { return tree(7, nil) },
		"a map of strings": func() any {
			made := map[string]string{}
			for _, word := range words(5000, 20) {
				made[word] = word + "!"
			}
			return made
		},
		"a slice of boxed numbers": func() any {
			made := make([]any, 0, 20000)
			for i := range 20000 {
				made = append(made, i+1000)
			}
			return made
		},
		"an array with capacity": func() any { return make([]int64, 10, 50000) },
		"one string many times":  func() any { return shared(20000) },
	} {
		t.Run(name, func(t *testing.T) {
			before := heap()
			value := build()
			measured := float64(heap() - before)
			got := float64(heapsize.New(heapsize.Options{}).Of(value))
			if got < 0.75*measured || got > 1.35*measured {
				t.Errorf("got %.0f bytes, and the heap grew by %.0f", got, measured)
			}
			runtime.KeepAlive(value)
		})
	}
}

func words(count, size int) []string {
	made := make([]string, 0, count)
	for i := range count {
		made = append(made, fmt.Sprintf("%0*d", size, i))
	}
	return made
}

func shared(count int) []*string {
	text := strings.Repeat("x", 50000)
	made := make([]*string, count)
	for i := range made {
		made[i] = &text
	}
	return made
}

func heap() int64 {
	for range 3 {
		runtime.GC()
	}
	stats := runtime.MemStats{}
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func TestSharedValuesCountNothing(t *testing.T) {
	library := tree(6, nil)
	sizer := heapsize.New(heapsize.Options{Shared: []any{library}})
	if got := sizer.Of(library); got != 0 {
		t.Errorf("a shared value counts %d bytes", got)
	}
	user := &node{name: "user", children: []*node{library}}
	alone := &node{name: "user", children: []*node{{}}}
	if got, most := sizer.Of(user), sizer.Of(alone); got > most {
		t.Errorf("a value that refers to a shared one counts %d bytes, want at most %d", got, most)
	}
}

func TestSkippedFieldsCountNothing(t *testing.T) {
	sizer := heapsize.New(heapsize.Options{Skip: map[reflect.Type]string{reflect.TypeFor[node](): "skipped"}})
	with, without := &node{skipped: make([]byte, 10000)}, &node{}
	if got, want := sizer.Of(with), sizer.Of(without); got != want {
		t.Errorf("got %d bytes, want %d", got, want)
	}
}
