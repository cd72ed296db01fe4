package prune

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
)

// Field is a member of a JSON object that is kept.
type Field struct {
	Name string

	// Only are the members of the field that are kept, if it is an object; empty: all are kept.
	Only []Field
}

// JSON returns the text of an object with only the members in keep, and every other text
// unchanged. A name that is written with escapes is kept.
func JSON(text []byte, keep []Field) ([]byte, error) {
	s := scanner{text: text}
	if s.space(); s.next() != '{' {
		return text, nil
	}
	kept, err := s.appendKept(make([]byte, 0, min(len(text), firstBytes)), keep)
	if err != nil {
		return nil, err
	}
	return kept, s.end()
}

// Cut returns the text of an object without the members of these names of its member in, and their
// values, which are parts of text; nil for null, and for a member that is missing.
func Cut(text []byte, in string, names ...string) (rest []byte, values [][]byte, err error) {
	s := scanner{text: text}
	values = make([][]byte, len(names))
	s.space()
	rest, err = s.appendMembers(make([]byte, 0, firstBytes), func(rest, name []byte) ([]byte, error) {
		if string(name) != in || s.next() != '{' {
			return s.appendMember(rest, name)
		}
		rest, err := s.appendMembers(appendName(rest, name), func(rest, name []byte) ([]byte, error) {
			at := slices.Index(names, string(name))
			if at < 0 || s.next() == 'n' {
				return s.appendMember(rest, name)
			}
			var err error
			values[at], err = s.value()
			return rest, err
		})
		return append(rest, ','), err
	})
	if err != nil {
		return nil, nil, err
	}
	return rest, values, s.end()
}

// firstBytes is the size of the buffer for a pruned object: it is enough for most pods.
const firstBytes = 4 << 10

var (
	errObject  = errors.New("the text is not one JSON object")
	errNesting = errors.New("the JSON is nested too deeply")
)

// maxDepth is how deep JSON may be nested, as in package encoding/json.
const maxDepth = 10000

// scanner reads a text from a position on.
type scanner struct {
	text []byte
	at   int
}

// next returns the next byte; 0 at the end.
func (s *scanner) next() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

// space skips spaces.
func (s *scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

// take skips a byte and the spaces behind it, and returns whether it was the next byte.
func (s *scanner) take(c byte) bool {
	if s.next() != c {
		return false
	}
	s.at++
	s.space()
	return true
}

// end returns an error if there is more than spaces.
func (s *scanner) end() error {
	if s.space(); s.at < len(s.text) {
		return errObject
	}
	return nil
}

// appendKept reads an object and appends it with only the members in keep.
func (s *scanner) appendKept(kept []byte, keep []Field) ([]byte, error) {
	return s.appendMembers(kept, func(kept, name []byte) ([]byte, error) {
		at := slices.IndexFunc(keep, func(field Field) bool { return field.Name == string(name) })
		switch {
		case at < 0 && bytes.IndexByte(name, '\\') < 0:
			_, err := s.value()
			return kept, err
		case at >= 0 && len(keep[at].Only) > 0 && s.next() == '{':
			kept, err := s.appendKept(appendName(kept, name), keep[at].Only)
			return append(kept, ','), err
		default:
			return s.appendMember(kept, name)
		}
	})
}

// appendMembers reads an object and appends it. member is called with the name of each member as it is
// written, reads its value, and appends the member or nothing.
func (s *scanner) appendMembers(kept []byte, member func(kept, name []byte) ([]byte, error)) ([]byte, error) {
	if !s.take('{') {
		return nil, errObject
	}
	kept = append(kept, '{')
	if s.next() == '}' {
		s.at++
		return append(kept, '}'), nil
	}
	for {
		name, err := s.quoted()
		if err != nil {
			return nil, err
		}
		if s.space(); !s.take(':') {
			return nil, errObject
		}
		if kept, err = member(kept, name[1:len(name)-1]); err != nil {
			return nil, err
		}
		if s.space(); s.next() == '}' {
			s.at++
			return append(bytes.TrimSuffix(kept, []byte{','}), '}'), nil
		}
		if !s.take(',') {
			return nil, errObject
		}
	}
}

func appendName(kept, name []byte) []byte {
	return append(append(append(kept, '"'), name...), '"', ':')
}

// appendMember reads a value and appends it with its name.
func (s *scanner) appendMember(kept, name []byte) ([]byte, error) {
	value, err := s.value()
	return append(append(appendName(kept, name), value...), ','), err
}

// value reads a value.
func (s *scanner) value() ([]byte, error) {
	begin := s.at
	switch s.next() {
	case '"':
		return s.quoted()
	case '{', '[':
		return s.nested()
	}
	for s.at < len(s.text) && !ends(s.text[s.at]) {
		s.at++
	}
	if s.at == begin {
		return nil, errObject
	}
	return s.text[begin:s.at], nil
}

// ends reports whether a byte is behind a number, true, false or null.
func ends(c byte) bool {
	switch c {
	case ',', '}', ']', ' ', '\t', '\r', '\n', '"', ':', '{', '[':
		return true
	}
	return false
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// zeros has the high bit of the first byte in a word that is 0, counted from the lowest byte; bits
// of higher bytes may be set, too.
func zeros(word uint64) uint64 { return (word - ones) & ^word & highs }

// quoted reads a string. It looks at eight bytes at a time: most of a pod are strings.
func (s *scanner) quoted() ([]byte, error) {
	text, begin, at := s.text, s.at, s.at+1
	if s.next() != '"' {
		return nil, errObject
	}
	for at < len(text) {
		if at+8 <= len(text) {
			word := binary.LittleEndian.Uint64(text[at:])
			found := zeros(word^ones*'"') | zeros(word^ones*'\\')
			if found == 0 {
				at += 8
				continue
			}
			at += bits.TrailingZeros64(found) / 8
		}
		switch text[at] {
		case '"':
			s.at = at + 1
			return text[begin:s.at], nil
		case '\\':
			at++
		}
		at++
	}
	return nil, errObject
}

// nested reads an object or a list.
func (s *scanner) nested() ([]byte, error) {
	begin, closing := s.at, make([]byte, 0, 64)
	for s.at < len(s.text) {
		switch c := s.text[s.at]; c {
		case '"':
			if _, err := s.quoted(); err != nil {
				return nil, err
			}
			continue
		case '{', '[':
			if len(closing) == maxDepth {
				return nil, errNesting
			}
			closing = append(closing, c+2) // in ASCII, both closing brackets are two behind
		case '}', ']':
			if c != closing[len(closing)-1] {
				return nil, errObject
			}
			if closing = closing[:len(closing)-1]; len(closing) == 0 {
				s.at++
				return s.text[begin:s.at], nil
			}
		}
		s.at++
	}
	return nil, errObject
}
