// Package heapsize measures how many bytes of heap a value keeps alive. Caches of values whose size a
// user chooses count these bytes: an estimate from the text of the value could be wrong by any factor
// that a user chooses.
package heapsize

import (
	"math/bits"
	"reflect"
)

// Options of a Sizer.
type Options struct {
	// Shared are values that measured values refer to and do not own. Everything reachable from
	// them counts 0. They must not be modified while a Sizer is in use.
	Shared []any

	// Skip names for each struct type one field that counts 0: a slice of a buffer, for example,
	// that is owned and counted elsewhere.
	Skip map[reflect.Type]string
}

// Sizer measures values. It is safe for concurrent use.
type Sizer struct {
	shared map[object]struct{}
	skip   map[reflect.Type]string
}

// object is one allocation, as it is first reached.
type object struct {
	address uintptr
	kind    reflect.Type
}

// New returns a Sizer.
func New(options Options) *Sizer {
	s := &Sizer{skip: options.Skip}
	w := walker{sizer: s, seen: map[object]struct{}{}}
	for _, value := range options.Shared {
		w.inside(reflect.ValueOf(value))
	}
	s.shared = w.seen
	return s
}

// Of returns approximately the bytes of heap that value keeps alive: allocations are rounded as the
// allocator does, the slots of maps are estimated from their lengths, and the variables of closures
// are not counted. No other goroutine may modify the value meanwhile.
func (s *Sizer) Of(value any) int64 {
	w := walker{sizer: s, seen: map[object]struct{}{}}
	w.inside(reflect.ValueOf(value))
	return w.bytes
}

// walker visits each allocation of one value once.
type walker struct {
	sizer *Sizer
	seen  map[object]struct{}
	bytes int64
}

// inside counts the allocations that a value refers to, but not the value itself.
func (w *walker) inside(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && w.first(v.Pointer(), v.Type()) {
			w.add(v.Type().Elem().Size(), 1)
			w.inside(v.Elem())
		}
	case reflect.Interface:
		w.boxed(v)
	case reflect.String:
		if v.Len() > 0 {
			w.text(v)
		}
	case reflect.Slice:
		w.slice(v)
	case reflect.Array:
		w.elements(v)
	case reflect.Map:
		w.mapped(v)
	case reflect.Struct:
		w.fields(v)
	default: // numbers refer to nothing; the references of functions and channels are invisible
	}
}

// first reports whether an allocation is reached for the first time and is not shared.
func (w *walker) first(address uintptr, kind reflect.Type) bool {
	key := object{address: address, kind: kind}
	if _, shared := w.sizer.shared[key]; shared {
		return false
	}
	if _, seen := w.seen[key]; seen {
		return false
	}
	w.seen[key] = struct{}{}
	return true
}

// boxed counts the value of an interface, which has an allocation of its own unless it is a pointer.
func (w *walker) boxed(v reflect.Value) {
	if v.IsNil() {
		return
	}
	inner := v.Elem()
	switch inner.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.UnsafePointer:
	default:
		w.add(inner.Type().Size(), 1)
	}
	w.inside(inner)
}

// tiny is the size of a short text: its block of the allocator lives as long as the text.
const tiny = 16

func (w *walker) text(v reflect.Value) {
	// reflect has the address of a string only if it is in a variable. String shares the bytes.
	text := v.String()
	if w.first(addressOf(text), v.Type()) {
		w.add(1, max(len(text), tiny))
	}
}

func (w *walker) slice(v reflect.Value) {
	if v.Cap() == 0 || !w.first(v.Pointer(), v.Type()) {
		return
	}
	w.add(v.Type().Elem().Size(), v.Cap())
	w.elements(v)
}

func (w *walker) elements(v reflect.Value) {
	if !refers(v.Type().Elem().Kind()) {
		return
	}
	for i := range v.Len() {
		w.inside(v.Index(i))
	}
}

// mapHeader is the size of an empty map of Go.
const mapHeader = 48

func (w *walker) mapped(v reflect.Value) {
	if v.IsNil() || !w.first(v.Pointer(), v.Type()) {
		return
	}
	kind := v.Type()
	// Eight slots are a group; seven of them are in use before a map grows to twice its size.
	slots := 8
	if v.Len() > slots {
		slots = 1 << bits.Len(uint((v.Len()*8+6)/7-1))
	}
	w.add(mapHeader, 1)
	w.add(kind.Key().Size()+kind.Elem().Size()+1, slots)
	for entries := v.MapRange(); entries.Next(); {
		w.inside(entries.Key())
		w.inside(entries.Value())
	}
}

func (w *walker) fields(v reflect.Value) {
	skipped := w.sizer.skip[v.Type()]
	for i := range v.NumField() {
		if skipped != "" && v.Type().Field(i).Name == skipped {
			continue
		}
		if refers(v.Field(i).Kind()) {
			w.inside(v.Field(i))
		}
	}
}

// refers reports whether values of a kind may refer to allocations.
func refers(kind reflect.Kind) bool {
	switch kind {
	case reflect.Pointer, reflect.Interface, reflect.String, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
		return true
	default:
		return false
	}
}

// add counts one allocation of some elements.
func (w *walker) add(size uintptr, count int) { w.bytes += Rounded(int64(size) * int64(count)) }

// Rounded returns approximately the bytes that the allocator of Go takes for an allocation.
func Rounded(bytes int64) int64 {
	const small = 512
	switch {
	case bytes <= 8:
		return bytes
	case bytes <= small:
		return (bytes + 15) &^ 15
	default: // classes are up to an eighth apart
		return bytes + bytes/16
	}
}
