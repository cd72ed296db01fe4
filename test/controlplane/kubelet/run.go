// Package kubelet simulates the kubelets of a local cluster on top of kwok:
// nodes that register, beat and run pods of which only the status exists.
//
// kwok watches, delays and writes; the files of package stages define which step a
// pod takes when; this package computes the status after a step (status.go), with
// the functions of Kubernetes' own kubelet for the conditions.
//
// Every kubelet acts as system:node:<name> with its own certificate, so the
// Node authorizer and the NodeRestriction admission apply to it. The kwok
// command is not used unchanged, since it cannot run with these rights:
//
//   - it lists and watches leases (controller.go, initNodeLeaseController),
//     which the Node authorizer rejects; here kwok's leases are off and
//     Kubernetes' lease controller keeps one lease for each node;
//   - it does not create nodes;
//   - its deletes and its retries differ from a kubelet's, see client.go, and its
//     pod addresses are not unique, see addresses.go;
//   - one process serves one node; here one process serves all of them.
package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-helpers/apimachinery/lease"
	kubeletutil "k8s.io/kubernetes/pkg/kubelet/util"
	"k8s.io/utils/clock"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/kwok/controllers"
)

// Node describes one simulated node.
type Node struct {
	Name       string `json:"name"`
	Kubeconfig string `json:"kubeconfig"` // path; the identity is system:node:<Name>
	IP         string `json:"ip"`
	PodCIDR    string `json:"podCIDR"` // the range of pod addresses
}

const (
	// The values of a kubelet: nodeLeaseDurationSeconds, renewed after a quarter.
	leaseSeconds  = 40
	renewInterval = 10 * time.Second
	// Parallel writes of one kubelet.
	workers = 4
)

// ReadNodes reads a JSON list of Node from a file.
func ReadNodes(path string) ([]Node, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the list of nodes: %w", err)
	}
	var nodes []Node
	if err := json.Unmarshal(data, &nodes); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", path, err)
	}
	return nodes, nil
}

// Run runs the kubelets of nodes with the stages in files until ctx ends.
func Run(ctx context.Context, nodes []Node, files fs.FS) error {
	stages, err := readStages(files)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if err := node.start(ctx, stages); err != nil {
			return fmt.Errorf("starting the kubelet of %s: %w", node.Name, err)
		}
	}
	<-ctx.Done()
	return nil
}

type stagesByKind map[internalversion.StageResourceRef][]*internalversion.Stage

// readStages reads every YAML file at the root of files as one kwok stage.
func readStages(files fs.FS) (stagesByKind, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing stages: %w", err)
	}
	stages := stagesByKind{}
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("reading a stage: %w", err)
		}
		stage, err := config.UnmarshalWithType[*internalversion.Stage](data)
		if err != nil {
			return nil, fmt.Errorf("decoding stage %s: %w", name, err)
		}
		ref := stage.Spec.ResourceRef
		stages[ref] = append(stages[ref], stage)
	}
	return stages, nil
}

// start registers the node and starts its kubelet, which runs until ctx ends.
func (n Node) start(ctx context.Context, stages stagesByKind) error {
	rest, err := clientcmd.BuildConfigFromFlags("", n.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	rest.UserAgent = "kubelet-" + n.Name
	rest.QPS, rest.Burst = 100, 200 // 50 and 100 in a kubelet, which makes fewer requests at once
	typed, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return fmt.Errorf("building a client: %w", err)
	}
	if err := n.register(ctx, typed); err != nil {
		return err
	}
	go n.lease(ctx, typed).Run(ctx)

	pool, err := newAddresses(n)
	if err != nil {
		return err
	}
	controller, err := controllers.NewController(controllers.Config{
		Clock:                    clock.RealClock{},
		TypedClient:              client{typed, pool},
		ManageSingleNode:         n.Name,
		NodeName:                 n.Name,
		CIDR:                     n.PodCIDR, // required by kwok, but not used for allocation
		LocalStages:              stages,
		FuncMap:                  n.stageFuncs(pool, metav1.Now),
		PodPlayStageParallelism:  workers,
		NodePlayStageParallelism: 1,
		// kwok lists the pods of a node again once it has seen the node.
		PodsOnNodeSyncParallelism: 1,
		ID:                        n.Name,
	})
	if err != nil {
		return fmt.Errorf("configuring kwok: %w", err)
	}
	return controller.Start(ctx)
}

// lease keeps the lease of the node, as in pkg/kubelet/kubelet.go. The controller logs a
// failed renewal and retries it.
func (n Node) lease(ctx context.Context, client kubernetes.Interface) lease.Controller {
	return lease.NewController(clock.RealClock{}, client, n.Name, leaseSeconds, func() {}, renewInterval,
		n.Name, corev1.NamespaceNodeLease, kubeletutil.SetNodeOwnerFunc(ctx, client, n.Name))
}
