package podtransitionrule

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/podops-dev/podops/pkg/state/podindex"
)

// nodeWatch writes the nodes of the cluster to the index, from the first round on in which a module reads input.node. The zero value
// watches nothing.
type nodeWatch struct {
	informers ctrlcache.Informers
	index     *podindex.Index

	mu    sync.Mutex
	begun bool
}

// begin begins to watch, and does not wait for the nodes: the index notifies of them.
func (w *nodeWatch) begin(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun || w.informers == nil {
		return nil
	}
	informer, err := w.informers.GetInformer(ctx, &corev1.Node{}, ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	set := func(object any) {
		if node, ok := object.(*corev1.Node); ok {
			w.index.SetNode(node.Name, podindex.NewNode(node))
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: set, UpdateFunc: func(_, object any) { set(object) },
		DeleteFunc: func(object any) {
			if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			if node, ok := object.(*corev1.Node); ok {
				w.index.DeleteNode(node.Name)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	w.begun = true
	return nil
}
