// Package memlimit runs a process in a memory cgroup, as a container with a memory limit
// does, and reports its usage. It supports cgroup v1 and v2 and needs the right to create
// cgroups, usually root.
package memlimit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrUnavailable means that this machine does not allow the caller to limit memory.
var ErrUnavailable = errors.New("memory cgroups are not available here")

const (
	rootV1 = "/sys/fs/cgroup/memory"
	rootV2 = "/sys/fs/cgroup"
)

// files are the file names of a version of cgroups.
type files struct {
	limit, swap, peak, events string
}

func v1() files {
	return files{
		limit: "memory.limit_in_bytes", swap: "memory.memsw.limit_in_bytes",
		peak: "memory.max_usage_in_bytes", events: "memory.oom_control",
	}
}

func v2() files {
	return files{limit: "memory.max", swap: "memory.swap.max", peak: "memory.peak", events: "memory.events"}
}

// Group is a memory cgroup with a limit.
type Group struct {
	dir   string
	files files
}

// New creates a cgroup of the name with a limit in bytes. It returns ErrUnavailable, with
// the reason, where that is not possible.
func New(name string, limit int64) (*Group, error) {
	group := &Group{dir: filepath.Join(rootV1, name), files: v1()}
	swap := strconv.FormatInt(limit, 10) // memory and swap together
	if _, err := os.Stat(filepath.Join(rootV2, "cgroup.controllers")); err == nil {
		group, swap = &Group{dir: filepath.Join(rootV2, name), files: v2()}, "0"
		// Children get the controllers that their parent enables.
		if err := os.WriteFile(filepath.Join(rootV2, "cgroup.subtree_control"), []byte("+memory"), 0o644); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	if err := os.Mkdir(group.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err := group.write(group.files.limit, strconv.FormatInt(limit, 10)); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrUnavailable, err), group.Close())
	}
	// A kernel without swap accounting has no such file.
	if err := group.write(group.files.swap, swap); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrUnavailable, err), group.Close())
	}
	return group, nil
}

// Command returns the command that runs another command inside of the cgroup, from its
// first instruction on.
func (g *Group) Command(command ...string) []string {
	return append([]string{"/bin/sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, g.dir}, command...)
}

// Peak returns the maximum number of bytes that the cgroup has used, page cache included.
func (g *Group) Peak() (int64, error) { return g.number(g.files.peak) }

// Kills returns how many processes the kernel has killed because of the limit.
func (g *Group) Kills() (int64, error) {
	content, err := os.ReadFile(filepath.Join(g.dir, g.files.events))
	if err != nil {
		return 0, fmt.Errorf("reading the events of the cgroup: %w", err)
	}
	for line := range strings.Lines(string(content)) {
		if count, found := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); found {
			return strconv.ParseInt(count, 10, 64)
		}
	}
	return 0, fmt.Errorf("%s of the cgroup counts no kills: %w", g.files.events, ErrUnavailable)
}

// Close removes the cgroup. Its processes must have ended.
func (g *Group) Close() error {
	if err := os.Remove(g.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the cgroup: %w", err)
	}
	return nil
}

func (g *Group) number(file string) (int64, error) {
	content, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0, fmt.Errorf("reading the cgroup: %w", err)
	}
	number, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading %s of the cgroup: %w", file, err)
	}
	return number, nil
}

func (g *Group) write(file, text string) error {
	return os.WriteFile(filepath.Join(g.dir, file), []byte(text), 0o644)
}
