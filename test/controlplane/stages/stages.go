// Package stages holds the kwok stages that make a simulated kubelet: the files
// say when a step is taken, the functions they call (package kubelet) what the
// status is afterwards.
//
//	Pending --pod-create--> Pending, containers waiting --pod-start--> Running
//	Running --pod-sync--> Running: probes, readiness gates
//	Running --pod-restart--> containers waiting --pod-start--> Running: image changed
//	Running --pod-complete--> Succeeded: only where an annotation asks for it
//	deletionTimestamp --pod-stop--> containers terminated, final delete
//
// At most one stage of a kind matches an object at a time.
package stages

import "embed"

// Files are the stages, one YAML document a file.
//
//go:embed *.yaml
var Files embed.FS
