package sim

import (
	"errors"
	"maps"
	"slices"
	"strconv"
)

// ErrConflict is the error of an update of an object that has changed since it was read.
var ErrConflict = errors.New("the object has been modified")

// Versions issues the resourceVersions of a cluster. Servers that share it have a common
// order of writes.
type Versions struct{ last int }

// Object is one version of an object as the server stores it. It is replaced, not modified.
type Object[T any] struct {
	Name    string
	Version int
	Value   T
}

// ResourceVersion returns the version as the API encodes it; "0" for an object that does
// not exist.
func (o Object[T]) ResourceVersion() string { return strconv.Itoa(o.Version) }

// Server is an API server for objects of one kind, with optimistic locking and a history of
// all writes.
type Server[T any] struct {
	versions *Versions
	objects  map[string]Object[T]
	history  []Object[T]
}

// NewServer returns a server without objects.
func NewServer[T any](versions *Versions) *Server[T] {
	return &Server[T]{versions: versions, objects: map[string]Object[T]{}}
}

// Put creates or replaces an object of any version.
func (s *Server[T]) Put(name string, value T) Object[T] {
	s.versions.last++
	object := Object[T]{Name: name, Version: s.versions.last, Value: value}
	s.objects[name] = object
	s.history = append(s.history, object)
	return object
}

// Update replaces an object that still has the version that was read, which is 0 for an
// object that did not exist. Otherwise it returns ErrConflict and changes nothing.
func (s *Server[T]) Update(name string, version int, value T) (Object[T], error) {
	if s.objects[name].Version != version {
		return Object[T]{}, ErrConflict
	}
	return s.Put(name, value), nil
}

// Get returns an object. The zero Object, with version 0, does not exist.
func (s *Server[T]) Get(name string) Object[T] { return s.objects[name] }

// Names returns the names of all objects, sorted.
func (s *Server[T]) Names() []string { return slices.Sorted(maps.Keys(s.objects)) }

// Writes returns the number of writes.
func (s *Server[T]) Writes() int { return len(s.history) }

// View returns the objects by name as a client sees them that has received the first writes
// of the history, and the last version among these; 0 without writes.
func (s *Server[T]) View(writes int) (objects map[string]Object[T], version int) {
	objects = map[string]Object[T]{}
	for _, object := range s.history[:writes] {
		objects[object.Name], version = object, object.Version
	}
	return objects, version
}
