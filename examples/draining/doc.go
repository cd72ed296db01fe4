// Package draining shows servers with a drain endpoint (docs/draining.md): one that speaks HTTP and one that speaks gRPC.
// Copy the function that you need; its tests run both under clients that keep their connections.
package draining
