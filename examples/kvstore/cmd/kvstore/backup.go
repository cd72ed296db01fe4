package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/podops-dev/podops/examples/kvstore/pkg/client"
	"github.com/podops-dev/podops/examples/kvstore/pkg/hosts"
	"github.com/podops-dev/podops/examples/kvstore/pkg/machine"
)

const defaultBackupTimeout = 5 * time.Minute

// backup writes the state of a cluster to a file or a URL, verified before.
func backup(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var (
		resolver hosts.Resolver
		from, to string
		timeout  time.Duration
	)
	flags := flag.NewFlagSet("kvstore backup", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&from, "from", "", "`URL` of a member, http://HOST:PORT")
	flags.StringVar(&to, "to", "", "`file`, or URL of a provider that stores the body of a PUT")
	flags.DurationVar(&timeout, "timeout", defaultBackupTimeout, "bound of the backup")
	resolverVar(flags, &resolver)
	if err := parse(flags, args); err != nil {
		return err
	}
	host, port, err := hostOf(from)
	if err != nil {
		return err
	}
	if to == "" {
		return errors.New("--to is a file or a URL")
	}
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	contents, err := copyBackup(ctx, client.New(resolver, port), host, to)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "wrote %d keys up to log index %d to %s\n", contents.Usage.Keys, contents.Applied, to)
	return nil
}

// copyBackup downloads the state to a temporary file in the same folder, verifies it,
// and then renames it: a backup that is cut off never has the name of a whole backup.
func copyBackup(ctx context.Context, c *client.Client, host, to string) (contents machine.Contents, err error) {
	folder, isURL := filepath.Dir(to), strings.HasPrefix(to, "http://") || strings.HasPrefix(to, "https://")
	if isURL {
		folder = os.TempDir()
	}
	file, err := os.CreateTemp(folder, "kvstore-backup-*")
	if err != nil {
		return contents, fmt.Errorf("creating a file for the backup: %w", err)
	}
	defer os.Remove(file.Name())
	size, err := c.Backup(ctx, host, file)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return contents, fmt.Errorf("downloading the backup: %w", err)
	}
	if contents, err = machine.Inspect(file.Name()); err != nil {
		return contents, err
	}
	if isURL {
		return contents, upload(ctx, file.Name(), size, to)
	}
	if err := os.Rename(file.Name(), to); err != nil {
		return contents, fmt.Errorf("naming the backup: %w", err)
	}
	return contents, nil
}

// upload sends a file with PUT.
func upload(ctx context.Context, path string, size int64, to string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening the backup: %w", err)
	}
	defer file.Close()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, to, file)
	if err != nil {
		return fmt.Errorf("uploading the backup: %w", err)
	}
	request.ContentLength = size
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("uploading the backup: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("uploading the backup to %s: %s", to, response.Status)
	}
	return nil
}
