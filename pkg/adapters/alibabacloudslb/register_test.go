package alibabacloudslb_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	slb "github.com/podops-dev/podops/pkg/adapters/alibabacloudslb"
	"github.com/podops-dev/podops/pkg/adapters/alibabacloudslb/internal/slbtest"
	"github.com/podops-dev/podops/pkg/resourceconsist"
)

func TestTheFeatureGateIsOffByDefault(t *testing.T) {
	for gates, want := range map[string]bool{
		"": false, "AlibabaCloudSlb=true": true, "AlibabaCloudSlb=false": false, " AlibabaCloudSlb=true ,": true,
	} {
		if got, err := slb.FeatureEnabled(gates); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", gates, got, err, want)
		}
	}
	for _, gates := range []string{"AlibabaCloudSlb", "AlibabaCloudSlb=yes", "GraceDeleteWebhook=true"} {
		if _, err := slb.FeatureEnabled(gates); err == nil || !strings.Contains(err.Error(), "AlibabaCloudSlb=true") {
			t.Errorf("%q: error %v does not name the feature gate", gates, err)
		}
	}
}

func TestAddToMgrMakesNoRequests(t *testing.T) {
	server := slbtest.New(t)
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)}, // the test may run twice
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			mapper := meta.NewDefaultRESTMapper(nil)
			for _, kind := range []string{"Service", "Pod"} {
				mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
			}
			return mapper, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := slb.AddToMgr(mgr, config(server), resourceconsist.WithRegistry(prometheus.NewRegistry())); err != nil {
		t.Fatal(err)
	}
	if got := server.Requests(); got != 0 {
		t.Errorf("%d requests before the manager starts", got)
	}
	if err := slb.AddToMgr(mgr, slb.Config{}); err == nil || !strings.Contains(err.Error(), "access key") {
		t.Errorf("error %v does not name the missing setting", err)
	}
}
