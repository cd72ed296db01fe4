// Package adaptertest is a suite that any adapter of package resourceconsist can run. It
// drives the adapter as the framework does, spoils the provider on purpose, and holds
// whatever the adapter confirms against what the provider truly does:
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
//			Without: map[adaptertest.Kind]string{adaptertest.StaleReads: "the socket answers what is there"},
//		})
//	}
//
// The suite knows no provider. Three hooks make its world: the adapter, a Cluster that
// lets employers and employees exist (ServiceCluster does it for Services and Pods), and
// a Provider that tells the truth and misbehaves when asked to. What a provider cannot be
// made to do is named in Config.Without with the reason, and its cases are left out;
// nothing is left out by forgetting it.
//
// A case lets a few reconciles go by and knows two kinds of failure. Something never
// becomes as wanted: the message says what, and what the provider has instead. Or
// something is confirmed that is not true: traffic that is on or off only in the
// adapter's opinion, a verb that counts as succeeded what was refused. The second kind
// loses requests.
//
// What the suite asks of a verb beyond the words of resourceconsist.ReconcileAdapter: its
// two lists are both empty or complete, nothing is in both, and what failed comes with an
// error. It may be repeated at any time, also after a reply was lost and while reads are
// old. It returns when its context ends, and leaves repetition to the framework.
//
// An adapter without a provider at hand begins with Template, which runs on FakeProvider.
package adaptertest
