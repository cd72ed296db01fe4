package plan

import (
	"cmp"
	"errors"
	"slices"
)

// Intent is whether an expected item should take traffic.
type Intent int

const (
	// IntentUnknown means that the item does not specify its traffic. If it is there and as
	// expected, its traffic counts as on.
	IntentUnknown Intent = iota

	// IntentOn means that it should take traffic.
	IntentOn

	// IntentOff means that the item should exist, and take no traffic.
	IntentOff
)

// Item is an entry that a provider has or should have.
type Item[T any] struct {
	// ID is unique within one employer. An empty ID is a mistake of the adapter.
	ID string

	// Name is the name of the object that the item belongs to; empty when it is not known.
	Name string

	// Intent is set on an expected item; it is ignored on a current item.
	Intent Intent

	Value T
}

// Failure is an item that cannot be planned, and its error.
type Failure[T any] struct {
	Item Item[T]
	Err  error
}

// Errors of items that cannot be planned. They must be fixed in the adapter.
var (
	ErrNoID      = errors.New("the adapter gives it no id")
	ErrDuplicate = errors.New("the adapter gives its id to several")
)

// Diff holds the changes from current to expected. An item is in exactly one list, and each list is
// sorted by id. Off, Create, Update and Unchanged hold expected items, Delete holds current items.
type Diff[T any] struct {
	// Off holds updates of items that should take no traffic: they go first, with Delete.
	Off []Item[T]

	Delete    []Item[T]
	Create    []Item[T]
	Update    []Item[T]
	Unchanged []Item[T]

	// Failed holds the items that are not changed.
	Failed []Failure[T]
}

// Between compares the expected with the current items. equal is called on an expected and
// the current item of the same id; its error fails that item and no other. Arguments are
// not modified.
func Between[T any](expected, current []Item[T], equal func(expected, current T) (bool, error)) Diff[T] {
	var diff Diff[T]
	wanted, there := index(expected), index(current)
	for _, id := range ids(wanted, there) {
		diff.put(id, wanted[id], there[id], equal)
	}
	return diff
}

func (d *Diff[T]) put(id string, wanted, there []Item[T], equal func(expected, current T) (bool, error)) {
	all := slices.Concat(wanted, there)
	switch {
	case id == "":
		d.fail(all, ErrNoID)
	case len(wanted) > 1 || len(wanted) == 1 && len(there) > 1:
		d.fail(all, ErrDuplicate)
	case len(wanted) == 0:
		d.Delete = append(d.Delete, there[0])
	case len(there) == 0:
		d.Create = append(d.Create, wanted[0])
	default:
		d.compare(wanted[0], there[0], equal)
	}
}

func (d *Diff[T]) compare(wanted, there Item[T], equal func(expected, current T) (bool, error)) {
	same, err := equal(wanted.Value, there.Value)
	switch {
	case err != nil:
		d.fail([]Item[T]{wanted}, err)
	case same:
		d.Unchanged = append(d.Unchanged, wanted)
	case wanted.Intent == IntentOff:
		d.Off = append(d.Off, wanted)
	default:
		d.Update = append(d.Update, wanted)
	}
}

func (d *Diff[T]) fail(items []Item[T], err error) {
	for _, item := range items {
		d.Failed = append(d.Failed, Failure[T]{Item: item, Err: err})
	}
}

func index[T any](items []Item[T]) map[string][]Item[T] {
	byID := make(map[string][]Item[T], len(items))
	for _, item := range items {
		byID[item.ID] = append(byID[item.ID], item)
	}
	for _, same := range byID {
		slices.SortStableFunc(same, func(a, b Item[T]) int { return cmp.Compare(a.Name, b.Name) })
	}
	return byID
}

func ids[T any](indexes ...map[string][]Item[T]) []string {
	var all []string
	for _, byID := range indexes {
		for id := range byID {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
