package podfields_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podops-dev/podops/pkg/core/podfields"
)

func TestValue(t *testing.T) {
	grace, created := int64(30), time.Date(2026, 11, 21, 12, 0, 0, 0, time.FixedZone("", 3600))
	full := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-0", Namespace: "shop", UID: "1b2c", CreationTimestamp: metav1.NewTime(created), Generation: 3,
			Labels: map[string]string{"zone": "b", "app.custom/Ready": "true"},
			Annotations: map[string]string{
				"b": "2", "a": `<"1">`,
				corev1.LastAppliedConfigAnnotation: `{"env":"secret"}`,
			},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-1", ServiceAccountName: "web", HostNetwork: true, TerminationGracePeriodSeconds: &grace,
			NodeSelector:    map[string]string{"disk": "ssd"},
			SecurityContext: &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0"}},
			Containers:      []corev1.Container{{Name: "proxy", Image: "proxy:1"}, {Name: "app", Image: "web:2"}},
		},
		Status: corev1.PodStatus{
			HostIP: "10.0.0.1", PodIP: "10.1.0.1", Phase: corev1.PodRunning,
			PodIPs:  []corev1.PodIP{{IP: "10.1.0.1"}, {IP: "fd00::1"}},
			HostIPs: []corev1.HostIP{{IP: "10.0.0.1"}},
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
				{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", LastTransitionTime: metav1.NewTime(created)},
				{Type: "example.com/warm", Status: corev1.ConditionUnknown},
			},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app", RestartCount: 3, Ready: true, Started: new(true)}, {Name: "proxy"}},
		},
	}
	full.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-7d4b", Controller: new(true)}}
	for path, want := range map[string]struct{ full, empty string }{
		"metadata.name":                                  {full: "web-0"},
		"metadata.namespace":                             {full: "shop"},
		"metadata.uid":                                   {full: "1b2c"},
		"metadata.generation":                            {full: "3", empty: "0"},
		"metadata.creationTimestamp":                     {full: "2026-11-21T11:00:00Z"},
		"metadata.deletionTimestamp":                     {},
		"metadata.labels":                                {full: `{"app.custom/Ready":"true","zone":"b"}`, empty: `{}`},
		"metadata.labels['zone']":                        {full: "b"},
		"metadata.labels['app.custom/Ready']":            {full: "true"},
		"metadata.labels['other']":                       {},
		"metadata.annotations":                           {full: `{"a":"\u003c\"1\"\u003e","b":"2"}`, empty: `{}`},
		"metadata.annotations['a']":                      {full: `<"1">`},
		"spec.nodeName":                                  {full: "node-1"},
		"spec.nodeSelector['disk']":                      {full: "ssd"},
		"spec.serviceAccountName":                        {full: "web"},
		"spec.hostNetwork":                               {full: "true", empty: "false"},
		"spec.terminationGracePeriodSeconds":             {full: "30"},
		"spec.securityContext.seLinuxOptions.level":      {full: "s0"},
		"spec.priority":                                  {},
		"status.hostIP":                                  {full: "10.0.0.1"},
		"status.podIP":                                   {full: "10.1.0.1"},
		"status.podIPs":                                  {full: "10.1.0.1,fd00::1"},
		"status.hostIPs":                                 {full: "10.0.0.1"},
		"status.phase":                                   {full: "Running"},
		"status.startTime":                               {},
		"metadata.ownerReferences[kind=ReplicaSet].name": {full: "web-7d4b"},
		"metadata.ownerReferences[kind=ReplicaSet].controller":     {full: "true"},
		"metadata.ownerReferences[kind=Job].name":                  {},
		"spec.containers[name=app].image":                          {full: "web:2"},
		"spec.containers[name=sidecar].image":                      {},
		"status.conditions[type=Ready].status":                     {full: "False"},
		"status.conditions[type=Ready].reason":                     {full: "ContainersNotReady"},
		"status.conditions[type=Ready].lastTransitionTime":         {full: "2026-11-21T11:00:00Z"},
		"status.conditions[type=example.com/warm].status":          {full: "Unknown"},
		"status.conditions[type=DisruptionTarget].status":          {},
		"status.containerStatuses[name=app].restartCount":          {full: "3"},
		"status.containerStatuses[name=app].ready":                 {full: "true"},
		"status.containerStatuses[name=app].started":               {full: "true"},
		"status.containerStatuses[name=proxy].restartCount":        {full: "0"},
		"status.containerStatuses[name=proxy].started":             {},
		"status.containerStatuses[name=unknown-name].restartCount": {},
	} {
		t.Run(path, func(t *testing.T) {
			if err := podfields.Validate(path); err != nil {
				t.Fatal(err)
			}
			if got, ok := podfields.Value(full, path); got != want.full || !ok {
				t.Errorf("got %q, %v, want %q", got, ok, want.full)
			}
			if got, ok := podfields.Value(&corev1.Pod{}, path); got != want.empty || !ok {
				t.Errorf("of an empty pod: got %q, %v, want %q", got, ok, want.empty)
			}
			if got, ok := podfields.Value(nil, path); got != "" || !ok {
				t.Errorf("of no pod: got %q, %v", got, ok)
			}
		})
	}
}

func TestValidateRejects(t *testing.T) {
	for path, want := range map[string]string{
		"":                                    "the path is empty",
		strings.Repeat("a", 513):              "513 bytes",
		"name":                                "begins with metadata, spec or status",
		"kind":                                "begins with metadata, spec or status",
		".metadata.name":                      "begins with metadata, spec or status",
		"Spec.nodeName":                       "begins with metadata, spec or status",
		"metadata":                            "not one value",
		"metadata.":                           `no field ""`,
		"metadata..name":                      `no field ""`,
		"metadata.nam":                        "kubectl explain pod.metadata",
		"spec.nodename":                       "write nodeName",
		"spec.foo.bar":                        `spec has no field "foo"`,
		"spec.nodeName.length":                "is a value and has no field",
		"status.startTime.Time":               "is a value and has no field",
		"spec.securityContext":                "not one value",
		"metadata.labels.app":                 "write metadata.labels['app']",
		"metadata.labels.app.custom/ready":    "write metadata.labels['app.custom/ready']",
		"metadata.labels[app]":                "brackets and single quotes",
		`metadata.labels["app"]`:              "brackets and single quotes",
		"metadata.labels['app'":               "brackets and single quotes",
		"metadata.labels['app'].x":            `is a value and has no field "x"`,
		"metadata.labels['app']x":             "brackets and single quotes",
		"metadata['name']":                    "has no entries",
		"spec['nodeName']":                    "has no entries",
		"metadata['labels'].name":             "has no entries",
		"metadata.labels[']":                  "brackets and single quotes",
		"metadata.labels['']":                 "brackets and single quotes",
		"metadata.labels[":                    "brackets and single quotes",
		"metadata.labels['no spaces']":        "is no key",
		"metadata.name['x']":                  "has no entries",
		"spec.resources.limits":               "not one value",
		"spec.resources.limits['cpu']":        "has no entries",
		"metadata.finalizers":                 "is a list",
		"metadata.ownerReferences[0].name":    "metadata.ownerReferences[kind=...]",
		"metadata.ownerReferences.name":       "is a list",
		"status.conditions":                   "status.conditions[type=...]",
		"status.conditions['Ready'].status":   "status.conditions[type=...]",
		"status.conditions[type=].status":     "is no type",
		"status.conditions[type=no space].x":  "is no type",
		"status.conditions[type=Ready]":       "is not one value",
		"status.conditions[type=Ready].state": `status.conditions has no field "state"`,
		"status.containerStatuses.image":      "status.containerStatuses[name=...]",
		"status.containerStatuses[name=app].lastState.terminated.message":          "lastState of an item of status.containerStatuses is not sent: name one of ready,",
		"status.initContainerStatuses[name=app].ready":                             "has no entries",
		"spec.tolerations[key=a].value":                                            "has no entries",
		"spec.containers[name=app]":                                                "only an image is",
		"spec.containers[name=app].env":                                            "only an image is",
		"spec.containers[name=app].image.x":                                        "only an image is",
		"spec.containers[image=app].image":                                         "spec.containers[name=...]",
		"spec.initContainers[name=app].image":                                      "may hold secrets",
		"spec.containers":                                                          "may hold secrets",
		"spec.containers[0].env":                                                   "may hold secrets",
		"spec.containers[*].env":                                                   "may hold secrets",
		"spec.containers.command":                                                  "may hold secrets",
		"spec.initContainers[0].args":                                              "may hold secrets",
		"spec.ephemeralContainers[0].envFrom":                                      "may hold secrets",
		"spec.volumes":                                                             "may hold secrets",
		"spec.imagePullSecrets[0].name":                                            "may hold secrets",
		"metadata.annotations['kubectl.kubernetes.io/last-applied-configuration']": "may hold secrets",
	} {
		t.Run(path, func(t *testing.T) {
			err := podfields.Validate(path)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			if value, ok := podfields.Value(&corev1.Pod{}, path); ok || value != "" {
				t.Errorf("the value is %q, %v", value, ok)
			}
		})
	}
}

func TestValuesAreBounded(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		"fits": strings.Repeat("x", podfields.MaxValueBytes), "long": strings.Repeat("x", podfields.MaxValueBytes+1),
	}}}
	for path, want := range map[string]int{
		"metadata.annotations['fits']": podfields.MaxValueBytes,
		"metadata.annotations['long']": 0,
		"metadata.annotations":         0,
	} {
		if got, ok := podfields.Value(pod, path); len(got) != want || !ok {
			t.Errorf("%s: got %d bytes, %v, want %d", path, len(got), ok, want)
		}
	}
}

// FuzzPath shows that no path panics, that a valid path has a value in every pod, and that no value contains a secret.
func FuzzPath(f *testing.F) {
	for _, path := range []string{
		"", "metadata.name", "metadata.labels['a']", "metadata.labels", "spec.containers[0].env", "status.podIPs",
		"spec.affinity.nodeAffinity", "status..", "spec[", "metadata.annotations['a']", "spec.os.name",
		"spec.containers[name=app].image", "status.conditions[type=Ready].status", "metadata.ownerReferences[kind=Job].name",
	} {
		f.Add(path)
	}
	const secret = "hunter2"
	full := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: secret}},
		Spec: corev1.PodSpec{
			Containers:       []corev1.Container{{Name: "app", Env: []corev1.EnvVar{{Value: secret}}, Command: []string{secret}}},
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: secret}},
			Volumes:          []corev1.Volume{{Name: secret}},
		},
	}
	f.Fuzz(func(t *testing.T, path string) {
		err := podfields.Validate(path)
		for _, pod := range []*corev1.Pod{nil, {}, full} {
			value, ok := podfields.Value(pod, path)
			if ok != (err == nil) {
				t.Errorf("valid: %v, has a value: %v", err, ok)
			}
			if strings.Contains(value, secret) || len(value) > podfields.MaxValueBytes {
				t.Errorf("the value is %q", value)
			}
		}
	})
}

// TestEveryFieldOfThePod shows that every field that a path can name has a value, of any type.
func TestEveryFieldOfThePod(t *testing.T) {
	accepted := 0
	var walk func(reflect.Type, string)
	walk = func(parent reflect.Type, path string) {
		for parent.Kind() == reflect.Pointer || parent.Kind() == reflect.Slice {
			parent = parent.Elem()
		}
		if parent.Kind() != reflect.Struct || parent.PkgPath() == "time" {
			return
		}
		for _, field := range reflect.VisibleFields(parent) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "" || !field.IsExported() {
				continue
			}
			below := strings.TrimPrefix(path+"."+name, ".")
			_, ok := podfields.Value(&corev1.Pod{}, below)
			if err := podfields.Validate(below); ok != (err == nil) {
				t.Errorf("%s: valid: %v, has a value: %v", below, err, ok)
			}
			if ok {
				accepted++
			}
			walk(field.Type, below)
		}
	}
	walk(reflect.TypeFor[corev1.Pod](), "")
	if accepted < 50 {
		t.Errorf("only %d paths are accepted", accepted)
	}
}
