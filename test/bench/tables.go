package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// table prints rows in columns of fixed width: text to the left, numbers to the right.
func table(out io.Writer, title string, widths []int, rows ...[]string) {
	_, _ = fmt.Fprintf(out, "\n%s\n", title)
	for _, row := range rows {
		line := strings.Builder{}
		for i, text := range row {
			fmt.Fprintf(&line, "%*s  ", widths[i], text)
		}
		_, _ = fmt.Fprintln(out, strings.TrimRight(line.String(), " "))
	}
}

func micros(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Microsecond)) }

func printRounds(out io.Writer, g grid) {
	head, widths := []string{"N", "W"}, []int{6, 6}
	for _, column := range columns() {
		head, widths = append(head, column), append(widths, max(8, len(column)))
	}
	rows := [][]string{append(head, "p99/p50")}
	for _, at := range cells() {
		row := []string{fmt.Sprint(at.pods), fmt.Sprint(at.waiting)}
		for _, column := range columns() {
			text := "-"
			if c, ok := g.costs[at][column]; ok {
				text = micros(c.cpu)
			}
			row = append(row, text)
		}
		tail := "-"
		if ratio, ok := g.tail[at]; ok {
			tail = fmt.Sprintf("%.1f", ratio)
		}
		rows = append(rows, append(row, tail))
	}
	table(out, `Rounds: CPU in microseconds from event to rulings, median. N pods, W of which wait.
One pod changed; cold: all that wait changed; idle: none did; apart: cold, and no two pods equal for
any rule, so Rego is evaluated for each of them. go-scan: a pass over all pods in Go. go-loop: the
least in Go, for one rule object. go-incr: the index of PodOps, rules in Go. quadratic: a model of
the predecessor.`, append(widths, 7), rows...)
}

func printGoals(out io.Writer, goals []goal) {
	rows := [][]string{{"goal", "what", "figure", "holds"}}
	for _, g := range goals {
		holds := "yes"
		if !g.holds {
			holds = "NO"
			if g.close {
				holds = "NO (nearly)"
			}
		}
		rows = append(rows, []string{g.number, g.wants, g.figure, holds})
	}
	table(out, "Goals: the worst figure over all sizes of a goal.", []int{-4, -48, -38, -11}, rows...)
}
