// Package haproxy is the adapter for HAProxy: the pods of a Service are servers of one of
// its backends, added, drained and removed through the Runtime API while HAProxy runs.
//
// A Service with the label kusionstack.io/control: "true" names its servers by annotations:
//
//	podops.dev/haproxy-runtime        the Runtime API: unix:/run/haproxy/admin.sock or
//	                                  tcp:10.0.0.4:9999. The socket needs level admin, and
//	                                  the manager a flag that allows it. Required.
//	podops.dev/haproxy-backend        a backend of the configuration, which balances in a
//	                                  dynamic way (roundrobin, leastconn, ...). Required.
//	podops.dev/haproxy-port           port of the pods. Default: the target port of the
//	                                  Service, if it has one port.
//	podops.dev/haproxy-weight         0 to 256, default 100; on a pod it is for that pod.
//	podops.dev/haproxy-check-interval how often HAProxy checks each server, as its backend
//	                                  configures (option httpchk, ...), such as 2s. Default:
//	                                  never. Applies to servers that are added later.
//	podops.dev/haproxy-drain-timeout  how long requests may take to end, default 30s, at
//	                                  most 1h. Afterwards traffic counts as off.
//
// Traffic is on when the server is ready and its check, if any, passes. A server that is
// checked gets no requests before: it drains until then.
//
//	              check passes                  traffic should go off
//	(added) maint ------------> ready = ON -------------------------> drain
//	          ^                                                         |
//	          '--------------- no request left, or out of time ---------'
//
// Traffic is off when the server is in maintenance and no request is left on it, or the
// drain timeout is over. The time is kept in memory: a restart of the manager restarts it. A
// server whose pod was deleted, or is no longer selected, drains in the same way and is then
// removed; requests that are still open after the drain timeout are cut.
//
// Servers are named <namespace>_<service>_<pod>_<hash of the pod's UID>. Servers with other
// names are never changed, so a backend may have other servers and several Services. A user
// who may label and annotate Services may add servers to every backend behind an allowed
// Runtime API.
//
// HAProxy loses added servers when it is restarted or reloaded. The next reconcile of the
// Service, every few seconds (Resync), adds them again. Requests that are still open in a
// process that was reloaded are not counted.
//
// The annotation podops.dev/haproxy-in-use, which the adapter writes before the first
// server, records the location of the servers. Another Runtime API or backend is an error
// until they are removed. To move without a gap use a second Service, and delete the first
// Service afterwards. If the HAProxy no longer exists, remove that annotation and the
// others.
package haproxy
