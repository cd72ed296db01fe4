// Package browser tests the page of kubectl podops dashboard in a headless Chromium, against a local
// control plane, during a rollout. It is a module of its own, so that the driver of the browser stays out of
// the dependencies of PodOps.
package browser
