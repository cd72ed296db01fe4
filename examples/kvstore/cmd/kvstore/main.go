// Command kvstore is a small replicated key-value store, and the commands of its operator.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/podops-dev/podops/examples/kvstore/pkg/hosts"
)

const usage = `usage: kvstore COMMAND [FLAGS]

  serve     run a member
  check     exit with 0 when a member is healthy
  migrate   migrate the keys to a version of the schema
  backup    write a consistent backup to a file, or to a URL with PUT
  version   print the version

kvstore COMMAND --help lists the flags.
`

// environment has the variables that are defaults of flags.
const (
	envVersion   = "KVSTORE_VERSION"
	envFault     = "KVSTORE_FAULT"
	envHostsFile = "KVSTORE_HOSTS_FILE"
)

// version is set by the linker; KVSTORE_VERSION overrides it.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kvstore:", err)
		os.Exit(1)
	}
}

// run runs a command.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return errors.New("no command")
	}
	switch args[0] {
	case "serve":
		return serve(ctx, args[1:], stderr)
	case "check":
		return check(ctx, args[1:], stdout, stderr)
	case "migrate":
		return migrate(ctx, args[1:], stdout, stderr)
	case "backup":
		return backup(ctx, args[1:], stdout, stderr)
	case "version":
		fmt.Fprintln(stdout, currentVersion())
		return nil
	case "help", "--help", "-h":
		fmt.Fprint(stdout, usage)
		return nil
	default:
		fmt.Fprint(stderr, usage)
		return fmt.Errorf("unknown command %q", args[0])
	}
}

func currentVersion() string {
	if v := os.Getenv(envVersion); v != "" {
		return v
	}
	return version
}

// parse parses flags, and rejects further arguments.
func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return nil
}

// resolverVar adds the flag of the file of hosts.
func resolverVar(flags *flag.FlagSet, r *hosts.Resolver) {
	flags.StringVar(&r.File, "hosts-file", os.Getenv(envHostsFile), "`file` in the format of /etc/hosts that resolves the names of members instead of the DNS ($"+envHostsFile+")")
}
