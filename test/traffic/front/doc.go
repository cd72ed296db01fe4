// Package front is a load balancer between a load and the pods: a real HAProxy, or, where
// none is installed, an embedded reverse proxy that supports the part of HAProxy's Runtime
// API that an adapter needs. Both begin with one empty backend; servers are added, drained
// and removed through the socket of that API.
//
// Neither retries a request or sends it to another server when a server fails, so that
// every failure reaches the client, which counts it. Neither listens beyond this machine.
package front
