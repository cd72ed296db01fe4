package cluster

import (
	"slices"
	"strings"
	"testing"
)

// TestSettingsThatMatter pins the settings that tests rely on.
func TestSettingsThatMatter(t *testing.T) {
	c, err := newConfig(options(func(*Options) {}))
	if err != nil {
		t.Fatal(err)
	}
	shared, err := newConfig(options(func(o *Options) { o.OneIdentity = true }))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		component component
		want      []string
	}{
		"rights apply, to kubelets too": {c.apiServer(), []string{
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--anonymous-auth=false",
		}},
		"writes are logged before they are answered": {c.apiServer(), []string{
			"--audit-log-path=/state/audit.log", "--audit-log-mode=blocking",
		}},
		"webhooks can verify who calls them":    {c.apiServer(), []string{"--admission-control-config-file=/state/admission.yaml"}},
		"controllers have users of their own":   {c.controllerManager(), []string{"--use-service-account-credentials=true"}},
		"controllers share one user on request": {shared.controllerManager(), []string{"--use-service-account-credentials=false"}},
		"loopback endpoints are disabled": {c.controllerManager(), []string{
			"--controllers=*,-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller",
		}},
		"no write waits for the disk": {c.etcd(), []string{"--unsafe-no-fsync"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, want := range tc.want {
				if !slices.Contains(tc.component.args, want) {
					t.Errorf("%s has no %s", tc.component.name, want)
				}
			}
		})
	}
}

// TestComponentsStayInTheirCluster checks that every address and file of a component
// belongs to its cluster alone.
func TestComponentsStayInTheirCluster(t *testing.T) {
	c, err := newConfig(options(func(*Options) {}))
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range c.startOrder() {
		for _, component := range group {
			if !strings.Contains(strings.Join(component.args, " "), "/state/") {
				t.Errorf("%s has nothing of the state folder on its command line", component.name)
			}
			for _, arg := range component.args {
				if strings.Contains(arg, "0.0.0.0") {
					t.Errorf("%s serves to other machines: %s", component.name, arg)
				}
			}
		}
	}
}
