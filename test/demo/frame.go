package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	// frameColumns is the width that a frame fits into, if its terminal is not narrower.
	frameColumns = 80

	// maxReasons bounds the rules that a frame lists: the demo has three.
	maxReasons = 3
)

// The blocks of a bar, one for each pod.
const (
	servingBlock  = '█'
	waitingBlock  = '▒'
	offBlock      = '░'
	startingBlock = '·'
)

// row counts the pods of one revision by what they do.
type row struct {
	serving, waiting, off, starting, gone int
}

// add counts a pod in a phase.
func (r *row) add(p phase) {
	switch p {
	case available:
		r.serving++
	case waiting:
		r.waiting++
	case starting:
		r.starting++
	default:
		r.off++
	}
}

// held is a rule and the waiting pods whose first reason it is.
type held struct {
	rule    string
	pods    int
	message string
}

// frame is the state that the demo shows.
type frame struct {
	rolling          bool // pods are old or new; before, all are listed as old
	old, new         row
	unavailable      int
	worst, limit     int
	requests, failed int
	waits            []held
}

// lines returns the frame as text of at most so many columns.
func (f frame) lines(columns int) []string {
	first := f.old.line("old", "gone", f.old.gone)
	if !f.rolling {
		first = f.old.line("old", "starting", f.old.starting)
	}
	requests := fmt.Sprintf("requests %s, failed %s", thousands(f.requests), thousands(f.failed))
	lines := []string{first, " " + requests}
	if f.rolling {
		lines = []string{
			first, f.new.line("new", "starting", f.new.starting),
			fmt.Sprintf(" unavailable %d (highest %d, limit %d)    %s", f.unavailable, f.worst, f.limit, requests),
		}
	}
	for _, rule := range f.waits[:min(len(f.waits), maxReasons)] {
		lines = append(lines, fmt.Sprintf(" %s: %s waiting: %s", rule.rule, countOf(rule.pods), rule.message))
	}
	for i := range lines {
		lines[i] = cut(lines[i], columns)
	}
	return lines
}

// line returns the bar of a revision and its counts, the last of which has the given name.
func (r row) line(revision, lastName string, last int) string {
	bar := strings.Repeat(string(servingBlock), r.serving) + strings.Repeat(string(waitingBlock), r.waiting) +
		strings.Repeat(string(offBlock), r.off) + strings.Repeat(string(startingBlock), last)
	return fmt.Sprintf(" %s  %-*s  %c %2d serving  %c %2d waiting  %c %2d off traffic  %c %2d %s",
		revision, replicas, bar, servingBlock, r.serving, waitingBlock, r.waiting, offBlock, r.off, startingBlock, last, lastName)
}

// countOf returns a number of pods in words.
func countOf(pods int) string {
	if pods == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", pods)
}

// thousands returns a number with commas: 3,390.
func thousands(n int) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// cut shortens a text to so many columns, with an ellipsis in place of the rest. A line that
// wraps would break the redrawing.
func cut(text string, columns int) string {
	letters := []rune(text)
	if len(letters) <= columns {
		return text
	}
	return strings.TrimRight(string(letters[:max(0, columns-1)]), " ") + "…"
}

// frame returns what the watch has shown so far.
func (r *record) frame(limit int) frame {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := frame{unavailable: max(0, r.desired-r.availableNow()), worst: r.worst, limit: limit, rolling: r.rolling}
	rules := map[string]held{}
	for _, uid := range slices.Sorted(maps.Keys(r.pods)) {
		pod := r.pods[uid]
		if pod.old || !r.rolling {
			f.old.add(pod.phase)
		} else {
			f.new.add(pod.phase)
		}
		if why := r.why(pod.name); pod.phase == waiting && why.rule != "" {
			entry := rules[why.rule]
			rules[why.rule] = held{rule: why.rule, pods: entry.pods + 1, message: why.message}
		}
	}
	for _, pod := range r.gone {
		if pod.old {
			f.old.gone++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		f.waits = append(f.waits, rules[name])
	}
	return f
}
