package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/podops-dev/podops/examples/kvstore/pkg/api"
	"github.com/podops-dev/podops/examples/kvstore/pkg/client"
	"github.com/podops-dev/podops/examples/kvstore/pkg/hosts"
	"github.com/podops-dev/podops/examples/kvstore/pkg/machine"
)

const (
	// schemaKey has the schema version.
	schemaKey = "kvstore/schema"

	defaultMigrateTimeout = 10 * time.Minute
)

// migration takes keys from one schema version to the next. It is safe to repeat, also while it runs elsewhere, and clients that know
// only the earlier version still read what they have written.
type migration func(ctx context.Context, s store) error

// migrations returns the migrations to the versions from 1 on:
//
//  1. A key user:NAME is copied to users/NAME.
func migrations() []migration { return []migration{copyUsers} }

// migrate migrates a store to a schema version, by writes that earlier members know. It ends at once if the store has that version,
// or a later one.
func migrate(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var (
		resolver hosts.Resolver
		target   string
		to       int
		timeout  time.Duration
	)
	flags := flag.NewFlagSet("kvstore migrate", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&target, "url", "", "`URL` of a member, http://HOST:PORT")
	flags.IntVar(&to, "to", 0, fmt.Sprintf("version of the schema, at most %d", len(migrations())))
	flags.DurationVar(&timeout, "timeout", defaultMigrateTimeout, "bound of the migration")
	resolverVar(flags, &resolver)
	if err := parse(flags, args); err != nil {
		return err
	}
	host, port, err := hostOf(target)
	if err != nil {
		return err
	}
	if to < 1 || to > len(migrations()) {
		return fmt.Errorf("--to is from 1 to %d: version %s of kvstore knows no other schema", len(migrations()), currentVersion())
	}
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	return store{client.New(resolver, port), host}.migrate(ctx, to, stdout)
}

// store is a store that is migrated through one of its members.
type store struct {
	*client.Client
	host string
}

func (s store) migrate(ctx context.Context, to int, stdout io.Writer) error {
	for {
		has, revision, err := s.schema(ctx)
		if err != nil {
			return err
		}
		if has >= to {
			fmt.Fprintf(stdout, "the schema has version %d\n", has)
			return nil
		}
		if err := migrations()[has](ctx, s); err != nil {
			return fmt.Errorf("migrating the schema from version %d to %d: %w", has, has+1, err)
		}
		next := machine.Command{Op: machine.Put, Key: schemaKey, Value: []byte(strconv.Itoa(has + 1)), If: &revision}
		if _, err := s.Write(ctx, s.host, next); err != nil && client.CodeOf(err) != api.Conflict {
			return fmt.Errorf("recording version %d of the schema: %w", has+1, err)
		}
		fmt.Fprintf(stdout, "migrated the schema from version %d to %d\n", has, has+1)
	}
}

// schema returns the schema version, and the revision of its key: 0 before the first migration.
func (s store) schema(ctx context.Context) (version int, revision uint64, err error) {
	entry, err := s.Get(ctx, s.host, schemaKey)
	if client.CodeOf(err) == api.NotFound {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("reading the version of the schema: %w", err)
	}
	if version, err = strconv.Atoi(string(entry.Value)); err != nil || version < 0 {
		return 0, 0, fmt.Errorf("the key %s is no version: %q", schemaKey, entry.Value)
	}
	return version, entry.Revision, nil
}

// copyUsers copies the keys user:NAME to users/NAME, unless that exists.
func copyUsers(ctx context.Context, s store) error {
	const from, to = "user:", "users/"
	keys, err := s.keys(ctx)
	if err != nil {
		return err
	}
	none := uint64(0)
	for _, key := range keys {
		name, ok := strings.CutPrefix(key, from)
		if !ok {
			continue
		}
		entry, err := s.Get(ctx, s.host, key)
		if client.CodeOf(err) == api.NotFound {
			continue // deleted meanwhile
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", key, err)
		}
		_, err = s.Write(ctx, s.host, machine.Command{Op: machine.Put, Key: to + name, Value: entry.Value, If: &none})
		if err != nil && client.CodeOf(err) != api.Conflict {
			return fmt.Errorf("writing %s: %w", to+name, err)
		}
	}
	return nil
}

// keys returns the keys of a consistent state.
func (s store) keys(ctx context.Context) (keys []string, err error) {
	file, err := os.CreateTemp("", "kvstore-keys-*")
	if err != nil {
		return nil, fmt.Errorf("creating a file for the keys: %w", err)
	}
	defer os.Remove(file.Name())
	_, err = s.Backup(ctx, s.host, file)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("downloading the keys: %w", err)
	}
	return machine.Keys(file.Name())
}
