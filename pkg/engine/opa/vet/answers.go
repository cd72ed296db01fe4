package vet

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/types"

	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

// checkAnswers rejects a compiled module whose entry point can never have a value of the required
// type. Where the type depends on the input, the library checks the value (rule.CodeWrongType).
func checkAnswers(compiler *ast.Compiler, module *ast.Module, entry spec.Entry) error {
	for _, rule := range module.Rules {
		name, ok := rule.Head.Ref()[0].Value.(ast.Var)
		if !ok {
			continue
		}
		found := compiler.TypeEnv.GetByRef(RuleRoot().Append(ast.StringTerm(string(name))))
		switch {
		case entry == spec.EntryAllow && name == "allow" && !mayBe(found, isBoolean):
			return contractError(rule.Location, "allow is of type %v, it must be true or false", found)
		case entry == spec.EntryAllow && name == "reason" && !mayBe(found, isText):
			return contractError(rule.Location, "reason is of type %v, it must be a string", found)
		case entry == spec.EntryDeny && name == "deny" && !mayBe(found, isDenials):
			return contractError(rule.Location, "deny is of type %v, its members must be strings, or objects with message", found)
		}
	}
	return nil
}

// mayBe reports whether a type has values that satisfy accepts.
func mayBe(found types.Type, accepts func(types.Type) bool) bool {
	union, ok := found.(types.Any)
	if !ok {
		return found == nil || accepts(found)
	}
	for _, one := range union {
		if mayBe(one, accepts) {
			return true
		}
	}
	return len(union) == 0 // of any type
}

func isBoolean(found types.Type) bool {
	_, ok := found.(types.Boolean)
	return ok
}

func isText(found types.Type) bool {
	_, ok := found.(types.String)
	return ok
}

func isDenials(found types.Type) bool {
	set, ok := found.(*types.Set)
	return ok && mayBe(set.Of(), func(member types.Type) bool {
		object, ok := member.(*types.Object)
		return isText(member) || ok && object.Select("message") != nil
	})
}
