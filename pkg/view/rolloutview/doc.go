// Package rolloutview shows a workload in motion: its revisions, the phase of each pod, the rules that
// withhold pods, the budget in use, and the traffic of load balancers. Of returns a View, a plain value,
// from objects as some reader saw them; View.Frame renders it as text of a given size, and Changes
// compares two views. kubectl podops get, its watching form, and the demo print the same frames.
//
//	objects ──► Of ──► View ──► Frame ──► Text, or Colored
//	                     └────► Changes (two views)
package rolloutview
