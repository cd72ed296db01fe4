// Package machine is the replicated state machine of the key-value store: keys, values and
// the last request of each client, in a bbolt database.
//
//	Command --replicated, at a log index--> Machine.ApplyBatch --> Result
//
// Every member applies the same commands at the same indices, so each bound here is a
// constant: members with different bounds would diverge.
package machine
