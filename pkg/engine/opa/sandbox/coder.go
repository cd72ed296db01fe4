package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// coder appends values to data, or reads them from it. A value has one description for both directions, so
// that they cannot differ. JSON takes twice the time.
type coder struct {
	reads bool
	data  []byte
	err   error

	// known are the pods that both sides know.
	known *knownPods

	// details reports whether the batch has the details of pods.
	details bool
}

// knownPods are the pods of earlier batches that a worker has kept. Its parent sends them again by UID and version
// only: of the pods that a module reads, few change from one batch to the next.
type knownPods struct {
	pods map[podKey]knownPod

	// bytes is the size of the pods as they were sent. Both sides forget all pods above maxKnownBytes, before the
	// next batch.
	bytes int
}

// podKey distinguishes pods with and without their details.
type podKey struct {
	uid     types.UID
	details bool
}

// knownPod is one version of a pod; the parent keeps only the version.
type knownPod struct {
	version string
	fact    *rule.PodFact
}

// maxKnownBytes is enough for 6,000 pods of one kilobyte.
const maxKnownBytes = 6 << 20

// next makes room for the pods of the next batch.
func (k *knownPods) next() {
	if k.pods == nil || k.bytes > maxKnownBytes {
		*k = knownPods{pods: map[podKey]knownPod{}}
	}
}

// has reports whether a version of a pod is known. A pod without UID or version is not.
func (k *knownPods) has(pod *rule.PodFact, details bool) bool {
	known, ok := k.pods[podKey{pod.UID, details}]
	return ok && known.version == pod.VersionWith(details)
}

var errMalformed = errors.New("the message is malformed")

// number codes a whole number.
func number[T ~int | ~int64](c *coder, value *T) {
	if !c.reads {
		c.data = binary.AppendVarint(c.data, int64(*value))
		return
	}
	read, size := binary.Varint(c.data)
	if c.err != nil || size <= 0 {
		c.fail()
		return
	}
	*value, c.data = T(read), c.data[size:]
}

func (c *coder) fail() {
	if c.err == nil {
		c.err = errMalformed
	}
	c.data = nil
}

// length codes the length of a value whose parts take at least a byte each.
func (c *coder) length(value int) int {
	number(c, &value)
	if c.reads && (value < 0 || value > len(c.data)) {
		c.fail()
		return 0
	}
	return value
}

func (c *coder) flag(value *bool) {
	coded := 0
	if *value {
		coded = 1
	}
	number(c, &coded)
	*value = coded == 1
}

func str[T ~string](c *coder, value *T) {
	size := c.length(len(*value))
	if !c.reads {
		c.data = append(c.data, *value...)
		return
	}
	*value, c.data = T(c.data[:size]), c.data[size:]
}

// document codes bytes; nil for none.
func document[T ~[]byte](c *coder, value *T) {
	size := c.length(len(*value))
	if !c.reads {
		c.data = append(c.data, *value...)
		return
	}
	if size > 0 {
		*value = append(T(nil), c.data[:size]...)
	}
	c.data = c.data[size:]
}

func (c *coder) time(value *time.Time) {
	isSet := !value.IsZero()
	if c.flag(&isSet); !isSet {
		return
	}
	nanoseconds := value.UnixNano()
	number(c, &nanoseconds)
	if c.reads {
		*value = time.Unix(0, nanoseconds)
	}
}

// failure codes an error as its text; nil as an empty text.
func (c *coder) failure(value *error) {
	message := ""
	if *value != nil {
		message = (*value).Error()
	}
	str(c, &message)
	if c.reads && message != "" {
		*value = errors.New(message)
	}
}

// list codes the elements of a list; nil for an empty list.
func list[T any](c *coder, values *[]T, element func(*coder, *T)) {
	size := c.length(len(*values))
	if c.reads && size > 0 {
		*values = make([]T, size)
	}
	for i := range *values {
		element(c, &(*values)[i])
	}
}

// entries codes the entries of a map; nil for an empty map.
func entries[K ~string, V any](c *coder, values *map[K]V, element func(*coder, *V)) {
	size := c.length(len(*values))
	if !c.reads {
		for key, value := range *values {
			str(c, &key)
			element(c, &value)
		}
		return
	}
	if size > 0 {
		*values = make(map[K]V, size)
	}
	for range size {
		var key K
		var value V
		str(c, &key)
		element(c, &value)
		(*values)[key] = value
	}
}

// batch codes a batch.
func (c *coder) batch(b *opa.Batch) {
	c.known.next()
	c.source(&b.Source)
	str(c, &b.ID)
	str(c, &b.Namespace)
	document(c, &b.Literal)
	document(c, &b.Parameters)
	c.flag(&b.Details)
	c.details = b.Details
	c.environment(&b.Environment)
	list(c, &b.Requests, (*coder).request)
	document(c, &b.Observed)
	c.flag(&b.Outputs)
}

func (c *coder) source(s *opa.Source) {
	str(c, &s.Owner)
	str(c, &s.Module)
	document(c, &s.ParametersSchema)
}

func (c *coder) environment(e *rule.Environment) {
	c.time(&e.Now)
	str(c, &e.Namespace.Name)
	entries(c, &e.Namespace.Labels, str[string])
	number(c, &e.Counts.Selected)
	number(c, &e.Counts.Desired)
	number(c, &e.Counts.Available)
	number(c, &e.Counts.Reserved)
	list(c, &e.Pods, (*coder).pod)
	entries[types.UID](c, &e.Committed, (*coder).flag)
	list(c, &e.Permits, func(c *coder, permit *rule.Permit) {
		str(c, &permit.Pod)
		c.time(&permit.At)
	})
	entries(c, &e.Workloads, func(c *coder, workload *rule.Workload) {
		number(c, &workload.Desired)
		str(c, &workload.Revision)
		c.flag(&workload.Paused)
	})
	entries(c, &e.Nodes, func(c *coder, to **rule.Node) {
		if c.reads {
			*to = &rule.Node{}
		}
		entries(c, &(*to).Labels, str[string])
		c.flag(&(*to).Unschedulable)
		entries(c, &(*to).Conditions, str[string])
	})
}

// request codes the fields of a request that users' modules read.
func (c *coder) request(r *rule.Request) {
	c.pod(&r.Pod)
	str(c, &r.Stage)
	str(c, &r.ID)
	str(c, &r.Type)
	str(c, &r.Cause)
	str(c, &r.Requester.Method)
	str(c, &r.Requester.Actor)
	str(c, &r.Requester.User)
	str(c, &r.Requester.Groups)
	c.flag(&r.Requester.GroupsTruncated)
	c.time(&r.Since)
}

// pod codes a pod, or its UID and version if it is known.
func (c *coder) pod(to **rule.PodFact) {
	if c.reads {
		*to = &rule.PodFact{}
	}
	size := len(c.data)
	str(c, &(*to).UID)
	str(c, &(*to).Version)
	if c.details {
		str(c, &(*to).Details.Version)
	}
	known := c.known.has(*to, c.details)
	if c.flag(&known); known {
		c.take(to)
		return
	}
	c.podFields(*to)
	if (*to).UID == "" || (*to).VersionWith(c.details) == "" {
		return
	}
	keep := knownPod{version: (*to).VersionWith(c.details)}
	if c.reads {
		keep.fact = *to
	}
	c.known.pods[podKey{(*to).UID, c.details}] = keep
	c.known.bytes += max(size-len(c.data), len(c.data)-size)
}

// take replaces a pod that is read by the known one.
func (c *coder) take(to **rule.PodFact) {
	switch {
	case !c.reads:
	case c.known.has(*to, c.details):
		*to = c.known.pods[podKey{(*to).UID, c.details}].fact
	default:
		c.fail()
	}
}

// podFields codes the fields of a pod that users' modules read.
func (c *coder) podFields(p *rule.PodFact) {
	str(c, &p.Namespace)
	str(c, &p.Name)
	entries(c, &p.Labels, str[string])
	entries(c, &p.Annotations, str[string])
	str(c, &p.Owner.Kind)
	str(c, &p.Owner.Name)
	str(c, &p.Owner.UID)
	str(c, &p.Revision.Current)
	str(c, &p.Revision.State)
	str(c, &p.Node)
	c.time(&p.Created)
	c.flag(&p.Ready)
	c.time(&p.AvailableSince)
	c.flag(&p.Permitted)
	list(c, &p.SkipRules, str[string])
	c.flag(&p.Available)
	if c.details {
		c.podDetails(&p.Details)
	}
}

// podDetails codes the fields of a pod that only modules read which name them.
func (c *coder) podDetails(d *rule.PodDetails) {
	list(c, &d.Containers, func(c *coder, container *corev1.Container) {
		str(c, &container.Name)
		str(c, &container.Image)
		entries(c, (*map[corev1.ResourceName]resource.Quantity)(&container.Resources.Requests), (*coder).quantity)
		entries(c, (*map[corev1.ResourceName]resource.Quantity)(&container.Resources.Limits), (*coder).quantity)
	})
	c.flag(&d.Unknown)
	number(c, &d.Restarts)
	list(c, &d.Conditions, func(c *coder, condition *corev1.PodCondition) {
		str(c, &condition.Type)
		str(c, &condition.Status)
		str(c, &condition.Reason)
		c.time(&condition.LastTransitionTime.Time)
	})
	c.time(&d.Started)
}

// quantity codes a quantity as its text.
func (c *coder) quantity(q *resource.Quantity) {
	text := q.String()
	if str(c, &text); !c.reads || c.err != nil {
		return
	}
	read, err := resource.ParseQuantity(text)
	if err != nil {
		c.fail()
	}
	*q = read
}

// answer codes an answer.
func (c *coder) answer(a *opa.Answer) {
	c.moduleError(&a.Err)
	number(c, &a.Verdict.Outcome)
	str(c, &a.Verdict.Code)
	str(c, &a.Verdict.Would)
	str(c, &a.Verdict.Message)
	str(c, &a.Verdict.Details)
	number(c, &a.Verdict.RetryAfter)
	document(c, &a.Output)
	c.failure(&a.OutputErr)
	number(c, &a.Duration)
}

// moduleError codes an error of a module; nil for none.
func (c *coder) moduleError(value *error) {
	failed := *value != nil
	if c.flag(&failed); !failed {
		return
	}
	reported := &opa.ModuleError{}
	if !c.reads {
		reported = opa.AsModuleError(*value)
	}
	str(c, &reported.Code)
	str(c, &reported.Message)
	str(c, &reported.Text)
	if c.reads {
		*value = checkedError(reported)
	}
}

// end returns an error unless all of the data was read.
func (c *coder) end() error {
	if c.err == nil && len(c.data) > 0 {
		return fmt.Errorf("%w: %d bytes are left", errMalformed, len(c.data))
	}
	return c.err
}
