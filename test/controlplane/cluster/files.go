package cluster

import (
	"encoding/base64"
	"fmt"
	"net"
)

// The users of the cluster itself, with the groups and names that Kubernetes' own roles are
// bound to.
const (
	adminUser             = "podops-admin"
	controllerManagerUser = "system:kube-controller-manager"
	schedulerUser         = "system:kube-scheduler"

	// webhookClient is the user name of the API server's client certificate for webhooks.
	// It has no rights.
	webhookClient = "kube-apiserver-webhook-client"
)

// writeFiles writes all files of the components to the state folder.
func (c config) writeFiles() error {
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	serving, err := ca.server("kube-apiserver",
		[]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		[]net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(serviceIP)})
	if err != nil {
		return err
	}
	accounts, err := newServiceAccountKey()
	if err != nil {
		return err
	}
	files := map[string][]byte{
		caFile:           ca.pem,
		"apiserver.crt":  serving.certificate,
		"apiserver.key":  serving.key,
		"accounts.key":   accounts,
		"audit.yaml":     []byte(auditPolicy),
		"scheduler.yaml": schedulerConfig(c),
		"admission.yaml": admissionConfig(c),
	}
	if err := c.addKubeconfigs(files, ca); err != nil {
		return err
	}
	for name, data := range files {
		if err := writeFile(c.file(name), data, 0o600); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return writeJSON(c.file(nodesFile), c.Nodes)
}

func (c config) addKubeconfigs(files map[string][]byte, ca *authority) error {
	type user struct {
		file, name string
		groups     []string
	}
	var controllers []string
	if c.OneIdentity {
		// The role of this user starts controllers with users of their own.
		controllers = []string{"system:masters"}
	}
	users := []user{
		{"admin", adminUser, []string{"system:masters"}},
		{"controller-manager", controllerManagerUser, controllers},
		{"scheduler", schedulerUser, nil},
		{"webhooks", webhookClient, nil},
	}
	for _, n := range c.Nodes {
		users = append(users, user{n.Name, "system:node:" + n.Name, []string{"system:nodes"}})
	}
	for _, u := range users {
		id, err := ca.client(u.name, u.groups...)
		if err != nil {
			return err
		}
		files["kubeconfigs/"+u.file] = kubeconfig(c.server(), ca.pem, u.name, id)
	}
	return nil
}

// kubeconfig returns a kubeconfig with embedded certificates, so that it can be copied.
func kubeconfig(server string, ca []byte, user string, id identity) []byte {
	encode := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: podops-local
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: %s
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: podops-local
  context:
    cluster: podops-local
    user: %s
current-context: podops-local
`, server, encode(ca), user, encode(id.certificate), encode(id.key), user)
}

// auditPolicy logs every write with user, object and outcome, rejections by admission
// included, but no bodies: tests and the demo count writes by user. It omits lease
// renewals, the only writes of an idle cluster. It includes events, which differ by their
// resource.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  resources:
  - group: coordination.k8s.io
    resources: [leases]
- level: None
  nonResourceURLs: ["*"]
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`

// schedulerConfig lifts the limits that are for a shared API server, and shortens the pause
// after which a pod without a node is retried.
func schedulerConfig(c config) []byte {
	return fmt.Appendf(nil, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: %q
  qps: 500
  burst: 1000
leaderElection:
  leaderElect: false
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
`, c.file("kubeconfigs", "scheduler"))
}

// admissionConfig names the certificate that the API server sends to webhooks.
func admissionConfig(c config) []byte {
	text := []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n")
	for _, plugin := range []string{"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"} {
		text = fmt.Appendf(text, `- name: %s
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: %q
`, plugin, c.file("kubeconfigs", "webhooks"))
	}
	return text
}
