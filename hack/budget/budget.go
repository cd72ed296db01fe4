package main

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// budget has the text of budget.txt: in each line the most that a figure may be, and its name.
type budget struct {
	lines []line
}

// line is a line of the budget; a comment has no name.
type line struct {
	most int
	name string
	text string
}

func parse(text string) (budget, error) {
	var b budget
	scanner := bufio.NewScanner(strings.NewReader(text))
	for number := 1; scanner.Scan(); number++ {
		l := line{text: scanner.Text()}
		if l.text != "" && !strings.HasPrefix(l.text, "#") {
			most, name, found := strings.Cut(l.text, " ")
			var err error
			if l.most, err = strconv.Atoi(most); err != nil || !found {
				return budget{}, fmt.Errorf("%s:%d: %q: want a number and the name of a figure", budgetFile, number, l.text)
			}
			l.name = strings.TrimSpace(name)
		}
		b.lines = append(b.lines, l)
	}
	return b, nil
}

// compare returns the figures as text, and an error for each that is above its line or has none.
func (b budget) compare(figures map[string]int) (report string, err error) {
	var text strings.Builder
	var errs []error
	known := map[string]bool{}
	for _, l := range b.lines {
		if l.name == "" {
			continue
		}
		known[l.name] = true
		figure := figures[l.name]
		fmt.Fprintf(&text, "%7d of %-7d %s\n", figure, l.most, l.name)
		if figure > l.most {
			errs = append(errs, fmt.Errorf("%s: %d, at most %d: %s", l.name, figure, l.most, advice(l.name)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		if !known[name] {
			errs = append(errs, fmt.Errorf("%s: %d has no line in %s", name, figures[name], budgetFile))
		}
	}
	return text.String(), errors.Join(errs...)
}

// lowered returns the text with each line at its figure, unless that is higher.
func (b budget) lowered(figures map[string]int) string {
	var text strings.Builder
	for _, l := range b.lines {
		if l.name == "" {
			fmt.Fprintln(&text, l.text)
			continue
		}
		fmt.Fprintf(&text, "%d %s\n", min(l.most, figures[l.name]), l.name)
	}
	return text.String()
}

// advice returns how a figure gets lower.
func advice(name string) string {
	switch name {
	case figureRooms:
		return "find the room that the folder belongs to (docs/architecture.md)"
	case figureLocks:
		return "keep state in a struct that has a lock already, or pass values"
	case figureParameters:
		return "put parameters that belong together into a struct"
	case figureOf:
		return "write a compound or a verb: podPhase(pod), deploymentFor(pod), parseBound(value)"
	case figureChains, figureOfWords:
		return `write compounds: "the pod's phase" or "the pod phase" instead of "the phase of the pod"`
	case figureUnused:
		return "write the names in lower case, or remove them"
	default:
		return "remove code, or raise the line with a reason in the commit"
	}
}
