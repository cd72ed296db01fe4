// Package drain implements kubectl podops drain.
package drain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	kubectldrain "k8s.io/kubectl/pkg/drain"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/eval"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/removal"
)

// pageSize is how many pods a list request returns.
const pageSize = 500

// verb is the verb with its flags.
type verb struct {
	*command.Environment
	removal.Flags
	selector, podSelector string
	ignoreDaemonSets      bool
	deleteEmptyDirData    bool
	force                 bool
	disableEviction       bool
	dryRun                bool
}

// Command returns the verb drain.
func Command(env *command.Environment) *cobra.Command {
	v := &verb{Environment: env}
	made := &cobra.Command{
		Use:   "drain NODE... | -l SELECTOR",
		Short: "Drain nodes as the rules of their pods permit it",
		Long: `Drain nodes as the rules of their pods permit it: cordon them, and request the eviction of each pod that
kubectl drain would evict, with the same flags. A request that is answered with 429, by PodOps or for
a PodDisruptionBudget, is repeated; there is one line for each pod and change, with what holds it. A
pod is evicted by its UID: the pod that replaces it under the same name stays, on any node.

Ctrl-C and --timeout end it: requests that are left are withdrawn, and their pods are in service
again. The nodes stay cordoned. A second Ctrl-C ends it at once; the requests lapse then, 15 seconds
to 2 minutes later.

At most 100 pods are requested at a time. The exit code is 0 once each pod is gone, and otherwise 1,
with a table of the pods that are left.

It needs the rights that kubectl drain needs: to get and patch nodes, to get and list pods and to get
DaemonSets in all namespaces, and to create pods/eviction, or with --disable-eviction to delete
pods; and none of PodOps. To withdraw a request it patches the label undo-operation-type of the pod:
without the right, requests lapse.`,
		Example: `  # Drain a node
  kubectl podops drain node-1 --ignore-daemonsets

  # What would hold its pods? Nothing is changed.
  kubectl podops drain node-1 --ignore-daemonsets --dry-run

  # Drain the nodes of a pool
  kubectl podops drain -l pool=blue --ignore-daemonsets --timeout 1h`,
		Args: cobra.ArbitraryArgs, // validate checks them
		RunE: func(cobraCommand *cobra.Command, nodes []string) error {
			if err := v.validate(nodes); err != nil {
				return err
			}
			return v.run(cobraCommand.Context(), nodes)
		},
	}
	flags := made.Flags()
	flags.StringVarP(&v.selector, "selector", "l", "", "label selector of the nodes")
	flags.StringVar(&v.podSelector, "pod-selector", "", "label selector of the pods to evict")
	flags.BoolVar(&v.ignoreDaemonSets, "ignore-daemonsets", false, "leave the pods of DaemonSets")
	flags.BoolVar(&v.deleteEmptyDirData, "delete-emptydir-data", false, "evict pods with an emptyDir, whose data is lost")
	flags.BoolVar(&v.force, "force", false, "evict pods without a controller, which nothing creates again")
	flags.BoolVar(&v.disableEviction, "disable-eviction", false, "delete the pods: PodDisruptionBudgets do not count")
	flags.BoolVar(&v.dryRun, "dry-run", false, "print the pods and what would hold them, and change nothing")
	v.Add(flags)
	return env.Cluster(made)
}

func (v *verb) validate(nodes []string) error {
	switch {
	case len(nodes) > 0 && v.selector != "":
		return errors.New("names and a selector -l: want one of them")
	case len(nodes) == 0 && v.selector == "":
		return errors.New("want the names of nodes, or a selector -l")
	default:
		return v.Validate()
	}
}

func (v *verb) run(ctx context.Context, names []string) error {
	c, err := v.Clientset(ctx)
	if err != nil {
		return err
	}
	nodes, err := v.nodes(ctx, c, names)
	if err != nil {
		return err
	}
	helper := &kubectldrain.Helper{
		Ctx: ctx, Client: c, Force: v.force, GracePeriodSeconds: int(v.GracePeriod), IgnoreAllDaemonSets: v.ignoreDaemonSets,
		DeleteEmptyDirData: v.deleteEmptyDirData, PodSelector: v.podSelector, ChunkSize: pageSize, Out: v.Out, ErrOut: v.ErrOut,
	}
	if !v.dryRun {
		if err := v.cordon(helper, nodes); err != nil {
			return err
		}
	}
	pods, err := v.pods(helper, nodes)
	switch {
	case err != nil:
	case v.dryRun:
		return v.show(ctx, pods)
	default:
		err = v.Run(ctx, v.Environment, c, !v.disableEviction, pods)
	}
	if err != nil && !v.dryRun {
		_, _ = fmt.Fprintf(v.ErrOut, "the nodes stay cordoned; to end that: kubectl uncordon %s\n", strings.Join(nodeNames(nodes), " "))
	}
	return err
}

// nodes returns the nodes with these names, or else the nodes that the selector matches.
func (v *verb) nodes(ctx context.Context, c kubernetes.Interface, names []string) ([]*corev1.Node, error) {
	var nodes []*corev1.Node
	for _, name := range names {
		node, err := c.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("reading the node, before any is drained: %w", err)
		}
		nodes = append(nodes, node)
	}
	if v.selector == "" {
		return nodes, nil
	}
	list, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: v.selector})
	if err != nil {
		return nil, fmt.Errorf("listing the nodes: %w", err)
	}
	for i := range list.Items {
		nodes = append(nodes, &list.Items[i])
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("no node has the labels of -l %s", v.selector)
	}
	return nodes, nil
}

func nodeNames(nodes []*corev1.Node) []string {
	names := make([]string, len(nodes))
	for i, node := range nodes {
		names[i] = node.Name
	}
	return names
}

func (v *verb) cordon(helper *kubectldrain.Helper, nodes []*corev1.Node) error {
	for _, node := range nodes {
		if err := kubectldrain.RunCordonOrUncordon(helper, node, true); err != nil {
			return fmt.Errorf("node %s: %w", node.Name, err)
		}
		_, _ = fmt.Fprintf(v.Out, "node %s is cordoned\n", node.Name)
	}
	return nil
}

// pods returns the pods to evict, as kubectl drain chooses them.
func (v *verb) pods(helper *kubectldrain.Helper, nodes []*corev1.Node) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	for _, node := range nodes {
		list, errs := helper.GetPodsForDeletion(node.Name)
		if len(errs) > 0 {
			return nil, fmt.Errorf("no pod was evicted: node %s: %w", node.Name, errors.Join(errs...))
		}
		if warnings := list.Warnings(); warnings != "" {
			_, _ = fmt.Fprintf(v.ErrOut, "node %s: %s\n", node.Name, warnings)
		}
		found := list.Pods()
		for i := range found {
			pods = append(pods, &found[i])
		}
	}
	return pods, nil
}

// show prints the pods to evict by namespace, with the verdicts of their rules.
func (v *verb) show(ctx context.Context, pods []*corev1.Pod) error {
	names := map[string][]string{}
	for _, pod := range pods {
		names[pod.Namespace] = append(names[pod.Namespace], pod.Name)
	}
	for _, namespace := range slices.Sorted(maps.Keys(names)) {
		_, _ = fmt.Fprintf(v.Out, "namespace %s, pods to evict: %d\n", namespace, len(names[namespace]))
		verdicts, err := eval.Deletes(ctx, v.Environment, namespace, names[namespace])
		if err != nil {
			return err
		}
		eval.Text(v.Out, verdicts)
	}
	return nil
}
