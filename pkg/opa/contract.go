package opa

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/pkg/rule/spec"
)

// Bounds of a user's module.
const (
	// MaxModuleBytes bounds its source.
	MaxModuleBytes = 16384

	// MaxModuleRules bounds the number of its rules.
	MaxModuleRules = 200
)

// codeContract is the code of a Problem that OPA does not mind and PodOps does.
const codeContract = "podops_contract_error"

// contractError is one Problem with a place in the module.
func contractError(place *ast.Location, format string, args ...any) error {
	problem := Problem{Code: codeContract, Message: fmt.Sprintf(format, args...)}
	if place != nil {
		problem.Row, problem.Column = place.Row, place.Col
	}
	return &CompileError{Problems: []Problem{problem}}
}

func checkSize(source string) error {
	if len(source) > MaxModuleBytes {
		return contractError(nil, "the module has %d bytes, and at most %d are allowed: move constants to the parameters, or split the rule",
			len(source), MaxModuleBytes)
	}
	return checkDepth(source)
}

// checkContract says what the parsed module of a user does that it may not do, and which entry point
// it has.
func checkContract(module *ast.Module) (spec.Entry, error) {
	path := module.Package.Path
	if !path.HasPrefix(ruleRoot()) || len(path) > len(ruleRoot())+1 {
		return "", contractError(module.Package.Location,
			"the package is %s: it must be rule, or one package below it (package rule.change_freeze)", packageName(path))
	}
	if len(module.Rules) > MaxModuleRules {
		return "", contractError(module.Rules[MaxModuleRules].Location,
			"the module has %d rules, and at most %d are allowed", len(module.Rules), MaxModuleRules)
	}
	for _, imported := range module.Imports {
		if ref, ok := imported.Path.Value.(ast.Ref); !ok || !importable(ref) {
			return "", contractError(imported.Location, "import of %v: only rego.v1 and parts of input may be imported", imported.Path)
		}
	}
	if err := checkReferences(module); err != nil {
		return "", err
	}
	return entryOf(module)
}

// ruleRoot is the package that a user's module is compiled as.
func ruleRoot() ast.Ref { return ast.Ref{ast.DefaultRootDocument, ast.StringTerm("rule")} }

// packageName is a path as "package" takes it.
func packageName(path ast.Ref) string {
	name := path.String()
	if len(path) > 1 {
		name = name[len("data."):]
	}
	return name
}

func importable(ref ast.Ref) bool {
	head := ref[0].Value
	return head.Compare(ast.InputRootDocument.Value) == 0 || ref.Equal(ast.RegoV1CompatibleRef)
}

// checkReferences refuses references to other data than the rules of the module itself. Other
// modules, ours among them, are nobody's business, and a misspelled rule would be undefined.
func checkReferences(module *ast.Module) error {
	own := map[string]bool{}
	for _, rule := range module.Rules {
		if name, ok := rule.Head.Ref()[0].Value.(ast.Var); ok {
			own[string(name)] = true
		}
	}
	var refused error
	ast.WalkTerms(module, func(term *ast.Term) bool {
		ref, ok := term.Value.(ast.Ref)
		if !ok || refused != nil || !ref[0].Equal(ast.DefaultRootDocument) {
			return refused != nil
		}
		path := module.Package.Path
		name, isName := ast.String(""), false
		if ref.HasPrefix(path) && len(ref) > len(path) {
			name, isName = ref[len(path)].Value.(ast.String)
		}
		if !isName || !own[string(name)] {
			refused = contractError(term.Location, "reference to %v: a module may refer to its own rules, and to no other data", ref)
		}
		return false
	})
	return refused
}

// entryOf the module: exactly one of allow and deny.
func entryOf(module *ast.Module) (spec.Entry, error) {
	found := map[string]*ast.Rule{}
	for _, rule := range module.Rules {
		name := rule.Head.Ref()[0].Value.String()
		if _, seen := found[name]; !seen {
			found[name] = rule
		}
		if err := checkEntryRule(name, rule); err != nil {
			return "", err
		}
	}
	allow, deny := found[string(spec.EntryAllow)], found[string(spec.EntryDeny)]
	switch {
	case allow == nil && deny == nil:
		return "", contractError(module.Package.Location, `the module has no entry point: write "allow if ...", or "deny contains message if ..."`)
	case allow != nil && deny != nil:
		return "", contractError(deny.Location, "the module has both allow and deny: keep one of them")
	case allow != nil:
		if reason := found["reason"]; reason != nil && !isSingle(reason.Head) {
			return "", contractError(reason.Location, `reason must be one text: write "reason := ..."`)
		}
		return spec.EntryAllow, nil
	default:
		return spec.EntryDeny, nil
	}
}

// checkEntryRule refuses rules that bear the name of an entry point and have another form.
func checkEntryRule(name string, rule *ast.Rule) error {
	switch {
	case name == string(spec.EntryAllow) && !isSingle(rule.Head):
		return contractError(rule.Location, `allow must be true or false: write "allow if ..."`)
	case name == string(spec.EntryDeny) && !isSetOf(rule.Head):
		return contractError(rule.Location, `deny must be a set of messages: write "deny contains message if ..."`)
	}
	return nil
}

// isSingle: the rule has one value.
func isSingle(head *ast.Head) bool {
	return len(head.Ref()) == 1 && head.Key == nil && len(head.Args) == 0
}

// isSetOf: the rule is a set that each of its bodies adds to.
func isSetOf(head *ast.Head) bool {
	return len(head.Ref()) == 1 && head.Key != nil && head.Value == nil && len(head.Args) == 0
}

// moved is the module in package rule. References to its own package follow.
func moved(module *ast.Module) (*ast.Module, error) {
	from, to := module.Package.Path, ruleRoot().Copy()
	if from.Equal(to) {
		return module, nil
	}
	// Copies, since a transformation writes to the terms, and some are those of all modules.
	moved, err := ast.TransformRefs(module.Copy(), func(ref ast.Ref) (ast.Value, error) {
		if ref.HasPrefix(from) {
			return to.Concat(ref[len(from):]), nil
		}
		return ref, nil
	})
	if err != nil {
		return nil, fmt.Errorf("moving the module to package rule: %w", err)
	}
	return moved.(*ast.Module), nil
}

// checkCompiled looks for foreign references once more, in what the compiler made of the module:
// whatever syntax hid one from checkReferences, no alias is left.
func checkCompiled(module *ast.Module) error {
	var refused error
	ast.WalkRefs(module, func(ref ast.Ref) bool {
		if refused == nil && ref[0].Equal(ast.DefaultRootDocument) && !ref.HasPrefix(ruleRoot()) {
			refused = contractError(ref[0].Location, "reference to %v: a module may refer to its own rules, and to no other data", ref)
		}
		return refused != nil
	})
	return refused
}
