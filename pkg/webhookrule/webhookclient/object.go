package webhookclient

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"
)

// maxNesting bounds how deep an answer may be nested. The protocol needs 2.
const maxNesting = 32

// object is a JSON object as it was sent: names are exact, and no name occurs twice. UnmarshalStrict
// of sigs.k8s.io/json has no position for a duplicate name, and accepts null for a boolean and bytes
// that are not UTF-8.
type object struct {
	body   []byte
	fields map[string]element
}

// element is a value with its position in the body. The value is nil, a bool, a string, a number,
// []element, or nested for an object below the top.
type element struct {
	value  any
	offset int
}

// number is a JSON number as it is written: no digits are lost.
type number string

// nested replaces an object below the top: the protocol has no nested objects, so it is not read.
type nested struct{}

// readObject parses a body strictly: one JSON object in valid UTF-8, no name twice in any object,
// nested at most maxNesting deep.
func readObject(body []byte) (*object, error) {
	o := &object{body: body, fields: map[string]element{}}
	if !utf8.Valid(body) {
		return nil, o.bad(invalidUTF8(body), "the answer is not valid UTF-8")
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, o.bad(0, "the answer is empty, a JSON object is required")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(body, &whole); err != nil {
		offset := len(body)
		if syntax, is := errors.AsType[*json.SyntaxError](err); is {
			// Offset counts the bytes that were read, including the invalid byte.
			offset = max(0, int(syntax.Offset)-1)
		}
		return nil, o.bad(offset, "the answer is not JSON: %v", err)
	}
	reader := &reader{object: o, decoder: json.NewDecoder(bytes.NewReader(body))}
	reader.decoder.UseNumber()
	top, err := reader.value(0)
	if err != nil {
		return nil, err
	}
	if _, is := top.value.(nested); !is {
		return nil, o.bad(top.offset, "the answer must be a JSON object, is %s", jsonKind(top.value))
	}
	return o, nil
}

// at returns the position of a field; the start of the body if it is absent.
func (o *object) at(name string) int { return o.fields[name].offset }

// bad returns a failure with the position, as line and column for editors and as byte (from 0) for
// tools.
func (o *object) bad(offset int, format string, arguments ...any) *Failure {
	before := o.body[:min(offset, len(o.body))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	failure := fail(ClassBadResponse, format+" (line %d, column %d, byte %d)", append(arguments, line, column, offset)...)
	failure.Sent = true
	return failure
}

// reader parses a body that is valid JSON.
type reader struct {
	object  *object
	decoder *json.Decoder
}

// value reads the next value; depth is the number of enclosing lists and objects.
func (r *reader) value(depth int) (element, error) {
	offset := r.next()
	token, err := r.decoder.Token()
	if err != nil {
		return element{}, r.object.bad(offset, "the answer is not JSON: %v", err)
	}
	if _, opens := token.(json.Delim); opens && depth == maxNesting {
		return element{}, r.object.bad(offset, "the answer is nested deeper than %d levels", maxNesting)
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '[' {
			return r.list(offset, depth)
		}
		return r.fields(offset, depth)
	case json.Number:
		return element{value: number(token), offset: offset}, nil
	default:
		return element{value: token, offset: offset}, nil
	}
}

func (r *reader) list(offset, depth int) (element, error) {
	list := []element{}
	for r.decoder.More() {
		value, err := r.value(depth + 1)
		if err != nil {
			return element{}, err
		}
		list = append(list, value)
	}
	_, err := r.decoder.Token()
	return element{value: list, offset: offset}, err
}

// fields reads an object. Only the top object keeps its fields: objects below are checked and
// dropped.
func (r *reader) fields(offset, depth int) (element, error) {
	seen := map[string]bool{}
	for r.decoder.More() {
		at := r.next()
		token, err := r.decoder.Token()
		if err != nil {
			return element{}, err
		}
		name, _ := token.(string)
		if seen[name] {
			return element{}, r.object.bad(at, "the answer has the field %q twice", cut(name, 64))
		}
		seen[name] = true
		value, err := r.value(depth + 1)
		if err != nil {
			return element{}, err
		}
		if depth == 0 {
			r.object.fields[name] = value
		}
	}
	_, err := r.decoder.Token()
	return element{value: nested{}, offset: offset}, err
}

// next returns the position of the next token.
func (r *reader) next() int {
	offset := int(r.decoder.InputOffset())
	for offset < len(r.object.body) && strings.IndexByte(" \t\r\n,:", r.object.body[offset]) >= 0 {
		offset++
	}
	return offset
}

// jsonKind returns a value's type name for a message, without the value, which may be
// long.
func jsonKind(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case number:
		return "a number"
	case []element:
		return "a list"
	default:
		return "an object"
	}
}

// invalidUTF8 returns the position of the first invalid byte of a body.
func invalidUTF8(body []byte) int {
	offset := 0
	for offset < len(body) {
		char, size := utf8.DecodeRune(body[offset:])
		if char == utf8.RuneError && size == 1 {
			break
		}
		offset += size
	}
	return offset
}
