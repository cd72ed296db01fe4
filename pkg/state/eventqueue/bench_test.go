package eventqueue

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/podops-dev/podops/test/builders"
)

// echo responds to each request with its own body, as an API server that stores it does.
type echo struct{}

func (echo) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusCreated, Request: r, Body: io.NopCloser(bytes.NewReader(body)),
		Header: http.Header{"Content-Type": r.Header["Content-Type"]},
	}, nil
}

// BenchmarkEvent measures the cost of one event for the process, from Eventf to the response of the
// API server, without the network.
func BenchmarkEvent(b *testing.B) {
	for _, contentType := range []string{apiruntime.ContentTypeJSON, apiruntime.ContentTypeProtobuf} {
		b.Run(contentType, func(b *testing.B) {
			clientset, err := kubernetes.NewForConfig(&rest.Config{
				Host: "http://localhost", QPS: -1, Transport: echo{}, ContentConfig: rest.ContentConfig{ContentType: contentType},
			})
			if err != nil {
				b.Fatal(err)
			}
			metrics, err := NewMetrics(prometheus.NewRegistry())
			if err != nil {
				b.Fatal(err)
			}
			plenty := limits{entries: 1 << 20, bytes: 1 << 30, namespaceEntries: 1 << 20, rate: 1e9, burst: 1 << 30, totalRate: 1e9, totalBurst: 1 << 30}
			queue := newQueue(scheme.Scheme, APISink{Events: clientset.CoreV1()}, clock.RealClock{}, metrics, plenty)
			recorder := queue.Recorder("podops")
			b.ReportAllocs()
			for i := range b.N {
				pod := builders.MakePod(fmt.Sprintf("web-%d", i)).Obj()
				recorder.Eventf(pod, nil, corev1.EventTypeNormal, "Permitted", "Permit",
					"operation update of id updater passed its PreCheck rules (max-unavailable): readiness gate False, traffic goes off")
				if _, sent := queue.sendNext(b.Context()); !sent {
					b.Fatal("nothing was sent")
				}
			}
			if drops := len(queue.backlog.turns[0].entries); drops > 0 {
				b.Fatalf("%d events were not sent", drops)
			}
		})
	}
}
