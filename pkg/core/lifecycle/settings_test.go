package lifecycle_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/test/builders"
)

// TestDrainSettings shows which annotations name a drain endpoint, and the errors of the others.
func TestDrainSettings(t *testing.T) {
	endpoint := func(path string, timeout time.Duration) lifecycle.DrainEndpoint {
		return lifecycle.DrainEndpoint{Port: 8081, Path: path, Timeout: timeout}
	}
	for value, tc := range map[string]struct {
		timeout string
		host    bool
		want    lifecycle.DrainEndpoint
		err     string
	}{
		":8081/drain":                       {want: endpoint("/drain", lifecycle.DefaultDrainTimeout)},
		":8081/":                            {timeout: "1h", want: endpoint("/", time.Hour)},
		":8081/a/b;c=d":                     {timeout: "1ms", want: endpoint("/a/b;c=d", time.Millisecond)},
		":8081//other.example.com/":         {timeout: "61m", want: endpoint("//other.example.com/", lifecycle.DefaultDrainTimeout), err: `drain-timeout is "61m"`},
		":8081/zero":                        {timeout: "0s", want: endpoint("/zero", lifecycle.DefaultDrainTimeout), err: `drain-timeout is "0s"`},
		":8081/host":                        {host: true, err: "hostNetwork"},
		"":                                  {err: "want a port and a path such as :8081/drain"},
		":8081":                             {err: `is ":8081"`},
		"8081/drain":                        {err: `is "8081/drain"`},
		":0/drain":                          {err: `is ":0/drain"`},
		":65536/drain":                      {err: "is "},
		":-1/drain":                         {err: "is "},
		":8081/drain?now":                   {err: "is "},
		":8081/%2e%2e/":                     {err: "is "},
		":8081/dr ain":                      {err: "is "},
		":8081/dräin":                       {err: "is "},
		":8081/\r\nHost: x":                 {err: "is "},
		":8081/" + strings.Repeat("a", 256): {err: "is "},
		"http://10.0.0.1:8081/drain":        {err: "is "},
	} {
		t.Run(value, func(t *testing.T) {
			pod := builders.MakePod("web-0").Annotation(appsv1alpha1.DrainEndpointAnnotationKey, value)
			if tc.timeout != "" {
				pod = pod.Annotation(appsv1alpha1.DrainTimeoutAnnotationKey, tc.timeout)
			}
			built := pod.Obj()
			built.Spec.HostNetwork = tc.host
			facts := lifecycle.NewPodFacts(built)
			if diff := cmp.Diff(tc.want, facts.DrainEndpoint); diff != "" {
				t.Errorf("endpoint (-want +got):\n%s", diff)
			}
			if err := facts.AnnotationErr; (err != nil) != (tc.err != "") || err != nil && (!strings.Contains(err.Error(), tc.err) || len(err.Error()) > 200) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
		})
	}
}
