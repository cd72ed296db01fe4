package absence

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/engine/opa/vet"
)

// Bounds of a search: the module is evaluated for maxInputs inputs, and for maxWithheld of those in which the pod
// waits once more without each of at most maxFacts facts.
const (
	maxInputs   = 400
	maxWithheld = 40
	maxFacts    = 48
	maxValues   = 16

	// maxEvaluations bounds a search.
	maxEvaluations = 20000
)

// Timeout is the deadline that a command gives a search. The search has none of its own: its result must not depend on
// how busy a machine is, unless an evaluation is slow.
const Timeout = time.Minute

// errCut ends a search that needs more evaluations.
var errCut = errors.New("the search needs too many evaluations")

// Values that no module names. No other fact has the value another.
const (
	unknown = "some-other-value"
	another = "another-value"
)

// Finding is an optional fact without which, or with an empty or malformed value of which, a pod passes that waits with an unknown
// value of it.
type Finding struct {
	// Fact is its path in the input, such as input.pod.labels["tier"].
	Fact string

	// Form is how the pod lacks it.
	Form Form

	// Place is the first place of its key in the module; zero without one.
	Place vet.Place

	// Permitted is a value with which the pod passes.
	Permitted string

	// With are the other facts that the finding needs, such as operation.type "restart"; usually none.
	With []string

	// Input is the index in the inputs that FindIn was given: the pod waits there.
	Input int
}

// String returns the finding as one sentence, without its place.
func (f Finding) String() string {
	with := ""
	if len(f.With) > 0 {
		with = ", given " + strings.Join(f.With, ", ")
	}
	other := "an unknown value"
	if f.IsParameter() {
		other = "another value"
	}
	if f.Form == Zero {
		other = "a time just now"
	}
	return fmt.Sprintf("a pod passes %s %s, as with the value %s; with %s it waits%s", f.Form, f.Fact, shown(f.Permitted), other, with)
}

// shown returns a value as it is written in a message: JSON as it is, and other text with quotes.
func shown(value string) string {
	if strings.HasPrefix(value, "[") || strings.HasPrefix(value, "{") {
		return cut(value)
	}
	return strconv.Quote(cut(value))
}

// maxShown bounds a value in a message, in bytes.
const maxShown = 120

// cut returns a value as short as messages have it.
func cut(value string) string {
	if len(value) > maxShown {
		return strings.ToValidUTF8(value[:maxShown], "") + "..."
	}
	return value
}

// The IDs of findings.
const (
	FactID      = "absent-fact-permits"
	TimeID      = "absent-time-permits"
	ParameterID = "absent-parameter-permits"
)

// ID returns the finding ID, by the kind of its fact.
func (f Finding) ID() string {
	switch {
	case f.IsParameter():
		return ParameterID
	case f.Form == Zero:
		return TimeID
	default:
		return FactID
	}
}

// Fix returns what an author does about findings with an ID.
func Fix(id string) string {
	fix := map[string]string{
		FactID:      "Negate a rule of your own (docs/policies.md#common-mistakes)",
		TimeID:      "Test input.pod.available, too, or input.pod.ready for ready_since",
		ParameterID: "Require the parameter, or give it a default in spec.parameters",
	}
	return fix[id] + ", or state that it is meant: # podops: absent=permits"
}

// IsParameter reports whether the fact is a parameter that rules need not set.
func (f Finding) IsParameter() bool { return strings.HasPrefix(f.Fact, "input.parameters") }

// Found is the result of a search.
type Found struct {
	// Findings are sorted by fact.
	Findings []Finding

	// IsCut reports that not all facts were removed: there are too many, or the deadline of the context was exceeded.
	IsCut bool
}

// Find returns the findings of a user's module; none for a module with the comment
// vet.AbsentPermits. The strings of its parameters are keys and values, too. The same module has the same findings.
// The error is that of opa.Engine.Inspect for a module that is wrong.
func Find(ctx context.Context, engine *opa.Engine, custom spec.Custom) (Found, error) {
	return find(ctx, engine, custom, nil, (*search).withDrawn)
}

// find makes a search of a module in its bounds. documents are the inputs that are given.
func find(
	ctx context.Context, engine *opa.Engine, custom spec.Custom, documents []map[string]any, search func(*search, context.Context) error,
) (Found, error) {
	s, err := newSearch(ctx, engine, custom, documents)
	if err != nil || s == nil {
		return Found{}, err
	}
	if err = search(s, ctx); errors.Is(err, errCut) || err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.isCut, err = true, nil
	}
	findings := slices.SortedFunc(maps.Values(s.found), func(a, b Finding) int { return strings.Compare(a.Fact, b.Fact) })
	return Found{Findings: findings, IsCut: s.isCut}, err
}

// withDrawn searches in inputs that it makes.
func (s *search) withDrawn(ctx context.Context) error {
	withheld := 0
	for i := 0; i < maxInputs && withheld < maxWithheld && len(s.found) < len(s.facts); i++ {
		drawn := s.draw()
		permits, err := s.verdict(ctx, drawn)
		switch {
		case errors.Is(err, errCut) || ctx.Err() != nil:
			return cmp.Or(ctx.Err(), err)
		case permits || err != nil: // a failing builtin decides nothing
			continue
		}
		withheld++
		if err := s.try(ctx, drawn); err != nil {
			return err
		}
	}
	return nil
}

// newSearch returns a search in a module; nil for a module with the comment vet.AbsentPermits.
func newSearch(ctx context.Context, engine *opa.Engine, custom spec.Custom, documents []map[string]any) (*search, error) {
	inspected, err := engine.Inspect(ctx, opa.Source{Module: custom.Source, ParametersSchema: custom.ParametersSchema})
	if err != nil {
		return nil, err
	}
	constants, err := vet.ReadConstants(custom.Source)
	if err != nil || constants.AbsentPermits {
		return nil, err
	}
	custom.Entry = inspected.Entry
	given, err := stringsBelow(custom.Parameters)
	if err != nil {
		return nil, err
	}
	parameters, shapes, err := schemaParameters(custom.ParametersSchema)
	if err != nil {
		return nil, err
	}
	shapes[ruleConditions()] = &shape{Type: "array", Items: &shape{Type: "string"}}
	read := newReads(constants.Reads, parameters, distinct(given, inputKeys(documents)))
	named := distinct(constants.Strings, given)
	return &search{
		engine: engine, module: spec.Module{Kind: rule.KindRego, Stage: appsv1alpha1.StagePreCheck, Enforcement: appsv1alpha1.EnforcementEnforce, Custom: &custom},
		facts: read.facts[:min(len(read.facts), maxFacts)], isCut: len(read.facts) > maxFacts, reads: read,
		shapes: shapes, values: newValues(constants, custom.Source, named),
		random: rand.New(rand.NewPCG(1, 2)), found: map[fact]Finding{}, comparesWithEmpty: slices.Contains(named, ""),
		cordons: strings.Contains(custom.Source, "unschedulable"), readsStage: strings.Contains(custom.Source, "stage"),
	}, nil
}

// search is a search in one module.
type search struct {
	engine *opa.Engine
	module spec.Module
	facts  []fact
	reads  reads
	values values
	random *rand.Rand
	found  map[fact]Finding

	// isCut is true if the module reads more facts, and evaluations is the number of evaluations.
	isCut       bool
	evaluations int

	// cordons is true for a module that reads input.node.unschedulable, and readsStage for one that reads input.stage.
	cordons, readsStage bool

	// shapes are the schemas of the parameters.
	shapes map[fact]*shape

	// comparesWithEmpty is true for a module that names the empty text.
	comparesWithEmpty bool

	// permitting are the values of facts in given inputs in which the pod passes.
	permitting map[fact][]string
}

// try removes each fact from an input in which the pod waits, and makes it empty.
func (s *search) try(ctx context.Context, drawn facts) error {
	for _, removed := range s.facts {
		if _, present := drawn.optional[removed]; !present && !removed.isField() {
			continue
		}
		for _, by := range s.forms(removed) {
			if _, known := s.found[removed]; known {
				break
			}
			if err := s.replace(ctx, drawn, removed, by); err != nil {
				return err
			}
		}
	}
	return nil
}

// replace records a finding if a pod passes with another form of a fact.
func (s *search) replace(ctx context.Context, drawn facts, removed fact, by Form) error {
	without := s.replaced(drawn, removed, by)
	permits, err := s.permits(ctx, without)
	if err != nil || !permits {
		return err
	}
	value, opens := s.opens(ctx, without, removed)
	// A module may compare two facts: then an empty one is as good as any that differs.
	if !opens || by == Empty && removed.encoding == asString && !s.differs(ctx, without, removed) {
		return nil
	}
	found := Finding{Fact: removed.String(), Form: by, Permitted: value}
	if drawn.given != nil {
		found.Input, found.With = drawn.given.index, drawn.given.removed(drawn)
	} else {
		found.With = s.smallest(ctx, without, removed).without(removed).described()
	}
	if by == Zero {
		found.Permitted = "30 days ago"
	}
	found.Place = s.reads.places[removed]
	s.found[removed] = found
	return nil
}

// differs reports whether the pod waits with another unknown value.
func (s *search) differs(ctx context.Context, without facts, removed fact) bool {
	texts := []string{another}
	for _, one := range s.values.orders {
		texts = append(texts, one.least[1])
	}
	return slices.ContainsFunc(texts, func(text string) bool { return s.waits(ctx, without.with(removed, text)) })
}

// opens reports whether a pod that passes without a fact waits with an unknown value, and passes with a known one,
// which is returned.
func (s *search) opens(ctx context.Context, without facts, removed fact) (value string, opens bool) {
	// An absent text that passes as the least text does counts as an early text.
	if s.values.ordersTexts && s.values.malformed == "" && !removed.isParameter() && removed.encoding == asString {
		if permits, err := s.verdict(ctx, without.with(removed, leastText)); permits && err == nil {
			return "", false
		}
	}
	if !slices.ContainsFunc(s.unknown(removed, without), func(group []string) bool {
		return !slices.ContainsFunc(group, func(value string) bool { return !s.waits(ctx, without.with(removed, value)) })
	}) {
		return "", false
	}
	for _, value := range s.known(removed, without) {
		if permits, err := s.verdict(ctx, without.with(removed, value)); err == nil && permits {
			return value, true
		}
	}
	return "", false
}

// waits reports whether the pod waits, and the module does not fail.
func (s *search) waits(ctx context.Context, with facts) bool {
	permits, err := s.verdict(ctx, with)
	return err == nil && !permits
}

// smallest removes every other fact on which the finding does not depend, or gives it its usual value.
func (s *search) smallest(ctx context.Context, without facts, removed fact) facts {
	others := slices.DeleteFunc(slices.Clone(s.facts), func(f fact) bool { return f == removed })
	for _, simpler := range simplifications(others) {
		fewer := simpler(without)
		if permits, err := s.verdict(ctx, fewer); err != nil || !permits {
			continue
		}
		if _, opens := s.opens(ctx, fewer, removed); opens {
			without = fewer
		}
	}
	return without
}

// permits is verdict, with an error of the module as a pod that waits.
func (s *search) permits(ctx context.Context, with facts) (bool, error) {
	permits, err := s.verdict(ctx, with)
	if errors.Is(err, errCut) || ctx.Err() != nil {
		return false, cmp.Or(ctx.Err(), err)
	}
	return permits && err == nil, nil
}

// verdict returns whether the pod passes. The error is of the module: a builtin that fails, a conflict.
func (s *search) verdict(ctx context.Context, with facts) (bool, error) {
	if s.evaluations++; s.evaluations > maxEvaluations {
		return false, errCut
	}
	input, stage, err := s.input(with)
	if err != nil {
		return false, err
	}
	module := s.module
	module.Stage = cmp.Or(stage, module.Stage)
	output, err := s.engine.Replay(ctx, module, input)
	if err != nil {
		return false, err
	}
	decision := struct {
		Passed []string `json:"passed"`
	}{}
	if err := json.Unmarshal(output, &decision); err != nil {
		return false, fmt.Errorf("reading the decision: %w", err)
	}
	return len(decision.Passed) > 0, nil
}
