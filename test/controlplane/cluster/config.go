// Package cluster runs a local Kubernetes control plane: real etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler on loopback ports, and nodes whose kubelets
// are simulated (package kubelet of this module).
//
// Up writes certificates and settings into a state folder and starts one detached
// supervisor process for it, which owns the components; Down ends the supervisor and with
// it all components. The folder is the only state, so clusters in different folders are
// independent.
package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
)

// Options configures a cluster.
type Options struct {
	Bin        string // folder with etcd, kube-apiserver, ...
	Dir        string // state folder; removed by Down
	Kubeconfig string // written when the cluster is ready: the administrator's
	Nodes      int    // 1 to 254
	// PodCIDR is a loopback /16: node i takes the addresses of its pods from the
	// i-th /24 in it, so that a process can listen on the address of a pod.
	PodCIDR netip.Prefix
	// OneIdentity makes all controllers act as system:kube-controller-manager, as
	// kube-controller-manager does by default, instead of a ServiceAccount each.
	OneIdentity bool
	// ParentPID ends the cluster when that process has ended. 0: no such process.
	ParentPID int
}

// config is Options with the values that Up has chosen; it is kept in the state folder for
// the supervisor and for later commands.
type config struct {
	Bin        string   `json:"bin"`
	Dir        string   `json:"dir"`
	Kubeconfig string   `json:"kubeconfig"`
	Nodes      []node   `json:"nodes"`
	Parent     *process `json:"parent,omitempty"`
	// OneIdentity is true when all controllers share one user.
	OneIdentity bool  `json:"oneIdentity,omitempty"`
	Ports       ports `json:"ports"`
}

type ports struct {
	Etcd              int `json:"etcd"`
	EtcdPeer          int `json:"etcdPeer"`
	APIServer         int `json:"apiServer"`
	ControllerManager int `json:"controllerManager"`
	Scheduler         int `json:"scheduler"`
}

// node is the input of the kubelets program; see Node in package kubelet.
type node struct {
	Name       string `json:"name"`
	Kubeconfig string `json:"kubeconfig"`
	IP         string `json:"ip"`
	PodCIDR    string `json:"podCIDR"`
}

// Files of the state folder.
const (
	configFile     = "cluster.json"
	supervisorFile = "supervisor.json"
	nodesFile      = "nodes.json"
	auditLogFile   = "audit.log"
	caFile         = "ca.crt"
	logsFolder     = "logs"
)

// file returns the path of a file in the state folder.
func (c config) file(elements ...string) string {
	return filepath.Join(append([]string{c.Dir}, elements...)...)
}

func (c config) server() string {
	return "https://" + loopback(c.Ports.APIServer)
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// newConfig checks o and chooses the values that it leaves open. Relative paths are
// relative to the current folder.
func newConfig(o Options) (config, error) {
	if o.Nodes < 1 || o.Nodes > 254 {
		return config{}, fmt.Errorf("%d nodes: a cluster has 1 to 254, a /24 of pod addresses each", o.Nodes)
	}
	if !o.PodCIDR.Addr().Is4() || !o.PodCIDR.Addr().IsLoopback() || o.PodCIDR.Bits() != 16 {
		return config{}, fmt.Errorf("pod range %s: must be a /16 in 127.0.0.0/8, so that processes can listen on pod addresses", o.PodCIDR)
	}
	c := config{OneIdentity: o.OneIdentity}
	for _, path := range []struct {
		from string
		to   *string
	}{{o.Bin, &c.Bin}, {o.Dir, &c.Dir}, {o.Kubeconfig, &c.Kubeconfig}} {
		absolute, err := filepath.Abs(path.from)
		if err != nil {
			return config{}, fmt.Errorf("resolving %s: %w", path.from, err)
		}
		*path.to = absolute
	}
	if o.ParentPID != 0 {
		parent, err := findProcess(o.ParentPID)
		if err != nil {
			return config{}, fmt.Errorf("looking up the parent process: %w", err)
		}
		c.Parent = &parent
	}
	c.Nodes = newNodes(c, o.Nodes, o.PodCIDR)
	var err error
	c.Ports, err = pickPorts()
	return c, err
}

// newNodes names count nodes and divides the pod range among them. The address of a node is
// the last but one of its range, above the addresses of its 110 pods.
func newNodes(c config, count int, podCIDR netip.Prefix) []node {
	base := podCIDR.Masked().Addr().As4()
	nodes := make([]node, 0, count)
	for i := 1; i <= count; i++ {
		name := fmt.Sprintf("node-%d", i)
		base[2] = byte(i)
		base[3] = 0
		pods := netip.PrefixFrom(netip.AddrFrom4(base), 24)
		base[3] = 254
		nodes = append(nodes, node{
			Name:       name,
			Kubeconfig: c.file("kubeconfigs", name),
			IP:         netip.AddrFrom4(base).String(),
			PodCIDR:    pods.String(),
		})
	}
	return nodes
}

// Ports of components are from a range below that of the ports which Linux gives to outgoing connections: one of
// those could take the port of a component before it listens.
const (
	firstPort = 10000
	lastPort  = 32000
	portTries = 1000
)

// pickPorts finds free ports. It holds all of them until it has found the last, so that
// they differ, and then releases them for the components.
func pickPorts() (ports, error) {
	var p ports
	for _, port := range []*int{&p.Etcd, &p.EtcdPeer, &p.APIServer, &p.ControllerManager, &p.Scheduler} {
		listener, err := listenBelow()
		if err != nil {
			return ports{}, err
		}
		defer listener.Close()
		*port = listener.Addr().(*net.TCPAddr).Port
	}
	return p, nil
}

// listenBelow listens at a free port of the range.
func listenBelow() (net.Listener, error) {
	var err error
	for range portTries {
		var listener net.Listener
		if listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(lastPort-firstPort))); err == nil {
			return listener, nil
		}
	}
	return nil, fmt.Errorf("finding a free port from %d to %d: %w", firstPort, lastPort, err)
}

// errNoCluster means that a folder holds no cluster.
var errNoCluster = errors.New("no cluster in this folder")

// readConfig reads the config of the cluster in dir. It fails with errNoCluster
// when dir has no cluster.
func readConfig(dir string) (config, error) {
	var c config
	err := readJSON(filepath.Join(dir, configFile), &c)
	if errors.Is(err, fs.ErrNotExist) {
		return config{}, fmt.Errorf("%s: %w", dir, errNoCluster)
	}
	return c, err
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("decoding %s: %w", path, err)
	}
	return nil
}

// writeJSON replaces the file at path atomically.
func writeJSON(path string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	return writeFile(path, append(data, '\n'), 0o644)
}

func writeFile(path string, data []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, mode); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
