package main

import (
	"fmt"
	"math"
)

// goal is one of P1 to P12 (docs/design/engine.md).
type goal struct {
	number string
	wants  string
	figure string
	holds  bool

	// close is true when it does not hold, by less than the noise of a busy machine.
	close bool
}

// slack is the noise of a busy machine.
const slack = 1.3

// limit compares one figure with its bound. below is inclusive.
func limit(number, wants, figure string, value, below float64) goal {
	return goal{number: number, wants: wants, figure: figure, holds: value <= below, close: value <= below*slack}
}

// worst returns the largest ratio of two columns over the cells for which where holds.
func (g grid) worst(column, of string, where func(cell) bool) float64 {
	found := math.NaN()
	for _, at := range cells() {
		if !where(at) {
			continue
		}
		if ratio, ok := g.ratio(at, column, of); ok && !(found >= ratio) {
			found = ratio
		}
	}
	return found
}

// evaluateGoals compares the measurements with the goals.
func evaluateGoals(m measured) []goal {
	goals := idleGoals(m)
	goals = append(goals, roundGoals(m.grid)...)
	goals = append(goals, m.growth.goals()...)
	goals = append(goals, lawGoals(m.grid)...)
	goals = append(goals, m.compiling.goals()...)
	goals = append(goals, m.hostile.goals()...)
	figure := fmt.Sprintf("%d rulings compared, no difference", m.agreement.rulings)
	if m.agreement.differs != "" {
		figure = "differs: " + m.agreement.differs
	}
	return append(goals, goal{
		number: "P12", wants: "verdicts equal go-scan's, also of shuffled input", figure: figure, holds: m.agreement.differs == "",
	})
}

func idleGoals(m measured) []goal {
	ratio := m.grid.worst(oursIdle, incrIdle, func(cell) bool { return true })
	allocs := 0.0
	for _, at := range cells() {
		if at.waiting <= 100 {
			allocs = max(allocs, m.grid.costs[at][oursIdle].allocs)
		}
	}
	return []goal{
		limit("P1", "idle <= 1.1x go-incr", times(ratio), ratio, 1.1),
		limit("P1", "idle: no evaluation of Rego", fmt.Sprint(m.grid.idleEvaluations), float64(m.grid.idleEvaluations), 0),
		limit("P1", "idle, W <= 100: <= 100 allocations", fmt.Sprintf("%.0f", allocs), allocs, 100),
	}
}

func roundGoals(g grid) []goal {
	few := func(pods int) func(cell) bool {
		return func(at cell) bool { return at.pods == pods && at.waiting <= 100 && at.waiting <= pods/10 }
	}
	large := func(at cell) bool { return at.pods >= 1000 }
	largeFew := func(at cell) bool { return large(at) && at.waiting <= at.pods/10 }
	small := func(at cell) bool { return at.pods == 100 }
	many := func(at cell) bool { return at.waiting >= 1000 }
	goals := []goal{}
	for _, one := range []struct {
		number, wants, column, of string
		where                     func(cell) bool
		below                     float64
	}{
		{"P2", "1 dirty, N=1000 <= 0.6x go-scan", oursOne, scanOne, few(1000), 0.6},
		{"P2", "1 dirty, N=10000 <= 0.05x go-scan", oursOne, scanOne, few(10000), 0.05},
		{"P2", "1 dirty, N>=1000 <= 0.2x quadratic", oursOne, oldOne, large, 0.2},
		{"P3", "cold, N>=1000, W<=N/10 <= 5x go-scan", oursCold, scanCold, largeFew, 5},
		{"P3", "cold, N>=1000 <= 1x quadratic", oursCold, oldOne, large, 1},
		{"P4", "cold, N=100 <= 5x quadratic", oursCold, oldOne, small, 5},
		{"P4", "1 dirty, N=100 <= 2x quadratic", oursOne, oldOne, small, 2},
		{"P5", "cold, W>=1000 <= 30x go-incr a pod", oursCold, incrCold, many, 30},
	} {
		figure := g.worst(one.column, one.of, one.where)
		text := times(figure)
		if one.column == oursCold {
			text += fmt.Sprintf(" (%s apart)", times(g.worst(oursApart, one.of, one.where)))
		}
		goals = append(goals, limit(one.number, one.wants, text, figure, one.below))
	}
	return goals
}

// lawGoals returns the goals for the growth of costs with the pods that wait, and for their
// variance.
func lawGoals(g grid) []goal {
	slope := func(column string) float64 {
		var x, y []float64
		for _, waiting := range []int{100, 1000, 10000} {
			x, y = append(x, float64(waiting)), append(y, float64(g.costs[cell{10000, waiting}][column].cpu))
		}
		return exponent(x, y)
	}
	tail := 0.0
	for _, ratio := range g.tail {
		tail = max(tail, ratio)
	}
	return []goal{
		limit("P7", "exponent over W, cold <= 1.1",
			fmt.Sprintf("%.2f (%.2f apart)", slope(oursCold), slope(oursApart)), max(slope(oursCold), slope(oursApart)), 1.1),
		limit("P8", "1 dirty, W<=100: p99 <= 6x p50", times(tail), tail, 6),
	}
}

// times returns a human-readable ratio.
func times(ratio float64) string {
	switch {
	case math.IsNaN(ratio):
		return "-"
	case ratio < 0.1:
		return fmt.Sprintf("%.3fx", ratio)
	default:
		return fmt.Sprintf("%.2fx", ratio)
	}
}
