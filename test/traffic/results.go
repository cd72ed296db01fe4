package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/podops-dev/podops/test/traffic/load"
)

// result is what became of the requests of one run.
type result struct {
	scenario string
	side     side
	report   *load.Report
}

type results []result

// print writes a line for each run, and how many requests there were.
func (all results) print(out io.Writer) error {
	if len(all) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "scenario\tPodOps\trequests\tfailed\tp50\tp99\tduration\t")
	total := 0
	for _, r := range all {
		total += r.report.Requests
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t\n", r.scenario, r.side, r.report.Requests, r.report.Failed,
			load.Round(r.report.Latency.Percentile(50)), load.Round(r.report.Latency.Percentile(99)), r.report.Took.Round(100*time.Millisecond))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	for _, r := range all {
		if r.report.Failed > 0 {
			fmt.Fprintf(out, "%s, %s PodOps: %s\n", r.scenario, r.side, r.report.FailedBy())
		}
	}
	if _, err := fmt.Fprintf(out, "requests: %d\n", total); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	return nil
}

var (
	errLost        = errors.New("requests failed with PodOps")
	errNothingLost = errors.New("no request failed without PodOps: the measure measures nothing")
	errNoRuns      = errors.New("nothing was measured")
)

// verdict is nil when no run with PodOps lost a request, and the runs without it did.
func (all results) verdict() error {
	if len(all) == 0 {
		return errNoRuns
	}
	without, lost := 0, 0
	var errs []error
	for _, r := range all {
		switch {
		case r.side == withoutPodOps:
			without++
			lost += r.report.Failed
		case !r.report.OK():
			errs = append(errs, fmt.Errorf("%s: %w: %d of %d", r.scenario, errLost, r.report.Failed, r.report.Requests))
		}
	}
	if without > 0 && lost == 0 {
		errs = append(errs, errNothingLost)
	}
	return errors.Join(errs...)
}
