// Command kvstore-load writes and reads a key-value store until it gets SIGTERM, verifies that
// no acknowledged write is lost and that the history is linearizable, and writes a report.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/podops-dev/podops/examples/kvstore/pkg/api"
	"github.com/podops-dev/podops/examples/kvstore/pkg/load"
)

const (
	defaultWorkers  = 4
	defaultKeys     = 3
	defaultInterval = 10 * time.Millisecond
)

// errData means that the store has lost or invented data.
var errData = errors.New("the store is not linearizable, or has lost writes")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kvstore-load:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	o := load.Options{AttemptTimeout: load.DefaultAttemptTimeout, OperationTimeout: load.DefaultOperationTimeout}
	var (
		path     string
		duration time.Duration
	)
	flags := flag.NewFlagSet("kvstore-load", flag.ContinueOnError)
	flags.StringVar(&o.Name, "name", "load", "`name` in keys and tokens; runs on the same store have different names")
	flags.StringVar(&o.Service, "service", "", "`name` that resolves to the members")
	flags.StringVar(&o.Resolver.File, "hosts-file", os.Getenv("KVSTORE_HOSTS_FILE"), "`file` in the format of /etc/hosts that resolves names instead of the DNS ($KVSTORE_HOSTS_FILE)")
	flags.IntVar(&o.Port, "port", api.DefaultPort, "port of the members")
	flags.IntVar(&o.Writers, "writers", defaultWorkers, "workers that write")
	flags.IntVar(&o.Readers, "readers", defaultWorkers, "workers that read")
	flags.IntVar(&o.Keys, "keys", defaultKeys, "keys at a time")
	flags.DurationVar(&o.Interval, "interval", defaultInterval, "pause of a worker after an operation")
	flags.DurationVar(&o.CheckTimeout, "check-timeout", load.CheckTimeout, "bound of the check of linearizability")
	flags.DurationVar(&duration, "duration", 0, "end after this time; default: at SIGTERM")
	flags.StringVar(&path, "report", "", "`file` of the report, in JSON; default: standard output")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if duration > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, duration)
		defer stop()
	}
	report, err := load.Run(ctx, o)
	if err != nil {
		return err
	}
	return write(report, path, stdout)
}

// write writes the report, and returns errData if it shows an error of the store.
func write(report load.Report, path string, stdout io.Writer) error {
	data, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	data = append(data, '\n')
	if path == "" {
		_, err = stdout.Write(data)
	} else {
		err = os.WriteFile(path, data, 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	if report.LostWrites > 0 || report.RepeatedWrites > 0 || report.Linearizable == porcupine.Illegal {
		return errData
	}
	return nil
}
