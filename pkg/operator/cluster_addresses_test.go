package operator

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
)

func TestRulesMayNotReachTheClusterItself(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}, {Type: corev1.NodeHostName, Address: "n"}, {Type: corev1.NodeExternalIP, Address: "fd12::7"},
	}}}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.1"}}}
	slice := func(namespace, name, of, address string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: of}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
		}
	}
	nodes := fake.NewClientBuilder().WithObjects(node).WithIndex(&corev1.Node{}, nodeAddressField, nodeAddresses).Build()
	var failing error
	reader := interceptor.NewClient(fake.NewClientBuilder().WithObjects(service,
		slice("default", "kubernetes", "kubernetes", "172.16.0.1"), slice("default", "web", "web", "10.1.0.1"), slice("shop", "kubernetes", "kubernetes", "10.1.0.2"),
	).WithStatusSubresource().Build(), interceptor.Funcs{
		List: func(ctx context.Context, on client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if failing != nil {
				return failing
			}
			return on.List(ctx, list, options...)
		},
	})
	addresses := newClusterAddresses(reader, nodes, "https://192.0.2.10:6443")
	guard := webhookclient.Guard{Cluster: addresses}
	expect := func(what, address string, want webhookclient.Class) {
		t.Helper()
		got := webhookclient.Class("")
		if err := guard.Check(netip.MustParseAddr(address)); err != nil {
			got = webhookclient.AsFailure(err).Class
		}
		if got != want {
			t.Errorf("%s %s is %q, want %q", what, address, got, want)
		}
	}
	expect("before they are read", "10.1.0.1", webhookclient.ClassInternal)
	if err := guard.CheckURL("http://10.1.0.1/"); err != nil {
		t.Errorf("admission waits for the addresses: %v", err)
	}
	if err := addresses.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	failing = errors.New("the API server is busy")
	if err := addresses.refresh(t.Context()); !errors.Is(err, failing) {
		t.Errorf("the failure is %v", err)
	}
	for address, want := range map[string]webhookclient.Class{
		"10.0.0.7": webhookclient.ClassAddressForbidden, "::ffff:10.0.0.7": webhookclient.ClassAddressForbidden, "64:ff9b::a00:7": webhookclient.ClassAddressForbidden,
		"fd12::7": webhookclient.ClassAddressForbidden, "10.96.0.1": webhookclient.ClassAddressForbidden, "172.16.0.1": webhookclient.ClassAddressForbidden,
		"192.0.2.10": webhookclient.ClassAddressForbidden, "10.1.0.1": "", "10.1.0.2": "", "10.96.0.2": "",
	} {
		expect("the address", address, want)
	}
	guard.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}
	expect("allowed by the flag,", "10.0.0.7", "")
	if err := nodes.Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	expect("of a node that is gone,", "fd12::7", "")
}
