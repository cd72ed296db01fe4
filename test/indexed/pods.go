// Package indexed changes the pods of an index in tests, as its informer does.
package indexed

import (
	"strconv"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

// Pods are the pods of an index. Each write has the next resourceVersion.
type Pods struct {
	t       testing.TB
	store   cache.ReflectorStore
	version int
}

// NewPods returns the Pods of an index.
func NewPods(t testing.TB, index *podindex.Index) *Pods {
	return &Pods{t: t, store: index.PodStore()}
}

// Put creates or replaces pods.
func (p *Pods) Put(pods ...*builders.PodBuilder) {
	p.t.Helper()
	for _, pod := range p.written(pods) {
		p.must(p.store.Update(pod))
	}
}

// Remove deletes a pod.
func (p *Pods) Remove(pod *builders.PodBuilder) {
	p.t.Helper()
	p.must(p.store.Delete(p.written([]*builders.PodBuilder{pod})[0]))
}

// List replaces all pods, as a list does.
func (p *Pods) List(pods ...*builders.PodBuilder) {
	p.t.Helper()
	p.must(p.store.Replace(p.written(pods), strconv.Itoa(p.version)))
}

// written returns pods with the next resourceVersions.
func (p *Pods) written(pods []*builders.PodBuilder) []any {
	objects := make([]any, len(pods))
	for i, pod := range pods {
		p.version++
		object := pod.Obj()
		object.ResourceVersion = strconv.Itoa(p.version)
		objects[i] = object
	}
	return objects
}

func (p *Pods) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}
