// Package live is the watching form of package cluster: informers keep the objects of namespaces in memory,
// and a Watch returns snapshots of them and reports, coalesced, that something changed.
package live
