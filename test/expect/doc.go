// Package expect holds Gomega matchers for the state of pods and for errors of requests.
package expect
