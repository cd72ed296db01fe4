package tracing

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// Lifecycle identifies one lifecycle of a pod.
type Lifecycle struct {
	Namespace, Pod string
	UID            types.UID

	// ID is the id of the lifecycle on the pod.
	ID string

	// Trace is the trace of the lifecycle.
	Trace trace.TraceID
}

// NewLifecycle returns the lifecycle for an id on a pod. It returns false if the pod does not record when the lifecycle
// began: no manager that exports traces has seen its begin.
func NewLifecycle(namespace, pod string, uid types.UID, labels map[string]string, id string) (Lifecycle, bool) {
	began, ok := lifecycle.Value(labels, appsv1alpha1.BeganLabelPrefix, id)
	if !ok {
		return Lifecycle{}, false
	}
	return Lifecycle{Namespace: namespace, Pod: pod, UID: uid, ID: id, Trace: newTraceID(uid, id, began)}, true
}

// LifecycleOfRequest is NewLifecycle for a request that waits.
func LifecycleOfRequest(request rule.Request) (Lifecycle, bool) {
	pod := request.Pod
	return NewLifecycle(pod.Namespace, pod.Name, pod.UID, pod.Labels, request.ID)
}

// IsRecorded reports whether labels of a pod record when a lifecycle began.
func IsRecorded(labels map[string]string) bool {
	for key := range labels {
		if strings.HasPrefix(key, appsv1alpha1.BeganLabelPrefix+"/") {
			return true
		}
	}
	return false
}

// newTraceID returns the trace id of a lifecycle. No part contains a slash.
func newTraceID(uid types.UID, id, began string) trace.TraceID {
	sum := sha256.Sum256([]byte(string(uid) + "/" + id + "/" + began))
	return trace.TraceID(sum[:16])
}

// newSpanID returns the span id for a name that is unique in its trace.
func newSpanID(of trace.TraceID, unique ...string) trace.SpanID {
	sum := sha256.Sum256(append(of[:], strings.Join(unique, "/")...))
	return trace.SpanID(sum[:8])
}

// Sampled reports whether a trace belongs to a share of all traces, from 0 to 1. Every manager with the same share
// selects the same traces.
func Sampled(of trace.TraceID, share float64) bool {
	if share >= 1 {
		return true
	}
	return float64(binary.BigEndian.Uint64(of[8:])>>1) < share*(1<<63)
}
