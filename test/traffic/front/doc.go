// Package front is a load balancer between a load and the pods: a real HAProxy, or, where
// none is installed, an embedded reverse proxy that speaks as much of HAProxy's Runtime
// API as an adapter needs. Both begin with one empty backend; servers are added, drained
// and removed through the socket of that API.
//
// Neither repeats a request or sends it elsewhere when a server fails, so that every
// failure reaches the client that counts it. Neither listens beyond this machine.
package front
