package cluster_test

import (
	"testing"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/cluster"
)

func TestParseTarget(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		selector  string
		want      string
		fails     bool
	}{
		"nothing":                {want: "pod"},
		"the name of a pod":      {arguments: []string{"web-0"}, want: "pod/web-0"},
		"pod/name":               {arguments: []string{"pod/web-0"}, want: "pod/web-0"},
		"po/name":                {arguments: []string{"po/web-0"}, want: "pod/web-0"},
		"kind and name":          {arguments: []string{"pods", "web-0"}, want: "pod/web-0"},
		"a Deployment":           {arguments: []string{"deployment.apps/web"}, want: "deploy/web"},
		"a StatefulSet":          {arguments: []string{"sts/db"}, want: "sts/db"},
		"a DaemonSet":            {arguments: []string{"ds/agent"}, want: "ds/agent"},
		"a ReplicaSet":           {arguments: []string{"rs/web-5d"}, want: "rs/web-5d"},
		"a rule":                 {arguments: []string{"PTR/web"}, want: "ptr/web"},
		"all rules":              {arguments: []string{"ptr"}, want: "ptr"},
		"all pods of a selector": {selector: "app=web", want: "pod"},
		"an unknown kind":        {arguments: []string{"job/x"}, fails: true},
		"two names":              {arguments: []string{"pod", "a", "b"}, fails: true},
		"two objects":            {arguments: []string{"pod/a", "pod/b"}, fails: true},
		"a kind without a name":  {arguments: []string{"deploy/"}, fails: true},
		"a name without a kind":  {arguments: []string{"/web"}, fails: true},
		"a name and a selector":  {arguments: []string{"pod/a"}, selector: "app=web", fails: true},
		"an invalid selector":    {selector: "app in", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			target, err := cluster.ParseTarget(test.arguments, test.selector)
			if (err != nil) != test.fails {
				t.Fatalf("error %v", err)
			}
			if got := target.String(); err == nil && got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
