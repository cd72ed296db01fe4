// Command release builds images and releases of PodOps. docs/releasing.md has its use.
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

	"github.com/podops-dev/podops/hack/release/internal/build"
)

const usage = `release builds images and releases from the working tree.

  release image   [flags]        the images, with their SBOMs
  release all     [flags]        a whole release
  release sign    [flags]        the provenance of the release in the folder, signed with a key
  release push    ARCHIVE...     push images to their registry
  release unpack  ARCHIVE DIR    the file system of an image for this machine

Flags:
`

// settings are the flags.
type settings struct {
	root, version, registry, out, platforms, key string
	allowDirty                                   bool
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(arguments []string, out, complaints io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(complaints)
	var s settings
	flags.StringVar(&s.root, "root", ".", "working tree to build")
	flags.StringVar(&s.version, "version", "", "version, as v0.1.0; image builds one that names the commit if it is empty")
	flags.StringVar(&s.registry, "registry", "ghcr.io/podops-dev", "registry and folder of the images")
	flags.StringVar(&s.out, "out", "dist", "folder to write")
	flags.StringVar(&s.platforms, "platforms", "", "platforms to build, separated by commas; empty: all")
	flags.StringVar(&s.key, "key", "", "file of the private key to sign with; PODOPS_KEY_PASSWORD has its password if it is encrypted")
	flags.BoolVar(&s.allowDirty, "allow-dirty", false, "release a working tree that differs from its commit")
	flags.Usage = func() {
		fmt.Fprint(complaints, usage)
		flags.PrintDefaults()
	}
	if len(arguments) == 0 {
		flags.Usage()
		return 2
	}
	if err := flags.Parse(arguments[1:]); err != nil {
		return 2
	}
	if err := perform(ctx, arguments[0], s, flags.Args(), out); err != nil {
		fmt.Fprintf(complaints, "release: %v\n", err)
		return 1
	}
	return 0
}

var errArguments = errors.New("wrong arguments, run it without any for help")

func perform(ctx context.Context, command string, s settings, arguments []string, out io.Writer) error {
	var platforms []build.Platform
	if s.platforms != "" {
		var err error
		if platforms, err = build.ParsePlatforms(s.platforms); err != nil {
			return err
		}
	}
	switch {
	case command == "image" && len(arguments) == 0:
		return imagesOnly(ctx, s, platforms, out)
	case command == "all" && len(arguments) == 0:
		return everything(ctx, s, platforms, out)
	case command == "sign" && len(arguments) == 0:
		return sign(s, os.Getenv("PODOPS_KEY_PASSWORD"), out)
	case command == "push" && len(arguments) > 0:
		return push(ctx, arguments, out)
	case command == "unpack" && len(arguments) == 2:
		return unpack(arguments[0], arguments[1])
	default:
		return errArguments
	}
}
