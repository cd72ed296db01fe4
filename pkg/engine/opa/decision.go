package opa

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/pkg/core/rule"
)

// decision is the document that every rule module returns.
type decision struct {
	// passed and needsSlot are sets of request keys.
	passed, needsSlot ast.Set

	// withheld and would map request keys to codes.
	withheld, would ast.Object

	// calls is a set of request keys; nil unless the rule is of kind webhook.
	calls ast.Set
}

// parts selects the optional parts of a rule's decision.
type parts struct {
	// capacity is set if the rule grants slots, calls if it calls an external service.
	capacity, calls bool
}

// decode reads the decision of a rule, and fails closed: a document of another form is an error,
// and a request that is not in exactly one of passed, takes and withheld is withheld with
// rule.CodeUndefined. Keys that are not in keys are ignored.
func decode(term *ast.Term, keys []key, with parts) (rule.Result, error) {
	document, ok := term.Value.(ast.Object)
	if !ok {
		return rule.Result{}, fmt.Errorf("decoding decision: it is of type %s, not an object", ast.ValueName(term.Value))
	}
	found, err := parseDecision(document, with)
	if err != nil {
		return rule.Result{}, fmt.Errorf("decoding decision: %w", err)
	}
	result := rule.Result{Verdicts: make(map[string]rule.Verdict, len(keys))}
	if with.capacity {
		if result.Capacity, err = parseCapacity(document); err != nil {
			return rule.Result{}, fmt.Errorf("decoding capacity: %w", err)
		}
	}
	for _, key := range keys {
		verdict := found.verdict(key.term)
		if verdict.Outcome == rule.NeedsSlot && result.Capacity == nil {
			// The rule has no slots, so a slot can never be granted.
			verdict = rule.Verdict{Code: rule.CodeUndefined}
		}
		result.Verdicts[key.name] = verdict
	}
	return result, nil
}

func parseDecision(document ast.Object, with parts) (found decision, err error) {
	if found.passed, err = field[ast.Set](document, "passed"); err != nil {
		return decision{}, err
	}
	if found.needsSlot, err = field[ast.Set](document, "needs_slot"); err != nil {
		return decision{}, err
	}
	if found.withheld, err = field[ast.Object](document, "withheld"); err != nil {
		return decision{}, err
	}
	if found.would, err = field[ast.Object](document, "would"); err != nil {
		return decision{}, err
	}
	if !with.calls {
		return found, nil
	}
	if found.calls, err = field[ast.Set](document, "calls"); err != nil {
		return decision{}, err
	}
	return found, nil
}

// verdict returns the verdict of one request, with Call set if it needs a call. A verdict that
// cannot be read needs no call.
func (d decision) verdict(key *ast.Term) rule.Verdict {
	verdict := d.outcome(key)
	verdict.Call = d.calls != nil && verdict.Code != rule.CodeUndefined && d.calls.Contains(key)
	return verdict
}

func (d decision) outcome(key *ast.Term) rule.Verdict {
	undefined := rule.Verdict{Code: rule.CodeUndefined}
	passed, needsSlot, withheld := d.passed.Contains(key), d.needsSlot.Contains(key), d.withheld.Get(key)
	switch {
	case passed && !needsSlot && withheld == nil:
		would := d.would.Get(key)
		if would == nil {
			return rule.Verdict{Outcome: rule.Passed}
		}
		if code, ok := parseCode(would); ok {
			return rule.Verdict{Outcome: rule.Passed, Would: code}
		}
	case needsSlot && !passed && withheld == nil:
		return rule.Verdict{Outcome: rule.NeedsSlot}
	case withheld != nil && !passed && !needsSlot:
		if code, ok := parseCode(withheld); ok {
			return rule.Verdict{Code: code}
		}
	}
	return undefined
}

// parseCode returns a term as a code, and whether it is a string that is not empty.
func parseCode(term *ast.Term) (rule.Code, bool) {
	code, ok := term.Value.(ast.String)
	return rule.Code(code), ok && code != ""
}

func parseCapacity(document ast.Object) (*rule.Capacity, error) {
	numbers, err := field[ast.Object](document, "capacity")
	if err != nil {
		return nil, err
	}
	capacity := &rule.Capacity{}
	for _, number := range []struct {
		name string
		to   *int
	}{
		{"slots", &capacity.Slots},
		{"selected", &capacity.Selected},
		{"desired", &capacity.Desired},
		{"available", &capacity.Available},
		{"max_unavailable", &capacity.MaxUnavailable},
		{"min_available", &capacity.MinAvailable},
	} {
		value, err := field[ast.Number](numbers, number.name)
		if err != nil {
			return nil, err
		}
		whole, ok := value.Int()
		if !ok {
			return nil, fmt.Errorf("%s is %v, not a whole number", number.name, value)
		}
		*number.to = whole
	}
	if capacity.Slots < 0 {
		return nil, fmt.Errorf("slots is %d, below zero", capacity.Slots)
	}
	return capacity, nil
}

// field returns a field of a document, which must be of type T.
func field[T ast.Value](document ast.Object, name string) (T, error) {
	var none T
	term := document.Get(ast.StringTerm(name))
	if term == nil {
		return none, fmt.Errorf("%s is missing", name)
	}
	value, ok := term.Value.(T)
	if !ok {
		return none, fmt.Errorf("%s is of type %s", name, ast.ValueName(term.Value))
	}
	return value, nil
}
