package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/podops-dev/podops/test/traffic/load"
)

// result is the result of one run.
type result struct {
	scenario string
	side     side
	report   *load.Report

	// harmless is true when no request needs to fail without PodOps.
	harmless bool

	// operation is the duration of the operation, a part of the duration of the load.
	operation time.Duration

	// most is the number of pods that existed at once for peakLasts, without terminating pods, moment the
	// number at any moment, and allowed the permitted number.
	most, moment, allowed int
}

type results []result

// print writes a line for each run, and the number of requests.
func (all results) print(out io.Writer) error {
	if len(all) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "scenario\tPodOps\trequests\tfailed\tp50\tp99\tmost pods\toperation\tduration\t")
	total := 0
	for _, r := range all {
		total += r.report.Requests
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%s\t%s\t%d\t%s\t%s\t\n", r.scenario, r.side, r.report.Requests, r.report.Failed,
			load.Round(r.report.Latency.Percentile(50)), load.Round(r.report.Latency.Percentile(99)), r.most,
			r.operation.Round(100*time.Millisecond), r.report.Took.Round(100*time.Millisecond))
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
	errNothingLost = errors.New("no request failed without PodOps: the measurement detects nothing")
	errNoRuns      = errors.New("nothing was measured")
	errSurge       = errors.New("more pods existed at once than replicas and maxSurge allow")
	errSlow        = errors.New("a load balancer that fails calls slows the rollout down")
)

// slowdown is how many times longer a rollout may take when a fifth of the calls to the
// load balancer fail.
const slowdown = 2

// flaky compares the rollout with a flaky load balancer with the rollout without, if both ran.
func (all results) flaky() error {
	took := map[string]time.Duration{}
	for _, r := range all {
		if r.side == withPodOps {
			took[r.scenario] = r.operation
		}
	}
	healthy, flaky := took["restart"], took["flaky"]
	if healthy == 0 || flaky <= slowdown*healthy {
		return nil
	}
	return fmt.Errorf("%w: %s, against %s, and at most %d times that are allowed", errSlow, flaky, healthy, slowdown)
}

// verdict returns nil when no run with PodOps lost a request or had too many pods, the runs without it did
// lose some, and a flaky load balancer took no longer than slowdown allows.
func (all results) verdict() error {
	if len(all) == 0 {
		return errNoRuns
	}
	without, lost := 0, 0
	errs := []error{all.flaky()}
	for _, r := range all {
		if r.side == withPodOps && r.most > r.allowed {
			errs = append(errs, fmt.Errorf("%s: %w: %d, of %d", r.scenario, errSurge, r.most, r.allowed))
		}
		switch {
		case r.side == withoutPodOps && r.harmless:
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
