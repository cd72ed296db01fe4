package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientmetadata "k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

const (
	// writers is the number of requests that are sent at a time.
	writers = 32

	// ruleEvery is after how many lifecycles the status of a rule is written, as often as the manager does.
	ruleEvery = 6

	// id of the operations of command scale.
	id = "scale"
)

// writes sends the requests of lifecycles.
type writes struct {
	pods   clientmetadata.Getter
	events kubernetes.Interface
	api    client.Client
	slots  chan struct{}

	mu    sync.Mutex
	ended int

	// rules by namespace, as they were written last.
	rules map[string]*appsv1alpha1.PodTransitionRule
}

func newWrites(config *rest.Config) (*writes, error) {
	metadataOnly, err := clientmetadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of metadata: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := appsv1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making the client of rules: %w", err)
	}
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of events: %w", err)
	}
	return &writes{
		pods: metadataOnly.Resource(corev1.SchemeGroupVersion.WithResource("pods")), events: clientset, api: api,
		slots: make(chan struct{}, writers), rules: map[string]*appsv1alpha1.PodTransitionRule{},
	}, nil
}

// step is one write of a pod, and the event of it.
type step struct {
	labels       map[string]any
	gate         corev1.ConditionStatus
	reason, note string
	endsCycle    bool
}

// react sends the requests that follow from a version of a pod. The next version causes the next
// step.
func (w *writes) react(ctx context.Context, pod *corev1.Pod) {
	next := stepOf(pod)
	if next == nil {
		return
	}
	go func() {
		w.slots <- struct{}{}
		defer func() { <-w.slots }()
		if err := w.send(ctx, pod, next); err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "floor: pod %s: %v\n", pod.Name, err)
		}
	}()
}

// stepOf returns the step that follows from a pod: traffic goes off at the begin of an operation, the operation is
// allowed when the pod is not Ready, and traffic goes on after it.
func stepOf(pod *corev1.Pod) *step {
	now := strconv.FormatInt(time.Now().UnixNano(), 10)
	key := func(prefix string) string { return prefix + "/" + id }
	_, operating := pod.Labels[key(appsv1alpha1.OperatingLabelPrefix)]
	_, allowed := pod.Labels[key(appsv1alpha1.OperateLabelPrefix)]
	_, preparing := pod.Labels[key(appsv1alpha1.PreparingLabelPrefix)]
	permission := appsv1alpha1.OperationPermissionLabelPrefix + "/update"
	switch gate, ready := condition(pod, appsv1alpha1.ServiceReadyGate), condition(pod, corev1.PodReady); {
	case gate == "":
		return &step{
			labels: map[string]any{appsv1alpha1.ServiceAvailableLabelKey: now}, gate: corev1.ConditionTrue,
			reason: "ServiceAvailable", note: "the pod may serve for the first time, 0s after its creation",
		}
	case operating && !allowed && !preparing:
		return &step{
			labels: map[string]any{
				appsv1alpha1.ServiceAvailableLabelKey: nil, permission: now, key(appsv1alpha1.PreCheckedLabelPrefix): now,
				key(appsv1alpha1.PrepareLabelPrefix): now, key(appsv1alpha1.PreparingLabelPrefix): now,
			}, gate: corev1.ConditionFalse,
			reason: "Permitted", note: "operation update of id scale passed its PreCheck rules (web/max-unavailable): readiness gate False, traffic goes off",
		}
	case operating && preparing && ready != corev1.ConditionTrue:
		return &step{labels: map[string]any{
			key(appsv1alpha1.OperateLabelPrefix): now, key(appsv1alpha1.PrepareLabelPrefix): nil, key(appsv1alpha1.PreparingLabelPrefix): nil,
		}}
	case allowed && !operating:
		return &step{
			labels: map[string]any{
				appsv1alpha1.ServiceAvailableLabelKey: now, permission: nil, key(appsv1alpha1.OperateLabelPrefix): nil,
				key(appsv1alpha1.PreCheckedLabelPrefix): nil, key(appsv1alpha1.OperationTypeLabelPrefix): nil,
			}, gate: corev1.ConditionTrue, endsCycle: true,
			reason: "ServiceAvailable",
			note:   "the pod may serve again after operation update of id scale: PostCheck rules passed, readiness gate True, off traffic for 1s",
		}
	}
	return nil
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return pod.Status.Conditions[i].Status
		}
	}
	return ""
}

// send writes the pod, the event, and sometimes the status of a rule.
func (w *writes) send(ctx context.Context, pod *corev1.Pod, next *step) error {
	patch := map[string]any{"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "labels": next.labels}}
	now := metav1.Now()
	if next.gate != "" {
		patch["status"] = map[string]any{"conditions": []map[string]any{{
			"type": appsv1alpha1.ServiceReadyGate, "status": next.gate, "message": appsv1alpha1.ServiceReadyMessage, "lastTransitionTime": now,
		}}}
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	if _, err := w.pods.Namespace(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, text, metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	if next.reason != "" {
		if _, err := w.events.CoreV1().Events(pod.Namespace).Create(ctx, event(pod, next, now), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if !next.endsCycle {
		return nil
	}
	return w.writeRule(ctx, pod.Namespace)
}

// writeRule writes the status of the rule of a namespace, after some lifecycles.
func (w *writes) writeRule(ctx context.Context, namespace string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended++; w.ended%ruleEvery != 0 {
		return nil
	}
	rule := w.rules[namespace]
	if rule == nil {
		rule = &appsv1alpha1.PodTransitionRule{}
		if err := w.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "web"}, rule); err != nil {
			return err
		}
		w.rules[namespace] = rule
	}
	rule.Status.ObservedGeneration++
	return w.api.Status().Update(ctx, rule)
}

func event(pod *corev1.Pod, of *step, now metav1.Time) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: util.GenerateEventName(pod.Name, now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		},
		Type: corev1.EventTypeNormal, Reason: of.reason, Action: of.reason, Message: of.note,
		Source: corev1.EventSource{Component: "podops"}, ReportingController: "podops", ReportingInstance: "podops-floor",
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}
