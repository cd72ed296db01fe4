package operator

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/runtime/text"
)

// maxFailureBytes bounds the text of a failure: event notes and condition messages have up to 1024 bytes.
const maxFailureBytes = 1000

// failures are the last failures of clusters whose last step failed: what the API server rejects is reported with the next
// status, which is written before the step is tried again. It is safe for concurrent use.
type failures struct {
	mu        sync.Mutex // guards byCluster
	byCluster map[types.NamespacedName]string
}

// set keeps a failure, and returns its text.
func (f *failures) set(cluster types.NamespacedName, err error) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.byCluster[cluster] = text.Line(err.Error(), maxFailureBytes)
	return f.byCluster[cluster]
}

// get returns the failure of a cluster; empty without one.
func (f *failures) get(cluster types.NamespacedName) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byCluster[cluster]
}

// forget removes the failure of a cluster.
func (f *failures) forget(cluster types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byCluster, cluster)
}
