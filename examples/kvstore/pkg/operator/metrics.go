package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
)

// collectTimeout bounds the reading of clusters for a scrape. The reader is a cache.
const collectTimeout = 5 * time.Second

// deletions is a prometheus.Collector with a series for each cluster that is being deleted.
type deletions struct {
	reader client.Reader
	since  *prometheus.Desc
}

// RegisterMetrics registers the metrics of clusters. reader is a cache.
func RegisterMetrics(registerer prometheus.Registerer, reader client.Reader) error {
	err := registerer.Register(deletions{reader, prometheus.NewDesc("kvstore_cluster_deletion_timestamp_seconds",
		"Unix time of the deletion of a KVStoreCluster that has its finalizer.", []string{"namespace", "name"}, nil)})
	if err != nil {
		return fmt.Errorf("registering the metrics of clusters: %w", err)
	}
	return nil
}

// Describe implements prometheus.Collector.
func (d deletions) Describe(descs chan<- *prometheus.Desc) { descs <- d.since }

// Collect implements prometheus.Collector.
func (d deletions) Collect(metrics chan<- prometheus.Metric) {
	ctx, stop := context.WithTimeout(context.Background(), collectTimeout)
	defer stop()
	var clusters kvstorev1.KVStoreClusterList
	if err := d.reader.List(ctx, &clusters); err != nil {
		metrics <- prometheus.NewInvalidMetric(d.since, err)
		return
	}
	for i := range clusters.Items {
		if cluster := &clusters.Items[i]; cluster.DeletionTimestamp != nil {
			metrics <- prometheus.MustNewConstMetric(d.since, prometheus.GaugeValue, float64(cluster.DeletionTimestamp.Unix()), cluster.Namespace, cluster.Name)
		}
	}
}
