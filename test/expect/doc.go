// Package expect holds Gomega matchers for what PodOps says of pods and answers to
// requests, so that stories read as sentences.
package expect
