package operator

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/podops-dev/podops/pkg/operator/webhookserver"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask/dispatch"
)

// newGuard returns the guard of the addresses that webhook rules may reach, and the addresses of the cluster
// in it, which the manager reads.
func newGuard(mgr manager.Manager, options Options) (webhookclient.Guard, *clusterAddresses, error) {
	guard, err := options.guard()
	if err != nil {
		return guard, nil, err
	}
	if err := indexNodes(mgr.GetFieldIndexer()); err != nil {
		return guard, nil, fmt.Errorf("indexing nodes: %w", err)
	}
	cluster := newClusterAddresses(mgr.GetAPIReader(), mgr.GetCache(), mgr.GetConfig().Host)
	if err := mgr.Add(cluster); err != nil {
		return guard, nil, fmt.Errorf("adding the addresses of the cluster: %w", err)
	}
	guard.Cluster = cluster
	if server, paces := mgr.GetWebhookServer().(*webhookserver.Server); paces {
		server.Exempt(cluster.Has)
	}
	return guard, cluster, nil
}

// addDispatcher adds the pool that makes the calls of webhook rules to the manager.
func addDispatcher(
	mgr manager.Manager, guard webhookclient.Guard, cluster *clusterAddresses, config dispatch.Config,
) (*dispatch.Dispatcher, error) {
	config.Client = webhookclient.NewClient(guard, webhookclient.Timeouts{})
	config.Pool, config.Secrets = webhookclient.PoolOptions{Log: ctrl.Log.WithName("webhook-rules")}, mgr.GetAPIReader()
	calls := dispatch.New(config)
	if err := mgr.Add(poolRunner{calls.Pool(), cluster}); err != nil {
		return nil, fmt.Errorf("adding the pool of calls: %w", err)
	}
	return calls, nil
}

// awaitAddresses bounds how long the first calls of a process wait for the addresses of the cluster.
const awaitAddresses = 10 * time.Second

// poolRunner starts the pool once the addresses of the cluster are known.
type poolRunner struct {
	*webhookclient.Pool
	cluster *clusterAddresses
}

// Start implements manager.Runnable.
func (p poolRunner) Start(ctx context.Context) error {
	p.cluster.await(ctx, awaitAddresses)
	return p.Pool.Start(ctx)
}

// guard returns the addresses that webhook rules may reach besides public addresses.
func (o *Options) guard() (webhookclient.Guard, error) {
	var guard webhookclient.Guard
	for _, text := range list(o.RuleWebhookAllowCIDR) {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return webhookclient.Guard{}, fmt.Errorf("--rule-webhook-allow-cidr: %q is not a network such as 10.1.0.0/16: %w", text, err)
		}
		guard.AllowCIDRs = append(guard.AllowCIDRs, prefix)
	}
	guard.AllowHosts = list(o.RuleWebhookAllowHost)
	return guard, nil
}
