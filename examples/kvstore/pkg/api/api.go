// Package api is the HTTP API of the key-value store, shared by server and client.
//
//	GET    /kv/{key}          the value; the header Kvstore-Revision has its revision
//	PUT    /kv/{key}          sets the value to the body; If-Match: the revision it must have, 0: none
//	POST   /kv/{key}          appends the body to the value
//	DELETE /kv/{key}          removes the key
//	GET    /status            Status of this member
//	GET    /livez             the process runs
//	GET    /readyz            the member votes and has caught up
//	GET    /healthz           a read through this member succeeds
//	POST   /leader/transfer   moves leadership away from this member; ?to= names the next leader
//	GET    /members           the members
//	POST   /members           adds a member (node.Join)
//	DELETE /members/{id}      removes a member
//	GET    /backup            a consistent state, in the format of bbolt
//
// Each member serves each request: followers forward to the leader (/backup is redirected).
// A key is one path segment, escaped.
package api

import (
	"time"

	"github.com/podops-dev/podops/examples/kvstore/pkg/node"
)

// Headers.
const (
	// HeaderRevision of an answer is the revision of the key.
	HeaderRevision = "Kvstore-Revision"

	// HeaderClient and HeaderSeq of a write identify the request: a repeated request is
	// applied once. A client has one request at a time, and numbers them upwards from 1.
	HeaderClient = "Kvstore-Client"
	HeaderSeq    = "Kvstore-Seq"

	// HeaderForwarded marks a request that a follower has forwarded.
	HeaderForwarded = "Kvstore-Forwarded"

	// HeaderMember of an answer is the id of the member that answered the client, and
	// HeaderVersion its version.
	HeaderMember  = "Kvstore-Member"
	HeaderVersion = "Kvstore-Version"

	// HeaderLeader and HeaderTerm of an answer name the leader that served the request.
	HeaderLeader = "Kvstore-Leader"
	HeaderTerm   = "Kvstore-Term"
)

// DefaultPort is the port of the API.
const DefaultPort = 8080

// RequestTimeout bounds a request, attempts with several leaders included.
const RequestTimeout = 8 * time.Second

// Code is the reason of an error.
type Code string

// The codes. With NotLeader, Unavailable and Busy nothing was replicated; with Unknown a
// write may have been, and may still be.
const (
	NotLeader   Code = "NotLeader"
	Unavailable Code = "Unavailable"
	Busy        Code = "Busy"
	Unknown     Code = "Unknown"
	Invalid     Code = "Invalid"
	NotFound    Code = "NotFound"
	Conflict    Code = "Conflict"
	Full        Code = "Full"
	Expired     Code = "Expired"
)

// Error is the body of an answer that is not a success.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Write is the answer to a write.
type Write struct {
	Revision uint64 `json:"revision"`
}

// Status is the answer of /status.
type Status struct {
	node.Status
	Version string `json:"version"`
	// Ready is the result of /readyz.
	Ready bool `json:"ready"`
	// Reason is why the member is not ready.
	Reason string `json:"reason,omitempty"`
}

// Transfer is the answer of /leader/transfer.
type Transfer struct {
	// Transferred is false when the member did not lead.
	Transferred bool   `json:"transferred"`
	Leader      string `json:"leader"`
}
