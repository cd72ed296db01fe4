package prune_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/podops-dev/podops/pkg/runtime/prune"
)

func TestJSON(t *testing.T) {
	keep := []prune.Field{{Name: "metadata", Only: []prune.Field{{Name: "name"}, {Name: "labels"}}}, {Name: "status"}}
	for name, tc := range map[string]struct{ text, want string }{
		"nothing is kept":                 {`{"spec":{"a":[1,{"b":"}"}]},"x":null}`, `{}`},
		"an empty object":                 {` { } `, `{}`},
		"members of members":              {`{"metadata":{"uid":"1","name":"web","labels":{"a":"b"}}}`, `{"metadata":{"name":"web","labels":{"a":"b"}}}`},
		"whole members":                   {`{"a":1,"status":{"a":[{}]},"b":2}`, `{"status":{"a":[{}]}}`},
		"spaces":                          {"{ \"a\" :\t1 ,\n\"status\" : { \"b\" : 2 }\r}\n", `{"status":{ "b" : 2 }}`},
		"a member that is no object":      {`{"metadata":null,"status":1.5e3}`, `{"metadata":null,"status":1.5e3}`},
		"brackets and quotes in text":     {`{"a":"}]\"\\","status":"{[\\\""}`, `{"status":"{[\\\""}`},
		"a name twice":                    {`{"status":1,"status":2}`, `{"status":1,"status":2}`},
		"a name with escapes":             {`{"st\u0061tus":1,"a":2}`, `{"st\u0061tus":1}`},
		"a list":                          {`[{"a":1}]`, `[{"a":1}]`},
		"no text, which no decoder takes": {``, ``},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := prune.JSON([]byte(tc.text), keep)
			if err != nil || string(got) != tc.want {
				t.Errorf("got %s, %v, want %s", got, err, tc.want)
			}
		})
	}
}

func TestTextThatIsNoJSON(t *testing.T) {
	for _, text := range noJSON() {
		if got, err := prune.JSON([]byte(text), []prune.Field{{Name: "b"}}); err == nil {
			t.Errorf("%.40s is %s, want an error", text, got)
		}
	}
}

func noJSON() []string {
	return []string{
		`{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{a:1}`, `{"a" 1}`, `{"a":"`, `{"a":"\"}`, `{"a":[}`, `{"a":{]}`, `{"a":[1}`,
		`{"a":1}x`, `{}}`, `{"a":1 2}`, `{"a":,"b":1}`, `{"a":` + strings.Repeat("[", 20000), `{"a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`,
	}
}

// anyJSON generates values of JSON.
func anyJSON(depth int) *rapid.Generator[any] {
	name := rapid.OneOf(rapid.SampledFrom([]string{"a", "b", "c"}), rapid.String())
	kinds := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Float64Range(-1e6, 1e6).AsAny(), rapid.String().AsAny(),
		rapid.StringMatching(`["\\{}\[\],: ]*`).AsAny(),
	}
	if depth > 0 {
		kinds = append(kinds, rapid.SliceOfN(anyJSON(depth-1), 0, 4).AsAny(), rapid.MapOfN(name, anyJSON(depth-1), 0, 4).AsAny())
	}
	return rapid.OneOf(kinds...)
}

// TestJSONKeepsTheSameAsADecoder compares with values that are decoded whole and cut then.
func TestJSONKeepsTheSameAsADecoder(t *testing.T) {
	keep := []prune.Field{{Name: "a"}, {Name: "b", Only: []prune.Field{{Name: "a"}, {Name: "b", Only: []prune.Field{{Name: "a"}}}}}}
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c", "d\"\\"}), anyJSON(4), 0, 4).Draw(t, "object")
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "indented") {
			if text, err = json.MarshalIndent(object, "", "\t"); err != nil {
				t.Fatal(err)
			}
		}
		pruned, err := prune.JSON(text, keep)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var whole, got any
		if err := json.Unmarshal(text, &whole); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(pruned, &got); err != nil {
			t.Fatalf("%s is %s: %v", text, pruned, err)
		}
		if diff := cmp.Diff(cut(whole, keep), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	})
}

// cut removes members that are not kept from a decoded value. Names with escapes are kept.
func cut(value any, keep []prune.Field) any {
	object, ok := value.(map[string]any)
	if !ok {
		return value
	}
	for name, member := range object {
		at := slices.IndexFunc(keep, func(field prune.Field) bool { return field.Name == name })
		written, _ := json.Marshal(name)
		switch {
		case at < 0 && !strings.Contains(string(written), `\`):
			delete(object, name)
		case at >= 0 && len(keep[at].Only) > 0:
			object[name] = cut(member, keep[at].Only)
		}
	}
	return object
}

func TestCut(t *testing.T) {
	for name, tc := range map[string]struct{ text, rest, object, old string }{
		"both":                    {`{"a":[1],"request":{"uid":"1","object":{"b":"}"},"oldObject":2,"x":3},"c":null}`, `{"a":[1],"request":{"uid":"1","x":3},"c":null}`, `{"b":"}"}`, `2`},
		"one":                     {`{"request":{"object":{}}}`, `{"request":{}}`, `{}`, ``},
		"none":                    {`{"request":{"oldObject":null}}`, `{"request":{"oldObject":null}}`, ``, ``},
		"spaces":                  {" { \"request\" : {\"object\" : [ 1 ] , \"uid\" : 1 } } ", `{"request":{"uid":1}}`, `[ 1 ]`, ``},
		"names of other objects":  {`{"object":1,"other":{"object":2}}`, `{"object":1,"other":{"object":2}}`, ``, ``},
		"a list instead":          {`{"request":[{"object":2}]}`, `{"request":[{"object":2}]}`, ``, ``},
		"a name twice: the last":  {`{"request":{"object":1},"request":{"object":2}}`, `{"request":{},"request":{}}`, `2`, ``},
		"a name that has escapes": {`{"request":{"\u006fbject":1}}`, `{"request":{"\u006fbject":1}}`, ``, ``},
	} {
		t.Run(name, func(t *testing.T) {
			rest, values, err := prune.Cut([]byte(tc.text), "request", "object", "oldObject")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tc.rest, tc.object, tc.old}, []string{string(rest), string(values[0]), string(values[1])}); diff != "" {
				t.Errorf("rest, object and old object (-want +got):\n%s", diff)
			}
		})
	}
	for _, text := range noJSON() {
		if rest, _, err := prune.Cut([]byte(text), "a", "b"); err == nil {
			t.Errorf("%.40s is %s, want an error", text, rest)
		}
	}
	for _, text := range []string{``, `[]`, `1`, `{"request":{"object":}}`, `{"request":{"object":1}`, `{"request":{"object":1,}}`} {
		if rest, _, err := prune.Cut([]byte(text), "request", "object"); err == nil {
			t.Errorf("%s is %s, want an error", text, rest)
		}
	}
}

// FuzzJSON looks for text on which JSON panics, or of which it keeps something else than a decoder.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{`{}`, `{"a":[1,{"b":"\\\""}],"c":null}`, `{"a"`, `{"`, `{"a":"\`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		kept, err := prune.JSON(text, []prune.Field{{Name: "a"}, {Name: "b", Only: []prune.Field{{Name: "a"}}}})
		rest, values, cutErr := prune.Cut(text, "a", "b")
		var whole, got, cutted any
		if json.Unmarshal(text, &whole) != nil {
			return
		}
		object, isObject := whole.(map[string]any)
		if err != nil || isObject && cutErr != nil {
			t.Fatalf("%q: %v, %v", text, err, cutErr)
		}
		if err := json.Unmarshal(kept, &got); err != nil {
			t.Fatalf("%q is %q: %v", text, kept, err)
		}
		if isObject && json.Unmarshal(rest, &cutted) != nil {
			t.Fatalf("%q is %q and %q", text, rest, values)
		}
		if bytes.Contains(text, []byte(`\`)) || len(object) != bytes.Count(text, []byte(`":`)) || !utf8.Valid(text) {
			return // names that are equal once they are decoded
		}
		if diff := cmp.Diff(cut(whole, []prune.Field{{Name: "a"}, {Name: "b", Only: []prune.Field{{Name: "a"}}}}), got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	})
}

// BenchmarkJSON removes all of a pod but its name.
func BenchmarkJSON(b *testing.B) {
	text := []byte(`{"metadata":{"name":"web-0","managedFields":[{"fieldsV1":{` + strings.TrimSuffix(strings.Repeat(`"k:{\"name\":\"WEB_SETTING\"}":{".":{},"f:name":{},"f:value":{}},`, 100), ",") +
		`}}]},"spec":{"containers":[{"env":[` + strings.Repeat(`{"name":"WEB_SETTING","value":"https://backend.payments.svc.cluster.local:8443/api/v1"},`, 100) + `{}]}]}}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := prune.JSON(text, []prune.Field{{Name: "metadata", Only: []prune.Field{{Name: "name"}}}}); err != nil {
			b.Fatal(err)
		}
	}
}
