// Package adaptertest is a suite that any adapter of package resourceconsist can run. It
// calls the adapter as the framework does, injects faults into the provider, and compares
// every confirmation of the adapter with the actual state of the provider:
//
//	func TestConformance(t *testing.T) {
//		adaptertest.Run(t, adaptertest.Config{
//			New: func(t testing.TB) adaptertest.Fixture {
//				provider := startProvider(t) // in memory, an HTTP server, a process
//				cluster := adaptertest.NewServiceCluster(scheme.Scheme)
//				return adaptertest.Fixture{
//					Adapter:  myadapter.New(cluster.Client, provider.Address),
//					Cluster:  cluster,
//					Provider: provider, // the methods of adaptertest.Provider
//				}
//			},
//			Ops:     []adaptertest.Op{adaptertest.ReadEmployees, adaptertest.CreateEmployees, ...},
//			Without: map[adaptertest.Kind]string{adaptertest.StaleReads: "the socket answers with the current state"},
//		})
//	}
//
// The suite knows no provider. Each case runs on three parts: the adapter, a Cluster that
// creates employers and employees (ServiceCluster does for Services and Pods), and a
// Provider that reports its actual state and injects faults. Kinds that a provider does not
// support are listed in Config.Without with the reason, and their cases are left out, as are the
// cases of operations that Config.Ops lacks. Run logs both: go test -v shows them.
//
// A case reconciles a few times and detects two kinds of failure. The state never becomes
// as wanted: the message names the wanted state and the provider's. Or the adapter confirms
// something untrue: traffic that is not on or off at the provider, a verb that counts a
// rejected item as succeeded. The second kind loses requests.
//
// The suite requires of a verb, beyond the contract of resourceconsist.ReconcileAdapter: its
// two lists are both empty or complete, no item is in both, and a failed item comes with an
// error. It may be repeated at any time, also after a reply was lost and while reads are
// stale. It returns when its context ends, and leaves retries to the framework. While an attribute
// changes for all employees, at most a fourth, or one, has no traffic.
//
// The package template below is an adapter to copy: a program with its suite, its rights and its
// registration, which runs on FakeProvider.
package adaptertest
