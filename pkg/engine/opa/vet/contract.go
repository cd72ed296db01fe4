package vet

import (
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

// maxModuleRules bounds the number of rules in a user's module.
const maxModuleRules = 200

// codeContract is the code of a Problem that OPA accepts and PodOps rejects.
const codeContract = "podops_contract_error"

// contractError returns a CompileError with one Problem at a place in the module.
func contractError(place *ast.Location, format string, args ...any) error {
	problem := Problem{Code: codeContract, Message: fmt.Sprintf(format, args...)}
	problem.locate(place)
	return &CompileError{Problems: []Problem{problem}}
}

// packages are the imported modules.
type packages []*ast.Module

// contain reports whether a reference is to an imported package, or to a rule of one.
func (p packages) contain(ref ast.Ref) bool { return p.of(ref) != nil }

func (p packages) of(ref ast.Ref) *ast.Module {
	for _, module := range p {
		if ref.HasPrefix(module.Package.Path) {
			return module
		}
	}
	return nil
}

// lack returns the name of the rule that a reference is to, if an imported package has no such rule: it would be undefined.
func (p packages) lack(ref ast.Ref) (name string, lacks bool) {
	module := p.of(ref)
	if module == nil || len(ref) <= len(module.Package.Path) {
		return "", false
	}
	constant, ok := ref[len(module.Package.Path)].Value.(ast.String)
	return string(constant), ok && !ruleNames(module)[string(constant)]
}

func ruleNames(module *ast.Module) map[string]bool {
	names := map[string]bool{}
	for _, rule := range module.Rules {
		if name, ok := rule.Head.Ref()[0].Value.(ast.Var); ok {
			names[string(name)] = true
		}
	}
	return names
}

// CheckSize rejects a module that is too large, alone or with what it imports.
func CheckSize(source string) error {
	module, parts := spec.Split(source)
	if len(module) > spec.MaxModuleBytes {
		return contractError(nil, "the module has %d bytes, and at most %d are allowed: move constants to the parameters, or split the rule",
			len(module), spec.MaxModuleBytes)
	}
	if len(parts) > 0 && len(source) > spec.MaxSourceBytes {
		return contractError(nil, "the module and its imports have %d bytes, and at most %d are allowed", len(source), spec.MaxSourceBytes)
	}
	return nil
}

// checkPackage rejects a module whose package is not that of its file: rule or below it in File, lib.zones in lib/zones.rego.
func checkPackage(file string, module *ast.Module) error {
	path := module.Package.Path
	if file == File {
		if !path.HasPrefix(RuleRoot()) || len(path) > len(RuleRoot())+1 {
			return contractError(module.Package.Location,
				"the package is %s: it must be rule, or one package below it (package rule.change_freeze)", packageName(path))
		}
		return nil
	}
	kind, name, _ := strings.Cut(strings.TrimSuffix(file, ".rego"), "/")
	want := ast.Ref{ast.DefaultRootDocument, ast.StringTerm(kind), ast.StringTerm(name)}
	if !isShared(want) || !path.Equal(want) {
		return contractError(module.Package.Location, "the package is %s: it must be %s, after the name of the PodTransitionPolicy",
			packageName(path), packageName(want))
	}
	return nil
}

// checkForm rejects a parsed module that is too large, or refers to data other than its own rules and the imported packages.
func checkForm(module *ast.Module, imported packages) error {
	if len(module.Rules) > maxModuleRules {
		return contractError(module.Rules[maxModuleRules].Location,
			"the module has %d rules, and at most %d are allowed", len(module.Rules), maxModuleRules)
	}
	for _, one := range module.Imports {
		ref, ok := one.Path.Value.(ast.Ref)
		switch {
		case ok && (importable(ref) || imported.contain(ref)):
		case ok && isShared(ref):
			return contractError(one.Location, "import of %v: %s", one.Path, notImported)
		default:
			return contractError(one.Location, "import of %v: only rego.v1, parts of input, and imports of the PodTransitionPolicy may be imported", one.Path)
		}
	}
	return checkReferences(module, imported)
}

// notImported is the remedy for a reference to a policy that is not imported.
const notImported = "spec.imports of a PodTransitionPolicy names the policies that its module may refer to"

// isShared reports whether a reference is to the module or the data of a PodTransitionPolicy.
func isShared(ref ast.Ref) bool {
	return len(ref) > 2 && ref[0].Equal(ast.DefaultRootDocument) && (ref[1].Equal(ast.StringTerm("lib")) || ref[1].Equal(ast.StringTerm("config")))
}

// sharedName returns the PodTransitionPolicy that a shared reference names; empty for a computed name.
func sharedName(ref ast.Ref) string {
	name, _ := ref[2].Value.(ast.String)
	return string(name)
}

// foreign returns the error of a reference to other data.
func foreign(ref ast.Ref, place *ast.Location) error {
	if isShared(ref) {
		return contractError(place, "reference to %v: %s", ref, notImported)
	}
	return contractError(place, "reference to %v: a module may refer to its own rules and its imports, and to no other data", ref)
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

// checkReferences rejects references to data other than the rules of the module itself and the imported packages. Modules
// must not read the library, and a misspelled rule would be undefined.
func checkReferences(module *ast.Module, imported packages) error {
	own := ruleNames(module)
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
		if (!isName || !own[string(name)]) && (ref.HasPrefix(path) || !imported.contain(ref)) {
			rejected = foreign(ref, term.Location)
		}
		return false
	})
	return rejected
}

// findEntry returns the entry point of a module: exactly one of allow and deny.
func findEntry(module *ast.Module) (spec.Entry, error) {
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
	case name == string(spec.EntryDeny) && !isSetRule(rule.Head):
		return contractError(rule.Location, `deny must be a set of messages: write "deny contains message if ..."`)
	}
	return nil
}

// isSingle reports whether a rule has one value.
func isSingle(head *ast.Head) bool {
	return len(head.Ref()) == 1 && head.Key == nil && len(head.Args) == 0
}

// isSetRule reports whether a rule is a set to which each of its bodies adds members.
func isSetRule(head *ast.Head) bool {
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
// no syntax can hide a reference from it. An imported module does not know the parameters of the rules that use it.
func checkCompiled(module *ast.Module, imported packages) error {
	isPart := !module.Package.Path.HasPrefix(RuleRoot())
	parameters := ast.InputRootRef.Append(ast.StringTerm("parameters"))
	var rejected error
	ast.WalkRefs(module, func(ref ast.Ref) bool {
		switch {
		case rejected != nil:
		case isPart && ref.HasPrefix(parameters):
			rejected = contractError(ref[0].Location, "reference to %v: a library has no parameters: pass them as arguments of its functions", ref)
		case ref[0].Equal(ast.DefaultRootDocument) && !ref.HasPrefix(module.Package.Path) && !imported.contain(ref):
			rejected = foreign(ref, ref[0].Location)
		default:
			if name, lacks := imported.lack(ref); lacks && !ref.HasPrefix(module.Package.Path) {
				rejected = contractError(ref[0].Location, "reference to %v: that package has no rule %s", ref, name)
			}
		}
		return rejected != nil
	})
	return rejected
}
