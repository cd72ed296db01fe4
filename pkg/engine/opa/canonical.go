package opa

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/open-policy-agent/opa/v1/ast"
)

// unbounded is the limit for documents that PodOps made.
const unbounded = math.MaxInt

var errTooLarge = errors.New("the document is too large")

// canonical returns a document as JSON, the same bytes for the same document: keys sorted, no
// whitespace, sets as sorted arrays, and numbers as they are written. It returns errTooLarge after
// limit bytes: the JSON of a document that shares its parts is exponentially larger than the
// document in memory.
func canonical(value ast.Value, limit int) (json.RawMessage, error) {
	writer := &canonicalWriter{limit: limit}
	if err := writer.write(value); err != nil {
		return nil, err
	}
	return writer.buffer.Bytes(), nil
}

type canonicalWriter struct {
	buffer bytes.Buffer
	limit  int
}

// write appends a value. Each call appends at least a byte, so the limit bounds the calls too.
func (w *canonicalWriter) write(value ast.Value) error {
	switch value := value.(type) {
	case ast.Null:
		return w.text("null")
	case ast.Boolean:
		return w.text(fmt.Sprint(bool(value)))
	case ast.Number:
		return w.text(string(value))
	case ast.String:
		return w.quoted(string(value))
	case *ast.Array:
		return w.list(value.Iter)
	case ast.Set:
		return w.list(value.Iter)
	case ast.Object:
		return w.object(value)
	default:
		return fmt.Errorf("a value of type %s has no JSON", ast.ValueName(value))
	}
}

func (w *canonicalWriter) text(text string) error {
	if w.buffer.Len()+len(text) > w.limit {
		return errTooLarge
	}
	w.buffer.WriteString(text)
	return nil
}

func (w *canonicalWriter) quoted(text string) error {
	if w.buffer.Len()+len(text) > w.limit {
		return errTooLarge
	}
	encoded := bytes.Buffer{}
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		return err
	}
	return w.text(string(bytes.TrimSuffix(encoded.Bytes(), []byte("\n"))))
}

// list writes the terms that iterate yields.
func (w *canonicalWriter) list(iterate func(func(*ast.Term) error) error) error {
	separator := "["
	err := iterate(func(term *ast.Term) error {
		if err := w.text(separator); err != nil {
			return err
		}
		separator = ","
		return w.write(term.Value)
	})
	if err != nil {
		return err
	}
	if separator == "[" {
		return w.text("[]")
	}
	return w.text("]")
}

// object writes an object. Keys that are not strings become strings that hold their JSON.
func (w *canonicalWriter) object(object ast.Object) error {
	separator := "{"
	err := object.Iter(func(key, value *ast.Term) error {
		if err := w.text(separator); err != nil {
			return err
		}
		separator = ","
		if err := w.key(key.Value); err != nil {
			return err
		}
		if err := w.text(":"); err != nil {
			return err
		}
		return w.write(value.Value)
	})
	if err != nil {
		return err
	}
	if separator == "{" {
		return w.text("{}")
	}
	return w.text("}")
}

func (w *canonicalWriter) key(value ast.Value) error {
	if text, ok := value.(ast.String); ok {
		return w.quoted(string(text))
	}
	encoded, err := canonical(value, w.limit-w.buffer.Len())
	if err != nil {
		return err
	}
	return w.quoted(string(encoded))
}
