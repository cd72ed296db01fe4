// Package timeline has the phases of pods with their times: of one pod, or of all pods of a rollout. Times
// come from the pod itself and from events (History), or from watching (Recorder), which is more exact. A
// Timeline is a plain value; Frame renders it for a terminal, and HTML as a page of its own.
package timeline
