// Command approvals runs an approval service for webhook rules: see package approvals for
// its URLs.
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
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/podops-dev/podops/test/approvals"
)

// patience is the time that open requests may take to end at shutdown. A connection that
// has not sent any takes 5 seconds.
const patience = 10 * time.Second

const usage = `approvals is an approval service for webhook rules. It prints its URLs and goes on until
it is interrupted. The path of the URL of a rule selects the answer:

  POST /approve        everything, at once
  POST /approve-some   ?n=1: the first n pods; or ?parameter=tier&value=gold: pods with it
  POST /reject         nothing
  POST /poll           a task that approves ?each=1 pods with every poll
  POST /poll-slow      a task that approves every pod with poll number ?polls=5
  POST /async          as /poll, with the older field names
  POST /stop           a task that gives up with poll number ?polls=1
  POST /never          a task that does not end
  POST /manual         a task whose pods wait for a decision: open / in a browser
  GET  /result         the URL to poll, for all of them
  POST /hang /500 /garbage /redirect /retry-after    errors

With every one of them: ?message= ?after=500ms ?bearer=<token>

  GET  /               the pods that wait for a decision, with buttons
  POST /decide         curl -d pod=web-0 -d ok=true <url>/decide, or -d all=true
  GET  /waiting /log   the waiting pods, and every request, as JSON
  GET  /ca.pem         the CA of the HTTPS side, for caBundle

The manager rejects addresses of this machine unless it runs with
--rule-webhook-allow-cidr 127.0.0.0/8.

Flags:
`

type options struct {
	server approvals.Options
	caFile string
	log    string
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, complaints io.Writer) int {
	o, err := parse(args, complaints)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // the flag set has printed the error
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, o, out); err != nil {
		fmt.Fprintf(complaints, "approvals: %v\n", err)
		return 1
	}
	return 0
}

func parse(args []string, complaints io.Writer) (options, error) {
	var o options
	var hosts string
	flags := flag.NewFlagSet("approvals", flag.ContinueOnError)
	flags.SetOutput(complaints)
	flags.StringVar(&o.server.HTTPAddress, "http-bind-address", "127.0.0.1:8089", "address of the HTTP side; port 0: a free port")
	flags.StringVar(&o.server.HTTPSAddress, "https-bind-address", "127.0.0.1:8449", "address of the HTTPS side; port 0: a free port")
	flags.StringVar(&hosts, "hosts", "", "names and addresses of the certificate besides the names and addresses of this machine, separated by commas")
	flags.StringVar(&o.caFile, "ca-file", filepath.Join(os.TempDir(), "approvals-ca.pem"), "file to which the CA of the HTTPS side is written; a new CA at every start")
	flags.StringVar(&o.log, "log", "", "file to which every request is appended as a line of JSON, - for standard output; empty: GET /log only")
	flags.Usage = func() {
		fmt.Fprint(complaints, usage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(complaints, "approvals: %q is not a flag; --help lists them\n", flags.Arg(0))
		return options{}, errors.New("too many arguments")
	}
	if hosts != "" {
		o.server.Hosts = strings.Split(hosts, ",")
	}
	return o, nil
}

// serve serves until ctx ends.
func serve(ctx context.Context, o options, out io.Writer) (err error) {
	lines, closeLog, err := openLog(o.log, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	server, err := approvals.Serve(approvals.New(lines), o.server)
	if err != nil {
		return err
	}
	defer func() {
		ending, cut := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cut()
		err = errors.Join(err, server.Close(ending))
	}()
	if err := os.WriteFile(o.caFile, server.CA(), 0o644); err != nil {
		return fmt.Errorf("writing the CA: %w", err)
	}
	fmt.Fprintf(out, "HTTP:  %s\nHTTPS: %s\nCA:    %s\nPods that wait for a decision are shown at %s\n",
		server.URL("/"), server.SecureURL("/"), o.caFile, server.URL("/"))
	select {
	case <-ctx.Done():
		return nil
	case err := <-server.Ended():
		return err
	}
}

// openLog returns a function that appends answered requests to a file, and a function that
// closes the file.
func openLog(path string, out io.Writer) (approvals.Watch, func() error, error) {
	closeLog := func() error { return nil }
	switch path {
	case "":
		return nil, closeLog, nil
	case "-":
	default:
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, nil, fmt.Errorf("opening the log: %w", err)
		}
		out, closeLog = file, file.Close
	}
	var mu sync.Mutex
	encoder := json.NewEncoder(out)
	return func(step approvals.Step, entry approvals.Entry) {
		if step != approvals.Answered {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		_ = encoder.Encode(entry) // GET /log has it even if the write fails
	}, closeLog, nil
}
