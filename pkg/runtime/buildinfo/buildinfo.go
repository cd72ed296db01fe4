// Package buildinfo has the version, the commit and the toolchain that a program was built from.
package buildinfo

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// Releases set these by -ldflags "-X github.com/podops-dev/podops/pkg/runtime/buildinfo.version=v0.1.0 ...", so
// that they do not depend on files of the working tree that git does not know.
//
//nolint:gochecknoglobals // The linker sets variables of packages only.
var version, commit, date string

// Development is the version of a program that was built without a version.
const Development = "devel"

// unknown is a value that the build did not record.
const unknown = "unknown"

// Info describes the build of a program. No field is empty.
type Info struct {
	// Version is a version of semver with a leading v, or Development.
	Version string

	// Commit is the commit of the sources, with the suffix "-dirty" if they differed from it.
	Commit string

	// Date is when the commit was made, as in RFC 3339. It is not the time of the build: two builds
	// of a commit are equal.
	Date string

	// GoVersion is the version of the toolchain.
	GoVersion string

	// Platform is the operating system and the architecture, as in linux/amd64.
	Platform string
}

// Read returns the build of the running program: the fields that a release set, else the fields that the
// Go toolchain recorded.
func Read() Info {
	recorded, _ := debug.ReadBuildInfo() // nil without modules
	return mergeInfo(Info{Version: version, Commit: commit, Date: date}, recorded)
}

// mergeInfo returns the fields that the linker set, and fills the others with the fields of the
// toolchain.
func mergeInfo(linked Info, recorded *debug.BuildInfo) Info {
	if recorded == nil {
		recorded = &debug.BuildInfo{}
	}
	settings := map[string]string{}
	for _, setting := range recorded.Settings {
		settings[setting.Key] = setting.Value
	}
	module := recorded.Main.Version
	if module == "(devel)" {
		module = ""
	}
	revision := settings["vcs.revision"]
	if revision != "" && settings["vcs.modified"] == "true" {
		revision += "-dirty"
	}
	return Info{
		Version:   cmp.Or(linked.Version, module, Development),
		Commit:    cmp.Or(linked.Commit, revision, unknown),
		Date:      cmp.Or(linked.Date, settings["vcs.time"], unknown),
		GoVersion: cmp.Or(recorded.GoVersion, runtime.Version()),
		Platform:  runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// Line returns the line that the command version of a program prints. Its second word is the version.
func (i Info) Line(program string) string {
	return fmt.Sprintf("%s %s (commit %s of %s, %s, %s)", program, i.Version, i.Commit, i.Date, i.GoVersion, i.Platform)
}

// Register registers podops_build_info, a metric that is always 1 and has the build as labels.
func Register(registry prometheus.Registerer, info Info) error {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "podops_build_info",
		Help:        "The version, commit and Go version of this manager; always 1.",
		ConstLabels: prometheus.Labels{"version": info.Version, "commit": info.Commit, "goversion": info.GoVersion},
	})
	build.Set(1)
	if err := registry.Register(build); err != nil {
		return fmt.Errorf("registering podops_build_info: %w", err)
	}
	return nil
}
