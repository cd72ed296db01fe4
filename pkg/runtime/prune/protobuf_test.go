package prune_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/podops-dev/podops/pkg/runtime/prune"
)

// text encodes a field that is a text.
func text(number prune.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

// integer encodes a field that is an integer.
func integer(number prune.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), value)
}

// fields encodes a message.
func fields(all ...[]byte) []byte {
	var message []byte
	for _, each := range all {
		message = append(message, each...)
	}
	return message
}

// in encodes a field that is a message.
func in(number prune.Number, all ...[]byte) []byte { return text(number, string(fields(all...))) }

func TestMessage(t *testing.T) {
	long := string(make([]byte, 1000))
	for name, tc := range map[string]struct {
		message       *prune.Message
		encoded, want []byte
	}{
		"no bytes":                      {prune.Without(1), nil, nil},
		"fields that are removed":       {prune.Without(1, 300), fields(text(1, "a"), integer(2, 7), text(1, "b"), text(300, "c"), text(301, "d")), fields(integer(2, 7), text(301, "d"))},
		"fields that are kept":          {prune.Only(2), fields(text(1, "a"), integer(2, 7), text(3, "b"), text(2, "c")), fields(integer(2, 7), text(2, "c"))},
		"fields of messages":            {prune.Without(1).In(2, prune.Without(1).In(3, prune.Only(1))), fields(in(2, text(1, "a"), in(3, text(1, "b"), text(2, "c"))), text(1, "d")), in(2, in(3, text(1, "b")))},
		"a message that gets shorter":   {prune.Without().In(2, prune.Without(1)), in(2, text(1, long), text(2, "a")), in(2, text(2, "a"))},
		"a message that stays long":     {prune.Without().In(2, prune.Without(1)), in(2, text(2, long), text(1, "a")), in(2, text(2, long))},
		"a message that is empty then":  {prune.Without().In(2, prune.Without(1)), in(2, text(1, "a")), in(2)},
		"messages only, and their list": {prune.Only().In(2, prune.Only(1)), fields(in(2, text(1, "a")), text(1, "b"), in(2, text(2, "c"))), fields(in(2, text(1, "a")), in(2))},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.message.Append(nil, tc.encoded)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFind(t *testing.T) {
	message := fields(integer(1, 7), in(2, text(1, "a"), in(3, text(1, "b")), text(1, "c")), in(2, text(1, "d")))
	for name, tc := range map[string]struct {
		path []prune.Number
		want []byte
	}{
		"no path":                    {nil, message},
		"a message":                  {[]prune.Number{2, 3}, text(1, "b")},
		"a text: the first":          {[]prune.Number{2, 1}, []byte("a")},
		"a text in messages":         {[]prune.Number{2, 3, 1}, []byte("b")},
		"a field that is missing":    {[]prune.Number{4}, nil},
		"a message that is missing":  {[]prune.Number{4, 1}, nil},
		"a field of another message": {[]prune.Number{2, 2}, nil},
		"a message: the first":       {[]prune.Number{2}, fields(text(1, "a"), in(3, text(1, "b")), text(1, "c"))},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := prune.Find(message, tc.path...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("field (-want +got):\n%s", diff)
			}
		})
	}
	for name, message := range map[string][]byte{
		"a text that ends": {0x12, 5, 'a'}, "no tag": {0xff, 0xff}, "an integer": integer(2, 1), "an earlier field that ends": {0x0a, 5, 'a'},
	} {
		if got, err := prune.Find(message, 2); err == nil {
			t.Errorf("%s is %v, want an error", name, got)
		}
	}
}

func TestBytesThatAreNoMessage(t *testing.T) {
	for name, encoded := range map[string][]byte{
		"a tag alone": {0x0a}, "a text that ends": {0x0a, 5, 'a'}, "no tag": {0xff, 0xff}, "an inner message that ends": text(2, "\x0a"),
		"an integer instead of a message": integer(2, 1),
	} {
		if got, err := prune.Without().In(2, prune.Without(1)).Append(nil, encoded); err == nil {
			t.Errorf("%s is %v, want an error", name, got)
		}
	}
}
