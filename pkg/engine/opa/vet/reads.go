package vet

import (
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// AnyKey is the key of an InputRead that is no constant string.
const AnyKey = "[_]"

// InputRead is a place at which a module reads a value of the input.
type InputRead struct {
	// Path are the keys below the input, and Places where they are written.
	Path   []string
	Places []Place

	// Provided is the number of the last keys for whose absence object.get has a value.
	Provided int

	// IsTested reports that the module tests whether the value is absent, or that its rule has another value then.
	IsTested bool

	// IsOptional reports that the rule may be meant to have no value without this one: it is provided, negated, or read in a rule with
	// a default.
	IsOptional bool

	// IsIterated reports that the module counts the items, or reads one after the other; what it reads below an item is another
	// InputRead.
	IsIterated bool

	// IsItem reports that the value is in an item of a list or a map that the module iterates.
	IsItem bool
}

// Provides reports whether the module has a value where the key at an index in the path is absent, or tests whether it is.
func (r InputRead) Provides(index int) bool { return r.IsTested || index >= len(r.Path)-r.Provided }

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

	// Tested are values whose absence a helper rule tests, and TestedKeys keys of values whose place in the input is not known.
	Tested     []InputRead
	TestedKeys map[string]bool

	// OrdersTexts reports that the module compares a constant string by order.
	OrdersTexts bool

	// Strings are the constant strings, which are keys where a key is computed, with the first place of each.
	Strings map[string]Place
}

func newReads() *Reads { return &Reads{Strings: map[string]Place{}, TestedKeys: map[string]bool{}} }

// Equality is a value of the input that is compared with a constant string.
type Equality struct {
	Path  []string
	Value string
}

// readReads returns the reads of a module that was parsed.
func readReads(module *ast.Module, found *Reads) {
	names, defaults := namesIn(module), defaultsIn(module)
	tests := map[string]paths{"": {}} // by the name of the rule in which they count, empty for all
	compared := paths{}
	var branches []*ruleReads
	for _, rule := range module.Rules {
		name := ruleName(rule)
		if _, isName := names[ast.Var(name)]; isName { // what is read of it is read elsewhere
			one := newRuleReads(rule, names, found)
			one.visitKeys(rule.Head.Value)
			branches = append(branches, one)
			continue
		}
		if tests[name] == nil {
			tests[name] = paths{}
		}
		for _, branch := range elseBranches(rule) {
			one := newRuleReads(branch, names, found)
			one.collect(otherValue(defaults, rule))
			if body := one.equalities(); len(body) > 0 {
				found.Bodies = append(found.Bodies, body)
			}
			if rule.Head.Key == nil {
				tests[name].add(one.negated)
			}
			if rule.Head.Key == nil && !isEntry(name) {
				found.Tested = append(found.Tested, slices.Concat(one.tested, one.compared)...)
				tests[""].add(one.tested)
				compared.add(one.compared)
			}
			branches = append(branches, one)
		}
	}
	for _, one := range branches {
		found.addRule(one, tests[ruleName(one.rule)], tests[""], compared)
	}
}

// addRule adds what a rule reads, with the tests in rules with its name and in helpers, and the comparisons in helpers.
func (found *Reads) addRule(one *ruleReads, sameName, helpers, compared paths) {
	tested, here := paths{}, paths{}
	tested.add(one.tested)
	here.add(one.compared)
	for _, read := range one.reads {
		isTested := tested.test(read) || sameName.test(read) || helpers.test(read)
		read.IsOptional = read.IsOptional || read.IsTested || read.Provided > 0 || isTested
		read.IsTested = read.IsTested || isTested || here.test(read) || compared.test(read)
		found.Input = append(found.Input, read)
	}
}

// isEntry reports whether the engine reads a rule.
func isEntry(name string) bool { return slices.Contains([]string{"allow", "deny", "reason"}, name) }

// namesIn returns the rules and imports that are names for values of the input.
func namesIn(module *ast.Module) map[ast.Var][]InputRead {
	made := &ruleReads{names: map[ast.Var][]InputRead{}}
	for _, one := range module.Imports {
		if ref, ok := one.Path.Value.(ast.Ref); ok && ref[0].Equal(ast.InputRootDocument) {
			made.names[one.Name()] = made.resolve(ref)
		}
	}
	constants := constantRules(module)
	for range 2 { // since a name may stand for a part that another names
		for _, rule := range module.Rules {
			name := ruleName(rule)
			if constants[name] == nil || isEntry(name) || len(rule.Head.Args) > 0 || len(rule.Head.Ref()) > 1 {
				continue
			}
			if reads := made.inputValues(constants[name]); len(reads) > 0 {
				made.names[ast.Var(name)] = reads
			}
		}
	}
	return made.names
}

// ruleReads are the reads of a rule.
type ruleReads struct {
	found *Reads
	rule  *ast.Rule

	// names are names for values of the input in the module, and locals those in the rule, which may stand for several values in
	// several scopes.
	names, locals map[ast.Var][]InputRead

	// reads are all reads; tested are the references that a body tests alone, negated references that it negates alone, and compared
	// references that it compares with what an absent value may be.
	reads, tested, negated, compared []InputRead
}

// newRuleReads returns the reads in a rule with its names, before any is collected.
func newRuleReads(rule *ast.Rule, names map[ast.Var][]InputRead, found *Reads) *ruleReads {
	made := &ruleReads{found: found, rule: rule, names: names, locals: map[ast.Var][]InputRead{}}
	made.nameValues()
	return made
}

// nameValues finds the local names, twice, since a name may stand for a part that another names.
func (r *ruleReads) nameValues() {
	for range 2 {
		ast.NewGenericVisitor(func(node any) bool {
			switch node := node.(type) {
			case *ast.Expr:
				if name, values := r.named(node); len(values) > 0 {
					r.name(name, values)
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

// name gives values of the input a local name.
func (r *ruleReads) name(name ast.Var, values []InputRead) {
	for _, value := range values {
		if !slices.ContainsFunc(r.locals[name], func(known InputRead) bool { return slices.Equal(known.Path, value.Path) }) {
			r.locals[name] = append(slices.Clip(r.locals[name]), value)
		}
	}
}

// named returns the local name that an expression gives a value of the input.
func (r *ruleReads) named(expr *ast.Expr) (name ast.Var, values []InputRead) {
	if !expr.IsAssignment() && !expr.IsEquality() || expr.Negated {
		return "", nil
	}
	name, isVar := expr.Operand(0).Value.(ast.Var)
	ref, isRef := expr.Operand(1).Value.(ast.Ref)
	if !isVar || !isRef {
		return "", nil
	}
	return name, r.resolve(ref)
}

// nameItem gives the item of a list or an object its name.
func (r *ruleReads) nameItem(item, of *ast.Term) {
	if name, isVar := item.Value.(ast.Var); isVar {
		for _, value := range r.inputValues(of) {
			value.IsItem = true
			r.name(name, []InputRead{value.below(AnyKey, nil)})
		}
	}
}

// inputValues returns the values of the input that a term may be.
func (r *ruleReads) inputValues(term *ast.Term) []InputRead {
	switch value := term.Value.(type) {
	case ast.Ref:
		return r.resolve(value)
	case ast.Var:
		return r.valuesNamed(value)
	}
	return nil
}

func (r *ruleReads) valuesNamed(name ast.Var) []InputRead {
	if values, isLocal := r.locals[name]; isLocal {
		return values
	}
	return r.names[name]
}

// resolve returns the values of the input that a reference may be to.
func (r *ruleReads) resolve(ref ast.Ref) []InputRead {
	if ref[0].Equal(ast.InputRootDocument) {
		return []InputRead{InputRead{}.withKeys(ref[1:])}
	}
	var found []InputRead
	if name, isVar := ref[0].Value.(ast.Var); isVar {
		for _, value := range r.valuesNamed(name) {
			found = append(found, value.withKeys(ref[1:]))
		}
	}
	return found
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

// collect adds what the rule reads. The values that it computes are provided if it has a fallback; booleans and other
// constants are no such values.
func (r *ruleReads) collect(fallback *ast.Term) {
	before := len(r.found.Others)
	r.visit(r.rule)
	r.visitKeys(ast.NewTerm(r.rule.Head.Ref()))
	if fallback == nil {
		return
	}
	_, isBoolean := fallback.Value.(ast.Boolean)
	isValue := !isBoolean && r.rule.Head.Value != nil && !ast.IsConstant(r.rule.Head.Value.Value)
	for i := range r.reads {
		r.reads[i].IsTested, r.reads[i].IsOptional = isValue, true
	}
	for _, other := range r.found.Others[before:] {
		r.testKeyIn(other, isValue)
	}
}

// testKeyIn notes that the last key of a value whose place is not known is tested.
func (r *ruleReads) testKeyIn(other InputRead, isTest bool) {
	if isTest && len(other.Path) > 0 {
		r.found.TestedKeys[other.Path[len(other.Path)-1]] = true
	}
}

// equalities returns the comparisons with constant strings.
func (r *ruleReads) equalities() []Equality {
	var found []Equality
	ast.WalkExprs(r.rule, func(expr *ast.Expr) bool {
		if !expr.IsCall() || expr.Negated || len(expr.Operands()) != 2 || expr.Operator().String() != ast.Equal.Name && !expr.IsEquality() {
			return false
		}
		for i, operand := range expr.Operands() {
			text, isText := expr.Operand(1 - i).Value.(ast.String)
			for _, read := range r.inputValues(operand) {
				if isText {
					found = append(found, Equality{Path: read.Path, Value: string(text)})
				}
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
	if name, values := r.named(expr); len(values) > 0 {
		if name.IsWildcard() {
			r.tested, r.reads = append(r.tested, values...), append(r.reads, values...)
		}
		r.visitKeys(expr.Operand(1))
		return true
	}
	term, isTerm := expr.Terms.(*ast.Term)
	if isTerm {
		values := r.inputValues(term)
		r.tested = append(r.tested, values...)
		if expr.Negated {
			r.negated = append(r.negated, values...)
		}
		if ref, isRef := term.Value.(ast.Ref); isRef && len(values) == 0 && isVar(ref[0]) {
			r.testKeyIn(InputRead{}.withKeys(ref[1:]), !expr.Negated && len(r.rule.Head.Args) > 0)
		}
	}
	if !expr.IsCall() && (!isTerm || !expr.Negated) {
		return false
	}
	r.visitOperands(expr)
	for _, with := range expr.With {
		r.visit(with.Value)
	}
	return true
}

// visitOperands adds what a call reads, or an expression that is negated. The arguments are evaluated before a call is negated, but for
// comparisons.
func (r *ruleReads) visitOperands(expr *ast.Expr) {
	before := len(r.reads)
	if expr.IsCall() {
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

// visitComparison notes an order of texts, and comparisons that test a value: with 0, which a time is that is not known, with the empty
// text, or with null.
func (r *ruleReads) visitComparison(name string, operands []*ast.Term) {
	orders := []string{ast.GreaterThan.Name, ast.GreaterThanEq.Name, ast.LessThan.Name, ast.LessThanEq.Name}
	isOrder := slices.Contains(orders, name)
	if len(operands) != 2 || !isOrder && name != ast.Equal.Name && name != ast.NotEqual.Name {
		return
	}
	r.found.OrdersTexts = r.found.OrdersTexts || isOrder && mayBeText(operands[0]) && mayBeText(operands[1])
	for i, operand := range operands {
		switch other := operands[1-i].Value; {
		case other.Compare(ast.Null{}) == 0:
			r.tested = append(r.tested, r.measured(operand)...)
		case other.Compare(ast.Number("0")) == 0, other.Compare(ast.String("")) == 0:
			r.compared = append(r.compared, r.measured(operand)...)
		}
	}
}

// measured returns the values of the input that a term has, counts, or reads by object.get.
func (r *ruleReads) measured(term *ast.Term) []InputRead {
	call, ok := term.Value.(ast.Call)
	switch {
	case ok && call[0].String() == ast.Count.Name && len(call) > 1:
		return r.inputValues(call[1])
	case ok && call[0].String() == ast.ObjectGet.Name && len(call) > 2:
		var found []InputRead
		for _, read := range r.inputValues(call[1]) {
			found = append(found, providedRead(read, call[2]))
		}
		return found
	default:
		return r.inputValues(term)
	}
}

// mayBeText reports whether a term may be a string.
func mayBeText(term *ast.Term) bool {
	switch term.Value.(type) {
	case ast.String, ast.Var, ast.Ref:
		return true
	}
	return false
}

// visitItems adds the read of each item in a term.
func (r *ruleReads) visitItems(of *ast.Term) {
	values := r.inputValues(of)
	if len(values) == 0 {
		r.visit(of)
		return
	}
	for _, read := range values {
		read = read.below(AnyKey, of.Location)
		read.IsIterated = true
		r.reads = append(r.reads, read)
	}
	r.visitKeys(of)
}

// visitCall adds the reads of a call.
func (r *ruleReads) visitCall(name string, operands []*ast.Term) {
	r.visitComparison(name, operands)
	if name == ast.ObjectGet.Name && len(operands) >= 3 {
		if values := r.inputValues(operands[0]); len(values) > 0 {
			for _, read := range values {
				r.reads = append(r.reads, providedRead(read, operands[1]))
			}
			operands = operands[1:]
		}
	}
	if name == ast.Member.Name {
		r.testKey(operands[0], operands[1])
	}
	if name == ast.ObjectUnion.Name && len(operands) > 1 {
		r.testDefaults(operands[0], operands[1])
	}
	if strings.HasPrefix(name, "is_") && len(operands) == 1 {
		r.tested = append(r.tested, r.inputValues(operands[0])...)
	}
	for _, operand := range operands {
		values := r.inputValues(operand)
		if len(values) == 0 || name != ast.Count.Name {
			r.visit(operand)
			continue
		}
		for _, read := range values {
			read.IsIterated = true // its items are counted
			r.reads = append(r.reads, read)
		}
		r.visitKeys(operand)
	}
}

// testKey notes a test whether an object has a key, by object.keys.
func (r *ruleReads) testKey(key, keys *ast.Term) {
	call, ok := keys.Value.(ast.Call)
	if !ok || call[0].String() != ast.ObjectKeys.Name {
		return
	}
	for _, read := range r.inputValues(call[1]) {
		r.tested = append(r.tested, read.withKeys([]*ast.Term{key}))
	}
}

// testDefaults notes the keys in an object with which an input value is completed.
func (r *ruleReads) testDefaults(defaults, object *ast.Term) {
	if known, ok := defaults.Value.(ast.Object); ok {
		for _, read := range r.inputValues(object) {
			known.Foreach(func(key, _ *ast.Term) { r.tested = append(r.tested, read.withKeys([]*ast.Term{key})) })
		}
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
	object.Provided = len(keys)
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
		r.reads = append(r.reads, r.valuesNamed(value)...)
	case ast.Ref:
		values := r.resolve(value)
		r.reads = append(r.reads, values...)
		if len(values) == 0 && !value[0].Equal(ast.DefaultRootDocument) {
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
