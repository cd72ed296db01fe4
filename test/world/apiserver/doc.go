// Package apiserver is an API server of Kubernetes in memory, behind an http.RoundTripper, for use in one
// testing/synctest bubble together with informers, caches and controllers.
//
// The handlers, strategies, defaults, validations and field managers are those of Kubernetes: the package has in place
// of etcd a database of its own, and in place of connections a transport that calls the handlers. Custom resources are
// served by the handlers of apiextensions-apiserver from their CustomResourceDefinitions. What the package adds is time:
// every request takes a while, and every watch lags, both from a seed.
//
// The order of a write is that of Kubernetes: the request is decoded and defaulted, mutating admission runs, the
// resourceVersion is compared, validating admission runs, the object is compared and swapped, and watches are served.
// An update that changes nothing writes nothing.
//
// Nothing of the package survives a Server: a mutex is never held across a wait, and no channel, timer or timestamp
// belongs to the package.
package apiserver
