// Package stages holds the kwok stages of a simulated kubelet: the files define when
// a step is taken, and call functions (package kubelet) for the status afterwards.
//
//	Pending --pod-create--> Pending, containers waiting --pod-start--> Running
//	Running --pod-sync--> Running: probes, readiness gates
//	Running --pod-restart--> containers waiting --pod-start--> Running: image changed
//	Running --pod-complete--> Succeeded: only with an annotation
//	deletionTimestamp --pod-stop--> containers terminated, final delete
//
// At most one stage of a kind matches an object at a time.
package stages

import "embed"

// Files holds the stages, one YAML document a file.
//
//go:embed *.yaml
var Files embed.FS
