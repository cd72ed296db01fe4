// Package webhookclient calls the external services of webhook rules. It is the only HTTP client of
// PodOps.
//
// The services and the URLs belong to the users of a cluster: any of them may be slow, wrong,
// hostile or down. Each costs bounded memory and time, and affects only the rules that name it:
//
//	Pool    bounded workers and queue, fair to namespaces and hosts, a circuit breaker per host
//	  Client  one call: deadlines, few tries, a POST is never sent twice unless the service requests it
//	    transport  TLS as the rule configures it, no proxy, no redirects, addresses checked when dialling
//	      codec    the protocol, byte for byte; answers are parsed strictly
//
// Every error is a *Failure with a Class. Whether a failure withholds a pod is decided elsewhere.
package webhookclient
