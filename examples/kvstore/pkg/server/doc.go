// Package server serves the HTTP API of a member (package api).
package server
