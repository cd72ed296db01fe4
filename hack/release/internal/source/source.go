// Package source describes the commit that a release is built from.
package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// maxVersion is the longest value of a label of Kubernetes, in which the version stands.
const maxVersion = 63

// shortCommit is how many digits of a commit are in a version that is no release.
const shortCommit = 12

// ErrDirty means that the working tree differs from its commit.
var ErrDirty = errors.New("the working tree differs from its commit")

// Source is a working tree.
type Source struct {
	// Dir is the root of the working tree.
	Dir string

	// Version is a version of semver with a leading v, which is also a tag of an image and a value of a label.
	Version string

	// Commit is the commit, with the suffix "-dirty" if files differ from it.
	Commit string

	// Date is when the commit was made, in UTC.
	Date time.Time

	// Changed has the files that differ from the commit, as git status lists them.
	Changed []string
}

// CheckVersion returns an error unless a version can name a release.
func CheckVersion(version string) error {
	switch {
	case version == "":
		return errors.New("VERSION is required, as in VERSION=v0.1.0")
	case !semver.IsValid(version), semver.Canonical(version) != version:
		return fmt.Errorf("VERSION %q is no version of semver with a leading v and without build metadata, such as v0.1.0 or v0.2.0-rc.1", version)
	case len(version) > maxVersion:
		return fmt.Errorf("VERSION %q is longer than %d bytes", version, maxVersion)
	default:
		return nil
	}
}

// IsPrerelease reports whether a valid version comes before a release, as v0.2.0-rc.1 does.
func IsPrerelease(version string) bool { return semver.Prerelease(version) != "" }

// Read reads the state of a working tree. Without a version, the tree gets one that names its commit.
func Read(ctx context.Context, dir, version string) (Source, error) {
	root, err := git(ctx, dir, "rev-parse", "--show-toplevel")
	if err != nil {
		return Source{}, fmt.Errorf("%w: a release is built in a clone of the repository", err)
	}
	s := Source{Dir: root, Version: version}
	if s.Commit, err = git(ctx, root, "rev-parse", "HEAD"); err != nil {
		return Source{}, err
	}
	seconds, err := git(ctx, root, "show", "--no-patch", "--format=%ct", "HEAD")
	if err != nil {
		return Source{}, err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return Source{}, fmt.Errorf("reading the date of commit %s: %w", s.Commit, err)
	}
	s.Date = time.Unix(unix, 0).UTC()
	status, err := git(ctx, root, "status", "--porcelain")
	if err != nil {
		return Source{}, err
	}
	if status != "" {
		s.Changed = strings.Split(status, "\n")
	}
	return s.named(), nil
}

// named returns the source with its version, if it has none, and with a commit that shows changes.
func (s Source) named() Source {
	dirty := ""
	if len(s.Changed) > 0 {
		dirty = "-dirty"
	}
	if s.Version == "" {
		s.Version = "v0.0.0-" + s.Date.Format("20060102150405") + "-" + s.Commit[:min(shortCommit, len(s.Commit))] + dirty
	}
	s.Commit += dirty
	return s
}

// CheckClean returns ErrDirty with the first files that differ.
func (s Source) CheckClean() error {
	const shown = 5
	if len(s.Changed) == 0 {
		return nil
	}
	return fmt.Errorf("%w in %d files:\n%s\ncommit them, or set ALLOW_DIRTY=1", ErrDirty, len(s.Changed),
		strings.Join(s.Changed[:min(shown, len(s.Changed))], "\n"))
}

// git returns the output of git without the last newline.
func git(ctx context.Context, dir string, arguments ...string) (string, error) {
	var complaint bytes.Buffer
	command := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, arguments...)...)
	command.Stderr = &complaint
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(arguments, " "), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return strings.TrimRight(string(out), "\n"), nil
}
