// Package doctor finds misconfigurations of an installation of PodOps and of the rules and pods under it.
//
// Inspect is a pure function of a Snapshot, which the caller reads with the rights of its user, and of the time.
// A check whose objects could not be read is listed as not checked; it never passes by that. Each check has an
// ID, which is its section in docs/doctor.md, and each Finding a command that helps.
package doctor
