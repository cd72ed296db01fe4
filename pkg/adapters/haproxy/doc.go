// Package haproxy is the adapter for HAProxy: the pods of a Service are servers of one of
// its backends, added, drained and removed through the Runtime API while HAProxy runs.
//
// A Service with the label kusionstack.io/control: "true" says by annotations where:
//
//	podops.dev/haproxy-runtime        the Runtime API: unix:/run/haproxy/admin.sock or
//	                                  tcp:10.0.0.4:9999. The socket needs level admin, and
//	                                  the manager a flag that allows it. Required.
//	podops.dev/haproxy-backend        a backend of the configuration, which balances in a
//	                                  dynamic way (roundrobin, leastconn, ...). Required.
//	podops.dev/haproxy-port           port of the pods. Default: the target port of the
//	                                  Service, if it has one port.
//	podops.dev/haproxy-weight         0 to 256, default 100; on a pod it is for that pod.
//	podops.dev/haproxy-check-interval how often HAProxy checks each server in the way of its
//	                                  backend (option httpchk, ...), such as 2s. Default: not
//	                                  at all. Holds for servers that are added from then on.
//	podops.dev/haproxy-drain-timeout  how long requests may take to end, default 30s, at
//	                                  most 1h. Afterwards traffic counts as off all the same.
//
// Traffic is on when the server is ready and its check passes, if it has one. A server that
// is checked gets no requests before: it drains until then.
//
//	              check passes                  traffic should go off
//	(added) maint ------------> ready = ON -------------------------> drain
//	          ^                                                         |
//	          '--------------- no request left, or out of time ---------'
//
// Traffic is off when the server is in maintenance and no request is left on it, or the
// drain timeout is over. The time is counted by this process: a restart of the manager
// starts it anew. A server whose pod is gone, or is no longer selected, goes the same way
// and is then removed; requests that are left at the end of the time are cut.
//
// Servers are named <namespace>_<service>_<pod>_<hash of the pod's UID>. Servers with other
// names are never touched, so a backend may have servers of its own and several Services.
// Who may label and annotate Services may add servers to every backend behind an allowed
// Runtime API.
//
// HAProxy forgets servers when it is restarted or reloaded. They are added again when the
// Service is looked at next, which is every few seconds (Resync). Requests that
// are still with a process that was reloaded are not seen.
//
// The annotation podops.dev/haproxy-in-use, which the adapter writes before the first
// server, keeps where servers are. Another Runtime API or backend is refused until they are
// gone. To move without a gap use a second Service, and delete the first one afterwards. For
// an HAProxy that will never answer again, take that annotation off with the others.
package haproxy
