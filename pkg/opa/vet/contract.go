package vet

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/pkg/rule/spec"
)

// maxModuleRules bounds the number of rules of a user's module.
const maxModuleRules = 200

// codeContract is the code of a Problem that OPA accepts and PodOps rejects.
const codeContract = "podops_contract_error"

// contractError returns a CompileError with one Problem at a place in the module.
func contractError(place *ast.Location, format string, args ...any) error {
	problem := Problem{Code: codeContract, Message: fmt.Sprintf(format, args...)}
	if place != nil {
		problem.Row, problem.Column = place.Row, place.Col
	}
	return &CompileError{Problems: []Problem{problem}}
}

// CheckSize rejects a module that is too large.
func CheckSize(source string) error {
	if len(source) > spec.MaxModuleBytes {
		return contractError(nil, "the module has %d bytes, and at most %d are allowed: move constants to the parameters, or split the rule",
			len(source), spec.MaxModuleBytes)
	}
	return nil
}

// checkContract rejects a parsed module of a user that breaks the rules for modules, and returns
// its entry point.
func checkContract(module *ast.Module) (spec.Entry, error) {
	path := module.Package.Path
	if !path.HasPrefix(RuleRoot()) || len(path) > len(RuleRoot())+1 {
		return "", contractError(module.Package.Location,
			"the package is %s: it must be rule, or one package below it (package rule.change_freeze)", packageName(path))
	}
	if len(module.Rules) > maxModuleRules {
		return "", contractError(module.Rules[maxModuleRules].Location,
			"the module has %d rules, and at most %d are allowed", len(module.Rules), maxModuleRules)
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

// RuleRoot returns the package that a user's module is compiled as.
func RuleRoot() ast.Ref { return ast.Ref{ast.DefaultRootDocument, ast.StringTerm("rule")} }

// packageName returns a path as the keyword "package" takes it.
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

// checkReferences rejects references to data other than the rules of the module itself. Modules
// must not read each other or the library, and a misspelled rule would be undefined.
func checkReferences(module *ast.Module) error {
	own := map[string]bool{}
	for _, rule := range module.Rules {
		if name, ok := rule.Head.Ref()[0].Value.(ast.Var); ok {
			own[string(name)] = true
		}
	}
	var rejected error
	ast.WalkTerms(module, func(term *ast.Term) bool {
		ref, ok := term.Value.(ast.Ref)
		if !ok || rejected != nil || !ref[0].Equal(ast.DefaultRootDocument) {
			return rejected != nil
		}
		path := module.Package.Path
		name, isName := ast.String(""), false
		if ref.HasPrefix(path) && len(ref) > len(path) {
			name, isName = ref[len(path)].Value.(ast.String)
		}
		if !isName || !own[string(name)] {
			rejected = contractError(term.Location, "reference to %v: a module may refer to its own rules, and to no other data", ref)
		}
		return false
	})
	return rejected
}

// entryOf returns the entry point of a module: exactly one of allow and deny.
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
			return "", contractError(reason.Location, `reason must be one string: write "reason := ..."`)
		}
		return spec.EntryAllow, nil
	default:
		return spec.EntryDeny, nil
	}
}

// checkEntryRule rejects rules that have the name of an entry point and another form.
func checkEntryRule(name string, rule *ast.Rule) error {
	switch {
	case name == string(spec.EntryAllow) && !isSingle(rule.Head):
		return contractError(rule.Location, `allow must be true or false: write "allow if ..."`)
	case name == string(spec.EntryDeny) && !isSetOf(rule.Head):
		return contractError(rule.Location, `deny must be a set of messages: write "deny contains message if ..."`)
	}
	return nil
}

// isSingle reports whether a rule has one value.
func isSingle(head *ast.Head) bool {
	return len(head.Ref()) == 1 && head.Key == nil && len(head.Args) == 0
}

// isSetOf reports whether a rule is a set to which each of its bodies adds members.
func isSetOf(head *ast.Head) bool {
	return len(head.Ref()) == 1 && head.Key != nil && head.Value == nil && len(head.Args) == 0
}

// Moved returns the module in package rule, with references to its own package adapted.
func Moved(module *ast.Module) (*ast.Module, error) {
	from, to := module.Package.Path, RuleRoot().Copy()
	if from.Equal(to) {
		return module, nil
	}
	// TransformRefs writes to the terms, and some terms are shared by all modules.
	transformed, err := ast.TransformRefs(module.Copy(), func(ref ast.Ref) (ast.Value, error) {
		if ref.HasPrefix(from) {
			return to.Concat(ref[len(from):]), nil
		}
		return ref, nil
	})
	if err != nil {
		return nil, fmt.Errorf("moving the module to package rule: %w", err)
	}
	return transformed.(*ast.Module), nil
}

// checkCompiled looks for foreign references again, in the compiled module: it has no aliases, so
// no syntax can hide a reference from it.
func checkCompiled(module *ast.Module) error {
	var rejected error
	ast.WalkRefs(module, func(ref ast.Ref) bool {
		if rejected == nil && ref[0].Equal(ast.DefaultRootDocument) && !ref.HasPrefix(RuleRoot()) {
			rejected = contractError(ref[0].Location, "reference to %v: a module may refer to its own rules, and to no other data", ref)
		}
		return rejected != nil
	})
	return rejected
}
