// Package webhookclient calls the external services of webhook rules. It is the only HTTP client
// of PodOps.
//
// The services belong to the users of a cluster, and so do the URLs: any of them may be
// slow, wrong, hostile or down. What they do costs bounded memory and time, and reaches
// nobody but the rules that name them:
//
//	Pool    bounded workers and queue, turns per namespace and host, breaker per host
//	  Client  one call: deadlines, few tries, a POST is never sent twice unless the service asks
//	    transport  TLS as the rule says, no proxy, no redirects, addresses checked when dialling
//	      codec    the protocol, byte for byte; answers are read strictly
//
// Every error is a *Failure with a Class. Nothing in here decides what a failure means for
// a pod.
package webhookclient
