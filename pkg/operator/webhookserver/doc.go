// Package webhookserver serves admission reviews to a network on which any client may
// connect. It bounds the number of connections, the bytes of reviews in memory, the
// time of every step, and the reviews that run at once. Each limit is shared between
// source addresses: a source that is over its share loses before any other does.
//
// An API server has no identity on this port unless the cluster configures one
// (AdmissionConfiguration, ClientAuth). Without it every review may be forged, and
// responses reveal nothing that the review itself does not contain: package clientauth.
package webhookserver
