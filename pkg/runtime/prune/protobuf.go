package prune

import (
	"errors"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Number is the number of a field.
type Number = protowire.Number

// Message selects the fields of a protobuf message by their numbers. It keeps every field that it does
// not name.
type Message struct {
	// fields by number; nil keeps the field as it is.
	fields []*field

	// others is true if fields that are not named are removed.
	others bool
}

// field is removed unless it has a message of which some fields are kept.
type field struct{ in *Message }

// Without returns a Message that removes these fields.
func Without(numbers ...Number) *Message {
	m := &Message{}
	for _, number := range numbers {
		m.set(number, &field{})
	}
	return m
}

// Only returns a Message that removes all fields but these.
func Only(numbers ...Number) *Message {
	m := &Message{others: true}
	for _, number := range numbers {
		m.set(number, nil)
	}
	return m
}

// In adds a field that is a message, of which inner removes some fields, and returns m.
func (m *Message) In(number Number, inner *Message) *Message {
	m.set(number, &field{in: inner})
	return m
}

func (m *Message) set(number Number, f *field) {
	for len(m.fields) <= int(number) {
		var unnamed *field
		if m.others {
			unnamed = &field{}
		}
		m.fields = append(m.fields, unnamed)
	}
	m.fields[number] = f
}

// of returns how a field is pruned; nil if it is kept unchanged.
func (m *Message) of(number Number) *field {
	if int(number) < len(m.fields) {
		return m.fields[number]
	}
	if m.others {
		return &field{}
	}
	return nil
}

var errMessage = errors.New("the bytes are not a protobuf message")

// Append appends an encoded message without the fields that m removes.
func (m *Message) Append(kept, message []byte) ([]byte, error) {
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeField(message)
		if size < 0 {
			return nil, errMessage
		}
		switch f := m.of(number); {
		case f == nil:
			kept = append(kept, message[:size]...)
		case f.in != nil && kind != protowire.BytesType:
			return nil, errMessage
		case f.in != nil:
			var err error
			if kept, err = f.in.appendInner(kept, message[:size], number); err != nil {
				return nil, err
			}
		}
		message = message[size:]
	}
	return kept, nil
}

// appendInner appends a field that is a message. Its length is known after it is pruned.
func (m *Message) appendInner(kept, field []byte, number Number) ([]byte, error) {
	_, _, tag := protowire.ConsumeTag(field)
	value, _ := protowire.ConsumeBytes(field[tag:])
	kept = protowire.AppendTag(kept, number, protowire.BytesType)
	begin := len(kept)
	kept, err := m.Append(kept, value)
	if err != nil {
		return nil, err
	}
	var length [10]byte
	return slices.Insert(kept, begin, protowire.AppendVarint(length[:0], uint64(len(kept)-begin))...), nil
}

// Find returns the bytes of a field that is a message, a text or bytes, by the numbers of the fields that it is in and
// its own; of a field that repeats, the first; nil if it is missing. They are a part of message.
func Find(message []byte, path ...Number) ([]byte, error) {
	for _, want := range path {
		value, err := first(message, want)
		if err != nil || value == nil {
			return nil, err
		}
		message = value
	}
	return message, nil
}

func first(message []byte, want Number) ([]byte, error) {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil, errMessage
		}
		size := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if size < 0 || number == want && kind != protowire.BytesType {
			return nil, errMessage
		}
		if number == want {
			value, _ := protowire.ConsumeBytes(message[tag:])
			return value, nil
		}
		message = message[tag+size:]
	}
	return nil, nil
}
