package vet

import (
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/open-policy-agent/opa/v1/ast"
)

// Builtins are builtins of OPA that rules may call, or may not call, for one reason.
type Builtins struct {
	// Names of the builtins. A name that ends with "." stands for all builtins that begin with it.
	Names []string

	// IsAllowed reports whether rules may call them.
	IsAllowed bool

	// Why is what rules need them for, or why they may not call them.
	Why string

	// Instead is what a rule does instead; empty for builtins that are allowed.
	Instead string
}

// AllBuiltins returns all builtins of OPA, first the builtins that rules may call. Rules may call what needs nothing but its arguments and
// gives the same result each time. How long a call takes does not matter: the limits of the worker (pkg/engine/opa/sandbox) end it.
func AllBuiltins() []Builtins { return slices.Concat(allowedBuiltins(), deniedBuiltins()) }

func allowedBuiltins() []Builtins {
	allowed := []Builtins{
		{Why: "operators", Names: []string{
			"assign", "eq", "equal", "neq", "lt", "lte", "gt", "gte",
			"plus", "minus", "mul", "div", "rem", "and", "or", "internal.member_2", "internal.member_3",
		}},
		{Why: "numbers", Names: []string{
			"abs", "ceil", "floor", "round", "numbers.range", "numbers.range_step", "format_int", "to_number",
		}},
		{Why: "collections", Names: []string{
			"count", "max", "min", "sum", "product", "sort", "union", "intersection",
			"array.concat", "array.flatten", "array.reverse", "array.slice",
			"object.filter", "object.get", "object.keys", "object.remove", "object.subset", "object.union", "object.union_n",
			"json.filter", "json.remove",
		}},
		{Why: "strings", Names: []string{
			"concat", "contains", "startswith", "endswith", "lower", "upper", "replace", "split", "sprintf", "indexof", "indexof_n",
			"substring", "trim", "trim_left", "trim_right", "trim_prefix", "trim_suffix", "trim_space",
			"strings.any_prefix_match", "strings.any_suffix_match", "strings.count", "strings.replace_n", "strings.reverse", "strings.split_n",
		}},
		{Why: "patterns", Names: []string{
			"glob.match", "glob.quote_meta", "regex.find_n", "regex.is_valid", "regex.match", "regex.replace", "regex.split",
		}},
		{Why: "values in the strings of labels, annotations and parameters", Names: []string{
			"json.is_valid", "json.marshal", "json.unmarshal", "base64.decode", "base64.encode", "base64.is_valid", "units.parse", "units.parse_bytes",
			"net.cidr_contains", "net.cidr_is_valid", "semver.compare", "semver.is_valid",
		}},
		{Why: "points in time in facts and parameters", Names: []string{
			"time.add_date", "time.clock", "time.date", "time.diff", "time.format",
			"time.parse_duration_ns", "time.parse_ns", "time.parse_rfc3339_ns", "time.weekday",
		}},
		{Why: "types", Names: []string{
			"is_array", "is_boolean", "is_null", "is_number", "is_object", "is_set", "is_string", "type_name",
		}},
		{Why: "for authors: the engine erases `print`, and `opa test` names the cases of a table", Names: []string{
			"print", "internal.print", "internal.test_case",
		}},
	}
	for i := range allowed {
		allowed[i].IsAllowed = true
	}
	return allowed
}

func deniedBuiltins() []Builtins {
	return []Builtins{
		{
			Names: []string{"http.send", "net.lookup_ip_addr", "providers.aws.sign_req", "json.match_schema", "json.verify_schema"},
			Why:   "rules reach no network", Instead: "write a webhook rule, or pass the value as a parameter",
		},
		{Names: []string{"time.now_ns"}, Why: "the engine has to know which rules depend on the time", Instead: "use input.now"},
		{Names: []string{"rand.intn", "uuid."}, Why: "the same facts must give the same verdict", Instead: "compare names or labels of pods"},
		{Names: []string{"opa.runtime"}, Why: "rules do not read the environment of the manager", Instead: "use input.parameters"},
		{
			Names: []string{"crypto.", "io.jwt."},
			Why:   "they work with keys, and all users who may read a rule can read the keys in it", Instead: "write a webhook rule that checks signatures",
		},
		{
			Names: []string{"graph.", "graphql.", "walk"},
			Why:   "the input has a schema and no graphs", Instead: "name the fields",
		},
		{Names: []string{"rego.", "trace"}, Why: "the result depends on the text of the module", Instead: "use constants, and print in tests"},
		{
			Names: []string{"net.cidr_contains_matches", "net.cidr_expand", "net.cidr_intersects", "net.cidr_merge"},
			Why:   "no fact is a list of networks", Instead: "use net.cidr_contains",
		},
		{
			Names: []string{"regex.globs_match", "regex.template_match", "regex.find_all_string_submatch_n"},
			Why:   "no fact is a pattern", Instead: "use regex.match, regex.find_n or glob.match",
		},
		{
			Names: []string{"base64url.", "hex.", "urlquery.", "uri.", "yaml."},
			Why:   "no fact of Kubernetes is encoded in that way", Instead: "use json.unmarshal or base64.decode",
		},
		{Names: []string{"json.marshal_with_options"}, Why: "json.marshal is enough", Instead: "use json.marshal"},
		{Names: []string{"json.patch"}, Why: "it reads operations from data", Instead: "use object.union and json.remove"},
		{Names: []string{"bits."}, Why: "no fact is a set of bits", Instead: "use numbers and sets"},
		{Names: []string{"strings.render_template", "internal.template_string"}, Why: "templates are programs of another language", Instead: "use sprintf"},
		{
			Names: []string{
				"any", "all", "set_diff", "re_match", "cast_array", "cast_boolean", "cast_null", "cast_object", "cast_set", "cast_string", "net.cidr_overlap",
			},
			Why: "OPA 1 removed it", Instead: "use some, every, the operator -, regex.match, a comprehension or net.cidr_contains",
		},
	}
}

// builtinsNamed returns the builtins that a name belongs to.
func builtinsNamed(name string) (Builtins, bool) {
	for _, group := range AllBuiltins() {
		for _, known := range group.Names {
			if known == name || strings.HasSuffix(known, ".") && strings.HasPrefix(name, known) {
				return group, true
			}
		}
	}
	return Builtins{}, false
}

// undefinedBuiltin explains a compile error about a builtin that rules may not call: why, and what to write instead. For a name that OPA
// does not know it returns the most similar builtin that rules may call. It is empty for other errors.
func undefinedBuiltin(err *ast.Error) string {
	name, isCall := strings.CutPrefix(err.Message, "undefined function ")
	if !isCall {
		return ""
	}
	if group, ok := builtinsNamed(name); ok && !group.IsAllowed {
		return "; rules may not call this builtin of OPA: " + group.Why + "; " + group.Instead + " (docs/builtins.md)"
	}
	if similar := similarBuiltin(name); similar != "" {
		return "; the most similar builtin is " + similar
	}
	return ""
}

// maxEdits is the number of letters by which a similar name differs at most.
const maxEdits = 2

// similarBuiltin returns the most similar builtin that rules may call; empty if none is similar.
func similarBuiltin(name string) string {
	similar, fewest := "", maxEdits+1
	if len(name) > maxNameLength {
		return ""
	}
	for _, group := range allowedBuiltins() {
		for _, known := range group.Names {
			if edits := levenshtein.ComputeDistance(strings.ToLower(name), known); edits < min(fewest, len(known)) {
				similar, fewest = known, edits
			}
		}
	}
	return similar
}

// maxNameLength is longer than the name of any builtin.
const maxNameLength = 64
