// Package load writes and reads a key-value store all along, records every operation, and
// reports acknowledged writes that are lost, operations that failed with the leader change
// that they belong to, and whether the history is linearizable.
//
// A write appends a token that no other write has, so each acknowledged write can be
// found in the end, exactly once. Several workers write and read the same keys.
package load
