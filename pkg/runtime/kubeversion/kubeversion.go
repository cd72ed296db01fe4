// Package kubeversion decides whether PodOps supports the Kubernetes version of an API server.
package kubeversion

import (
	"fmt"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"
)

const (
	// Minimum is the oldest minor version of Kubernetes that PodOps supports.
	Minimum = "1.35"

	// Docs is the page about versions.
	Docs = "docs/kubernetes-versions.md"

	// reason states why there is a minimum.
	reason = "PodOps needs " + Minimum + " or later, since it compares resourceVersions: no older version guarantees their order, " +
		"and without it more pods could be unavailable than a rule permits"
)

// UnsupportedError is the error for an API server of a version that PodOps does not support.
type UnsupportedError struct {
	// Problem names the version of the API server, the minimum, and the reason for it.
	Problem string

	// Remedy is the way out.
	Remedy string
}

// Error implements error.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s. %s (%s)", e.Problem, e.Remedy, Docs)
}

// Check returns an UnsupportedError unless PodOps supports the version that an API server serves at /version.
// Suffixes of distributions and prereleases do not count: 1.35+ and v1.35.2-gke.1 are 1.35. An API server
// that emulates an older version counts as that version, since it serves the API of it.
func Check(server version.Info) error {
	minimum := utilversion.MustParseMajorMinor(Minimum)
	binary, err := parse(server.Major, server.Minor)
	if err != nil {
		binary, err = utilversion.ParseMajorMinor(server.GitVersion)
	}
	if err != nil {
		return unknown(server)
	}
	name := server.GitVersion
	if name == "" {
		name = "v" + binary.String()
	}
	if binary.LessThan(minimum) {
		return &UnsupportedError{
			Problem: fmt.Sprintf("Kubernetes %s is not supported. %s", name, reason),
			Remedy:  "Upgrade the control plane to " + Minimum + " or later",
		}
	}
	if server.EmulationMajor == "" && server.EmulationMinor == "" {
		return nil
	}
	emulated, err := parse(server.EmulationMajor, server.EmulationMinor)
	if err != nil {
		return unknown(server)
	}
	if emulated.LessThan(minimum) {
		return &UnsupportedError{
			Problem: fmt.Sprintf("Kubernetes %s that emulates %s is not supported. %s", name, emulated, reason),
			Remedy:  "Start kube-apiserver without --emulated-version, or with " + Minimum + " or later",
		}
	}
	return nil
}

// parse returns a minor version from the fields of a version.
func parse(major, minor string) (*utilversion.Version, error) {
	return utilversion.ParseMajorMinor(major + "." + minor)
}

// unknown returns the error for a version that cannot be read.
func unknown(server version.Info) error {
	return &UnsupportedError{
		Problem: fmt.Sprintf("the version of the API server cannot be read (gitVersion %.100q, major %.20q, minor %.20q, emulationMajor %.20q, "+
			"emulationMinor %.20q). %s", server.GitVersion, server.Major, server.Minor, server.EmulationMajor, server.EmulationMinor, reason),
		Remedy: "Build or configure the API server such that `kubectl version` reports its version",
	}
}
