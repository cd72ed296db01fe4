package lifecycle_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/test/builders"
)

// TestPendingOf shows which employers keep a pod's traffic on, or off, and that it reports nothing
// while the pod waits for rules or for the operation.
func TestPendingOf(t *testing.T) {
	const prot = appsv1alpha1.ProtectionFinalizerPrefix + "/"
	web := func() *builders.PodBuilder { return builders.MakePod("web-0") }
	preparing := func() *builders.PodBuilder { return web().Preparing("a", "upgrade") }
	complete := func() *builders.PodBuilder { return web().Gate(true).ReadySince(builders.Epoch) }
	off, on := appsv1alpha1.ReasonPreparing, appsv1alpha1.ReasonCompleting
	for name, tc := range map[string]struct {
		pod    *corev1.Pod
		reason string
		text   string
	}{
		"a service that has not taken traffic off": {
			pod:    preparing().Finalizer(prot+"lb").Expect("Service/shop/cart", prot+"lb").Obj(),
			reason: off, text: "waits for Service/shop/cart to confirm that traffic is off (finalizer " + prot + "lb)",
		},
		"an unknown owner": {
			pod:    preparing().Finalizer(prot + "lb").Obj(),
			reason: off, text: "waits for an unknown owner to take finalizer " + prot + "lb off (annotation pod.kusionstack.io/available-conditions does not name it)",
		},
		"several": {
			pod: preparing().Finalizer(prot+"d").Finalizer(prot+"a").Finalizer(prot+"b").Finalizer(prot+"c").
				Expect("Service/shop/a", prot+"a").Expect("Service/shop/b", prot+"b").Expect("Service/shop/c", prot+"c").Obj(),
			reason: off, text: "waits for Service/shop/a to confirm that traffic is off (finalizer " + prot + "a), and " +
				"Service/shop/b to confirm that traffic is off (finalizer " + prot + "b), and Service/shop/c to confirm that traffic is off (finalizer " + prot + "c), and 1 more",
		},
		"the kubelet": {
			pod:    preparing().Gate(false).Ready().Obj(),
			reason: off, text: "waits for the kubelet to make the pod unready: its readiness gate is False and the pod is Ready",
		},
		"connections that are left": {
			pod: preparing().Gate(false).UnreadyByGate(builders.Epoch).Annotation(appsv1alpha1.DrainEndpointAnnotationKey, ":8081/drain").
				Annotation(appsv1alpha1.DrainTimeoutAnnotationKey, "2m").Obj(),
			reason: off, text: "waits up to 2m0s for the drain endpoint :8081/drain to confirm that no connection is left",
		},
		"a service that has not put traffic on": {
			pod:    complete().Expect("Service/shop/cart", prot+"lb").Obj(),
			reason: on, text: "waits for Service/shop/cart to confirm that traffic is on (finalizer " + prot + "lb is missing)",
		},
		"traffic is off":               {pod: preparing().Gate(false).UnreadyByGate(builders.Epoch).Obj()},
		"nothing is expected":          {pod: complete().Obj()},
		"it is available already":      {pod: web().Available().Expect("Service/shop/cart", prot+"lb").Obj()},
		"its containers are not ready": {pod: web().Gate(true).Unready(builders.Epoch).Expect("Service/shop/cart", prot+"lb").Obj()},
		"the user keeps it off":        {pod: complete().Label(appsv1alpha1.StayOfflineLabelKey, "x").Expect("Service/shop/cart", prot+"lb").Obj()},
		"it waits for rules":           {pod: web().Gate(false).UnreadyByGate(builders.Epoch).Finished("a", "upgrade", builders.Epoch).Expect("Service/shop/cart", prot+"lb").Obj()},
		"it is terminating":            {pod: preparing().Finalizer(prot + "lb").Terminating(builders.Epoch).Obj()},
		"it is not under PodOps":       {pod: preparing().Finalizer(prot+"lb").Label(appsv1alpha1.ControlLabelKey, "no").Obj()},
	} {
		t.Run(name, func(t *testing.T) {
			pending, ok := lifecycle.FindPending(lifecycle.NewPodFacts(tc.pod))
			if ok != (tc.reason != "") {
				t.Fatalf("waits: %v, %+v", ok, pending)
			}
			if diff := cmp.Diff([]string{tc.reason, tc.text}, []string{pending.Reason, pending.Text}); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
			if ok && (pending.Since.Before(builders.Epoch) || pending.Since.After(builders.Epoch.Add(time.Hour))) {
				t.Errorf("since %s", pending.Since)
			}
		})
	}
}

// TestPendingIsBounded matters because employers are keys of an annotation that any client may write.
func TestPendingIsBounded(t *testing.T) {
	b := builders.MakePod("web-0").Gate(true).ReadySince(builders.Epoch)
	for _, char := range []string{"a", "b", "c", "d", "e"} {
		b.Expect(strings.Repeat(char+"\x1b", 300), "prot/same")
	}
	pending, ok := lifecycle.FindPending(lifecycle.NewPodFacts(b.Obj()))
	if !ok || len(pending.Text) > 1000 || strings.Contains(pending.Text, "\x1b") {
		t.Errorf("%d bytes: %.100q", len(pending.Text), pending.Text)
	}
}
