package alibabacloudslb_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	slb "github.com/podops-dev/podops/pkg/adapters/alibabacloudslb"
)

func genericEvent(object client.Object) event.GenericEvent { return event.GenericEvent{Object: object} }

func TestParseSettings(t *testing.T) {
	for sentence, tc := range map[string]struct {
		service *corev1.Service
		want    slb.Settings
	}{
		"observed by default": {service(ofLoadBalancer("lb-1")), slb.Settings{LoadBalancerID: "lb-1"}},
		"observed, with groups of the user": {
			service(annotated(slb.LoadBalancerIDAnnotationKey, "lb-1", slb.GroupPortAnnotationKey, "rsp-b:443,rsp-a:80,rsp-a:81")),
			slb.Settings{LoadBalancerID: "lb-1", ObservedGroups: []string{"rsp-a", "rsp-b"}},
		},
		"managed": {
			service(managed("rsp-b:8443, rsp-a:8080,rsp-a:8080")),
			slb.Settings{Managed: true, Groups: []slb.GroupPort{{Group: "rsp-a", Port: 8080}, {Group: "rsp-b", Port: 8443}}, Weight: 100},
		},
		"managed, with every annotation": {
			service(managed("rsp-a:1"), annotated(slb.WeightAnnotationKey, "1", slb.TrafficOffAnnotationKey, "remove", slb.UsedGroupsAnnotationKey, "rsp-z,rsp-a")),
			slb.Settings{
				Managed: true, Groups: []slb.GroupPort{{Group: "rsp-a", Port: 1}}, Weight: 1, OffByRemoval: true,
				UsedGroups: []string{"rsp-a", "rsp-z"},
			},
		},
		"formerly managed": {
			service(annotated(slb.UsedGroupsAnnotationKey, "rsp-a")),
			slb.Settings{Managed: true, Weight: 100, UsedGroups: []string{"rsp-a"}},
		},
		"handed over to the cloud controller manager": {
			service(ofLoadBalancer("lb-1"), annotated(slb.BackendsAnnotationKey, "observed", slb.UsedGroupsAnnotationKey, "rsp-a")),
			slb.Settings{LoadBalancerID: "lb-1"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := slb.ParseSettings(tc.service)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestErrorsOfSettingsNameTheirAnnotation(t *testing.T) {
	many := strings.Repeat("rsp-a:80,", 60)
	for sentence, tc := range map[string]struct{ key, value string }{
		"no groups":                     {slb.GroupsAnnotationKey, " , "},
		"a group without a port":        {slb.GroupsAnnotationKey, "rsp-a"},
		"an invalid port":               {slb.GroupsAnnotationKey, "rsp-a:http"},
		"port zero":                     {slb.GroupsAnnotationKey, "rsp-a:0"},
		"a port that is too large":      {slb.GroupsAnnotationKey, "rsp-a:65536"},
		"an invalid group":              {slb.GroupsAnnotationKey, "rsp_a&Action=x:80"},
		"too many groups":               {slb.GroupsAnnotationKey, many},
		"a huge group":                  {slb.GroupsAnnotationKey, strings.Repeat("a", 10_000) + ":80"},
		"weight zero":                   {slb.WeightAnnotationKey, "0"},
		"a weight above 100":            {slb.WeightAnnotationKey, "101"},
		"a weight in percent":           {slb.WeightAnnotationKey, "50%"},
		"an unknown way of turning off": {slb.TrafficOffAnnotationKey, "drain"},
		"an invalid record":             {slb.UsedGroupsAnnotationKey, "rsp a"},
		"a record that is too long":     {slb.UsedGroupsAnnotationKey, strings.Repeat("rsp-a,", 60)},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, err := slb.ParseSettings(service(managed("rsp-a:80"), annotated(tc.key, tc.value)))
			if err == nil || !strings.Contains(err.Error(), tc.key) || len(err.Error()) > 1000 {
				t.Errorf("error %.200v does not name %s", err, tc.key)
			}
		})
	}
}

func TestParsingNeverPanics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := service()
		for _, key := range []string{
			slb.BackendsAnnotationKey, slb.GroupsAnnotationKey, slb.WeightAnnotationKey,
			slb.TrafficOffAnnotationKey, slb.UsedGroupsAnnotationKey, slb.GroupPortAnnotationKey,
		} {
			s.Annotations[key] = rapid.OneOf(
				rapid.String(), rapid.SampledFrom([]string{"managed", "rsp-a:80", "rsp-a", "7", "remove"}),
			).Draw(t, key)
		}
		settings, err := slb.ParseSettings(s)
		if err == nil && settings.Managed && (settings.Weight < 1 || settings.Weight > 100) {
			t.Fatalf("weight %d", settings.Weight)
		}
	})
}
