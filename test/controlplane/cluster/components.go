package cluster

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	serviceCIDR = "10.96.0.0/16"
	serviceIP   = "10.96.0.1" // of the Service "kubernetes"
)

// component is one process of the control plane.
type component struct {
	name string // of the program in the bin folder and of the log
	args []string
	// health is the URL that returns status 200 once the component serves. Empty: the
	// component counts as ready when it has been started.
	health string
}

// startOrder returns the components in groups: each group is started when the previous
// group serves. kube-controller-manager exits without an API server.
func (c config) startOrder() [][]component {
	return [][]component{
		{c.etcd()},
		{c.apiServer()},
		{c.controllerManager(), c.scheduler(), c.kubelets()},
	}
}

func (c config) etcd() component {
	client, peer := "http://"+loopback(c.Ports.Etcd), "http://"+loopback(c.Ports.EtcdPeer)
	return component{
		name: "etcd",
		args: []string{
			"--data-dir=" + c.file("etcd"),
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=default=" + peer,
			"--log-level=warn",
			// The data do not outlive the cluster, so no write waits for the disk.
			"--unsafe-no-fsync",
		},
		health: client + "/health",
	}
}

func (c config) apiServer() component {
	return component{
		name: "kube-apiserver",
		args: []string{
			"--etcd-servers=http://" + loopback(c.Ports.Etcd),
			"--bind-address=127.0.0.1",
			"--advertise-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(c.Ports.APIServer),
			// Endpoints cannot hold a loopback address, so the Service
			// "kubernetes" has no endpoints.
			"--endpoint-reconciler-type=none",
			"--service-cluster-ip-range=" + serviceCIDR,
			"--allow-privileged=true",

			"--tls-cert-file=" + c.file("apiserver.crt"),
			"--tls-private-key-file=" + c.file("apiserver.key"),
			"--client-ca-file=" + c.file(caFile),
			"--anonymous-auth=false",
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--admission-control-config-file=" + c.file("admission.yaml"),
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + c.file("accounts.key"),
			"--service-account-signing-key-file=" + c.file("accounts.key"),

			// No client has a certificate of that name, since no server is in front of this
			// API server; but the controller manager and the scheduler log errors without
			// these settings.
			"--requestheader-client-ca-file=" + c.file(caFile),
			"--requestheader-allowed-names=front-proxy-client",
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",

			"--audit-policy-file=" + c.file("audit.yaml"),
			"--audit-log-path=" + c.file(auditLogFile),
			// Blocking: the line is in the file before the response is complete, so a
			// client that has the response can count it.
			"--audit-log-mode=blocking",
			// In megabytes; large enough never to rotate, since a rotation would
			// move lines away from readers that remember an offset.
			"--audit-log-maxsize=10000",

			"--event-ttl=1h",
			"--profiling=false",
		},
		health: c.server() + "/readyz",
	}
}

func (c config) controllerManager() component {
	kubeconfig := c.file("kubeconfigs", "controller-manager")
	return component{
		name: "kube-controller-manager",
		args: []string{
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(c.Ports.ControllerManager),
			"--use-service-account-credentials=" + strconv.FormatBool(!c.OneIdentity),
			"--service-account-private-key-file=" + c.file("accounts.key"),
			"--root-ca-file=" + c.file(caFile),
			"--leader-elect=false",
			"--controllers=" + strings.Join([]string{
				"*",
				// Endpoints and EndpointSlices cannot hold the loopback addresses of the
				// pods: these controllers would fail repeatedly.
				"-endpoints-controller",
				"-endpointslice-controller",
				"-endpointslice-mirroring-controller",
			}, ","),
			// The defaults (20 and 30) are for a shared API server; here they would limit a
			// rollout of a hundred pods.
			"--kube-api-qps=500",
			"--kube-api-burst=1000",
			// The default of 15 seconds lets tests wait for HorizontalPodAutoscalers.
			"--horizontal-pod-autoscaler-sync-period=1s",
			"--profiling=false",
		},
		health: "https://" + loopback(c.Ports.ControllerManager) + "/healthz",
	}
}

func (c config) scheduler() component {
	kubeconfig := c.file("kubeconfigs", "scheduler")
	return component{
		name: "kube-scheduler",
		args: []string{
			"--config=" + c.file("scheduler.yaml"),
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(c.Ports.Scheduler),
		},
		health: "https://" + loopback(c.Ports.Scheduler) + "/healthz",
	}
}

func (c config) kubelets() component {
	return component{name: "kubelets", args: []string{c.file(nodesFile)}}
}

// binary returns the path of the program of a component.
func (c config) binary(component string) string {
	return fmt.Sprintf("%s/%s", c.Bin, component)
}

func (c config) log(component string) string {
	return c.file(logsFolder, component+".log")
}
