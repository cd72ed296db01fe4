// Package test runs clusters of real kvstore processes, and ends them in every way.
package test
