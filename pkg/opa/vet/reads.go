package vet

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// AnyKey is the key of an InputRead that is no constant string.
const AnyKey = "[_]"

// InputRead is a place at which a module reads a value of the input.
type InputRead struct {
	// Path are the keys below the input, and Places where they are written.
	Path   []string
	Places []Place

	// IsProvided reports that the module has a value for the absence of the last key here, or tests whether it is absent.
	IsProvided bool

	// IsOptional reports that the rule has a value without this one: it is read by object.get, negated, or in a rule with a default.
	IsOptional bool

	// IsIterated reports that the module counts the items, or reads one after the other; what it reads below an item is another
	// InputRead.
	IsIterated bool
}

// Place is a place in a module, or in the file of a part that it imports.
type Place struct {
	File        string
	Row, Column int
}

// Reads are the reads of the input in a module and what it imports.
type Reads struct {
	Input []InputRead

	// Others are reads whose place in the input is not known, such as those below function arguments.
	Others []InputRead

	// Bodies are the comparisons with constant strings, by rule: its conditions may hold only with all of them.
	Bodies [][]Equality

	// OrdersTexts reports that the module compares a constant string by order.
	OrdersTexts bool

	// Strings are the constant strings, which are keys where a key is computed, with the first place of each.
	Strings map[string]Place
}

// Equality is a value of the input that is compared with a constant string.
type Equality struct {
	Path  []string
	Value string
}

// readReads returns the reads of a module that was parsed.
func readReads(module *ast.Module, found *Reads) {
	negated := map[string][]InputRead{} // by the name of the rule
	defaults := defaultsOf(module)
	var rules []*ruleReads
	for _, rule := range module.Rules {
		one := newRuleReads(module, rule, found)
		one.collect(defaults[ruleName(rule)])
		if body := one.equalities(); len(body) > 0 {
			found.Bodies = append(found.Bodies, body)
		}
		if rule.Head.Key == nil {
			negated[ruleName(rule)] = append(negated[ruleName(rule)], one.negated...)
		}
		rules = append(rules, one)
	}
	for _, one := range rules {
		tested := slices.Concat(one.tested, negated[ruleName(one.rule)])
		for _, read := range one.reads {
			read.IsOptional = read.IsOptional || defaults[ruleName(one.rule)]
			read.IsProvided = read.IsProvided || slices.ContainsFunc(tested, func(other InputRead) bool { return slices.Equal(other.Path, read.Path) })
			found.Input = append(found.Input, read)
		}
	}
}

// ruleReads are the reads of a rule.
type ruleReads struct {
	found *Reads
	rule  *ast.Rule

	// names are local names for input values.
	names map[ast.Var]InputRead

	// reads are all reads; tested are the references that a body tests alone, and negated references that it negates alone.
	reads, tested, negated []InputRead
}

// newRuleReads returns the reads in a rule with its local names, before any is collected.
func newRuleReads(module *ast.Module, rule *ast.Rule, found *Reads) *ruleReads {
	made := &ruleReads{found: found, rule: rule, names: map[ast.Var]InputRead{}}
	for _, one := range module.Imports {
		if ref, ok := one.Path.Value.(ast.Ref); ok && ref[0].Equal(ast.InputRootDocument) {
			made.names[one.Name()], _ = made.resolve(ref)
		}
	}
	made.nameValues()
	return made
}

// nameValues finds the local names, twice, since a name may stand for a part that another names.
func (r *ruleReads) nameValues() {
	for range 2 {
		ast.NewGenericVisitor(func(node any) bool {
			switch node := node.(type) {
			case *ast.Expr:
				if name, value, ok := r.named(node); ok {
					r.names[name] = value
				}
			case *ast.SomeDecl:
				if call, ok := node.Symbols[0].Value.(ast.Call); ok {
					r.nameItem(call[len(call)-2], call[len(call)-1])
				}
			case *ast.Every:
				r.nameItem(node.Value, node.Domain)
			}
			return false
		}).Walk(r.rule)
	}
}

// named returns the local name that an expression gives a value of the input.
func (r *ruleReads) named(expr *ast.Expr) (name ast.Var, value InputRead, ok bool) {
	if !expr.IsAssignment() && !expr.IsEquality() || expr.Negated {
		return "", InputRead{}, false
	}
	name, isVar := expr.Operand(0).Value.(ast.Var)
	ref, isRef := expr.Operand(1).Value.(ast.Ref)
	if !isVar || !isRef {
		return "", InputRead{}, false
	}
	value, ok = r.resolve(ref)
	return name, value, ok
}

// nameItem gives the item of a list or an object its name.
func (r *ruleReads) nameItem(item, of *ast.Term) {
	name, isVar := item.Value.(ast.Var)
	if value, ok := r.inputValue(of); isVar && ok {
		r.names[name] = value.below(AnyKey, nil)
	}
}

// inputValue returns the value of the input that a term is.
func (r *ruleReads) inputValue(term *ast.Term) (InputRead, bool) {
	switch value := term.Value.(type) {
	case ast.Ref:
		return r.resolve(value)
	case ast.Var:
		read, ok := r.names[value]
		return read, ok
	}
	return InputRead{}, false
}

// resolve returns the value of the input that a reference is to.
func (r *ruleReads) resolve(ref ast.Ref) (InputRead, bool) {
	read, ok := InputRead{}, ref[0].Equal(ast.InputRootDocument)
	if name, isVar := ref[0].Value.(ast.Var); isVar && !ok {
		read, ok = r.names[name]
	}
	return read.withKeys(ref[1:]), ok
}

// withKeys returns the read of a value below.
func (r InputRead) withKeys(keys []*ast.Term) InputRead {
	for _, key := range keys {
		name := AnyKey
		if text, ok := key.Value.(ast.String); ok {
			name = string(text)
		}
		r = r.below(name, key.Location)
	}
	return r
}

func (r InputRead) below(key string, at *ast.Location) InputRead {
	place := Place{}
	if at != nil {
		place = Place{File: at.File, Row: at.Row, Column: at.Col}
	}
	if place.File == File {
		place.File = ""
	}
	r.Path, r.Places = append(slices.Clone(r.Path), key), append(slices.Clone(r.Places), place)
	return r
}

// collect adds what the rule reads. Where it has a default, its value is provided.
func (r *ruleReads) collect(hasDefault bool) {
	if value := r.rule.Head.Value; hasDefault && value != nil {
		if read, ok := r.inputValue(value); ok {
			r.tested = append(r.tested, read)
		}
	}
	r.visit(r.rule)
}

// equalities returns the comparisons with constant strings.
func (r *ruleReads) equalities() []Equality {
	var found []Equality
	ast.WalkExprs(r.rule, func(expr *ast.Expr) bool {
		if !expr.IsCall() || expr.Negated || len(expr.Operands()) != 2 || expr.Operator().String() != ast.Equal.Name && !expr.IsEquality() {
			return false
		}
		for i, operand := range expr.Operands() {
			read, isRead := r.inputValue(operand)
			if text, isText := expr.Operand(1 - i).Value.(ast.String); isRead && isText {
				found = append(found, Equality{Path: read.Path, Value: string(text)})
			}
		}
		return false
	})
	return found
}

// visit adds what a rule part reads.
func (r *ruleReads) visit(part any) {
	ast.NewGenericVisitor(func(node any) bool {
		switch node := node.(type) {
		case *ast.Expr:
			return r.visitExpr(node)
		case *ast.SomeDecl:
			if call, ok := node.Symbols[0].Value.(ast.Call); ok {
				r.visitItems(call[len(call)-1])
			}
			return true
		case *ast.Every:
			r.visitItems(node.Domain)
			r.visit(node.Body)
			return true
		case ast.Call:
			r.visitCall(node[0].String(), node[1:])
			return true
		case *ast.Term:
			return r.visitTerm(node)
		}
		return false
	}).Walk(part)
}

// visitExpr adds the reads of an expression, and reports whether that were all.
func (r *ruleReads) visitExpr(expr *ast.Expr) bool {
	if name, read, ok := r.named(expr); ok {
		if name.IsWildcard() {
			r.tested = append(r.tested, read)
		}
		r.visitKeys(expr.Operand(1))
		return true
	}
	if term, ok := expr.Terms.(*ast.Term); ok {
		if read, ok := r.inputValue(term); ok {
			r.tested = append(r.tested, read)
			if expr.Negated {
				r.negated = append(r.negated, read)
			}
		}
	}
	if _, isTerm := expr.Terms.(*ast.Term); !expr.IsCall() && (!isTerm || !expr.Negated) {
		return false
	}
	r.visitOperands(expr)
	for _, with := range expr.With {
		r.visit(with.Value)
	}
	return true
}

// visitOperands adds the reads of a call, or of an expression that is negated. The arguments of a call are evaluated before it is
// negated, other than those of a comparison.
func (r *ruleReads) visitOperands(expr *ast.Expr) {
	before := len(r.reads)
	if expr.IsCall() {
		r.visitComparison(expr)
		r.visitCall(expr.Operator().String(), expr.Operands())
	} else {
		r.visit(expr.Terms)
	}
	if expr.Negated && (!expr.IsCall() || expr.IsEquality() || expr.Operator().Equal(ast.Equal.Ref())) {
		for i := range r.reads[before:] {
			r.reads[before+i].IsOptional = true
		}
	}
}

// visitComparison notes an order of texts, and a comparison with 0, which a time is that is not known.
func (r *ruleReads) visitComparison(expr *ast.Expr) {
	orders := []string{ast.GreaterThan.Name, ast.GreaterThanEq.Name, ast.LessThan.Name, ast.LessThanEq.Name}
	name := expr.Operator().String()
	isOrder := slices.Contains(orders, name)
	if len(expr.Operands()) != 2 || !isOrder && name != ast.Equal.Name && name != ast.NotEqual.Name {
		return
	}
	for i, operand := range expr.Operands() {
		other := expr.Operand(1 - i)
		if read, ok := r.inputValue(operand); ok && other.Value.Compare(ast.Number("0")) == 0 {
			r.tested = append(r.tested, read)
		}
		_, isText := other.Value.(ast.String)
		r.found.OrdersTexts = r.found.OrdersTexts || isOrder && isText
	}
}

// visitItems adds the read of each item in a term.
func (r *ruleReads) visitItems(of *ast.Term) {
	read, ok := r.inputValue(of)
	if !ok {
		r.visit(of)
		return
	}
	read = read.below(AnyKey, of.Location)
	read.IsIterated = true
	r.reads = append(r.reads, read)
	r.visitKeys(of)
}

// visitCall adds the reads of a call.
func (r *ruleReads) visitCall(name string, operands []*ast.Term) {
	if name == "object.get" && len(operands) >= 3 {
		if read, ok := r.inputValue(operands[0]); ok {
			r.reads = append(r.reads, providedRead(read, operands[1]))
			operands = operands[1:]
		}
	}
	if name == ast.Member.Name {
		r.testKey(operands[0], operands[1])
	}
	for _, operand := range operands {
		if read, ok := r.inputValue(operand); ok && name == "count" { // of the items, and not what they are
			read.IsIterated = true
			r.reads = append(r.reads, read)
			r.visitKeys(operand)
		} else {
			r.visit(operand)
		}
	}
}

// testKey notes a test whether an object has a key, by object.keys.
func (r *ruleReads) testKey(key, keys *ast.Term) {
	call, ok := keys.Value.(ast.Call)
	if !ok || call[0].String() != "object.keys" {
		return
	}
	if read, ok := r.inputValue(call[1]); ok {
		r.tested = append(r.tested, read.withKeys([]*ast.Term{key}))
	}
}

// providedRead returns the read of object.get.
func providedRead(object InputRead, key *ast.Term) InputRead {
	keys := []*ast.Term{key}
	if path, isPath := key.Value.(*ast.Array); isPath {
		keys = nil
		path.Foreach(func(key *ast.Term) { keys = append(keys, key) })
	}
	object = object.withKeys(keys)
	object.IsProvided, object.IsOptional = true, true
	return object
}

// visitTerm adds the reads of a term, and reports whether that were all.
func (r *ruleReads) visitTerm(term *ast.Term) bool {
	switch value := term.Value.(type) {
	case ast.String:
		if _, known := r.found.Strings[string(value)]; !known {
			r.found.Strings[string(value)] = InputRead{}.below("", term.Location).Places[0]
		}
	case ast.Var:
		if read, ok := r.names[value]; ok {
			r.reads = append(r.reads, read)
		}
	case ast.Ref:
		if read, ok := r.resolve(value); ok {
			r.reads = append(r.reads, read)
		} else if !value[0].Equal(ast.DefaultRootDocument) {
			r.found.Others = append(r.found.Others, InputRead{}.withKeys(value[1:]))
		}
		r.visitKeys(term)
		return true
	}
	return false
}

// visitKeys adds what computed keys in a reference read, and the call at its head.
func (r *ruleReads) visitKeys(term *ast.Term) {
	ref, ok := term.Value.(ast.Ref)
	if !ok {
		return
	}
	for i, key := range ref {
		if _, isConstant := key.Value.(ast.String); i > 0 && !isConstant || i == 0 && !isVar(key) {
			r.visit(key)
		}
	}
}

func isVar(term *ast.Term) bool {
	_, ok := term.Value.(ast.Var)
	return ok
}
