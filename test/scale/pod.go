package main

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

func podName(n int) string { return fmt.Sprintf("web-7d4b9c6f5d-%05d", n) }

// newPod returns the n-th pod, of the size that pods have: two containers with probes and
// variables, a container that prepares them, five volumes, and the labels and annotations of
// common tools.
func newPod(n int) *corev1.Pod {
	controller := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceOf(n), Name: podName(n), GenerateName: "web-7d4b9c6f5d-",
			Labels: map[string]string{
				appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue, "app": "web", "pod-template-hash": "7d4b9c6f5d", "team": "payments",
				"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web-production", "app.kubernetes.io/version": "1.42.7",
				"app.kubernetes.io/managed-by": "Helm", "topology.kubernetes.io/zone": fmt.Sprintf("zone-%d", n%3),
			},
			Annotations: map[string]string{
				"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z", "checksum/config": strings.Repeat("0123456789abcdef", 4),
				"prometheus.io/scrape": "true", "prometheus.io/port": "9090", "prometheus.io/path": "/metrics",
				"sidecar.istio.io/status": `{"initContainers":["proxy-init"],"containers":["proxy"],"volumes":["workload-socket","credential-socket",` +
					`"workload-certs","proxy-envoy","proxy-data","proxy-podinfo","proxy-token","proxy-ca"],"imagePullSecrets":null,"revision":"default"}`,
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7d4b9c6f5d", UID: types.UID("7d4b9c6f-5d00-4000-8000-" + fmt.Sprintf("%012d", n%namespaces)),
				Controller: &controller, BlockOwnerDeletion: &controller,
			}},
		},
		Spec: podSpec(n),
	}
}

func podSpec(n int) corev1.PodSpec {
	return corev1.PodSpec{
		NodeName: fmt.Sprintf("node-%03d", n%100), ServiceAccountName: "web", PriorityClassName: "",
		InitContainers: []corev1.Container{container("proxy-init", "registry.example.com/mesh/proxy-init:1.29.1", 4)},
		Containers: []corev1.Container{
			container("web", "registry.example.com/payments/web:v0", 20), container("proxy", "registry.example.com/mesh/proxy:1.29.1", 12),
		},
		Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "web-config"}},
			}},
			{Name: "credentials", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "web-credentials"}}},
			{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "podinfo", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
			}}}},
			{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
			}}}},
		},
		Tolerations: []corev1.Toleration{
			{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
		},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		}},
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(1000)), FSGroup: new(int64(1000))},
	}
}

func container(name, image string, variables int) corev1.Container {
	c := corev1.Container{
		Name: name, Image: image, Args: []string{"--config=/etc/web/config.yaml", "--listen=:8080", "--log-format=json"},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/web", ReadOnly: true}, {Name: "credentials", MountPath: "/etc/credentials", ReadOnly: true},
			{Name: "cache", MountPath: "/var/cache/web"}, {Name: "token", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
		},
	}
	for i := range variables {
		c.Env = append(c.Env, corev1.EnvVar{
			Name: fmt.Sprintf("WEB_SETTING_%02d", i), Value: fmt.Sprintf("https://backend-%02d.payments.svc.cluster.local:8443/api/v1", i),
		})
	}
	if name != "proxy-init" {
		port := int32(8000 + len(name)) // no two containers of a pod have the same
		c.Ports = []corev1.ContainerPort{{Name: name + "-http", ContainerPort: port}, {Name: name + "-metrics", ContainerPort: port + 1000}}
		probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}, PeriodSeconds: 5}
		c.ReadinessProbe, c.LivenessProbe, c.StartupProbe = probe, probe, probe
	}
	return c
}

// kubeletStatus returns the changes of a kubelet to the status of a pod; nil if the status is
// complete: the pod runs, its containers have the images of the spec, and it is Ready as its
// readiness gate is.
func kubeletStatus(pod *corev1.Pod) map[string]any {
	status := map[string]any{}
	now := metav1.NewTime(time.Now())
	var conditions []map[string]any
	set := func(kind corev1.PodConditionType, value corev1.ConditionStatus, reason string) {
		if condition(pod, kind) != value {
			conditions = append(conditions, map[string]any{"type": kind, "status": value, "reason": reason, "lastTransitionTime": now})
		}
	}
	if pod.Status.Phase != corev1.PodRunning {
		status["phase"], status["startTime"] = corev1.PodRunning, now
		status["podIP"], status["hostIP"] = "10.0.0.1", "192.168.0.1"
		status["podIPs"], status["hostIPs"] = []corev1.PodIP{{IP: "10.0.0.1"}}, []corev1.HostIP{{IP: "192.168.0.1"}}
		init := corev1.Container{Name: "proxy-init", Image: "registry.example.com/mesh/proxy-init:1.29.1"}
		status["initContainerStatuses"] = []corev1.ContainerStatus{containerStatus(pod, init, now)}
		for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady} {
			set(kind, corev1.ConditionTrue, "")
		}
	}
	if !runsImages(pod) {
		var containers []corev1.ContainerStatus
		for _, c := range pod.Spec.Containers {
			containers = append(containers, containerStatus(pod, c, now))
		}
		status["containerStatuses"] = containers
	}
	if condition(pod, appsv1alpha1.ServiceReadyGate) == corev1.ConditionTrue {
		set(corev1.PodReady, corev1.ConditionTrue, "")
	} else {
		set(corev1.PodReady, corev1.ConditionFalse, "ReadinessGatesNotReady")
	}
	if len(conditions) > 0 {
		status["conditions"] = conditions
	}
	if len(status) == 0 {
		return nil
	}
	return status
}

func runsImages(pod *corev1.Pod) bool {
	if len(pod.Status.ContainerStatuses) != len(pod.Spec.Containers) {
		return false
	}
	for i, c := range pod.Spec.Containers {
		if pod.Status.ContainerStatuses[i].Image != c.Image {
			return false
		}
	}
	return true
}

func containerStatus(pod *corev1.Pod, c corev1.Container, now metav1.Time) corev1.ContainerStatus {
	digest := strings.Repeat("0123456789abcdef", 4)
	return corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: c.Image + "@sha256:" + digest, ContainerID: "containerd://" + string(pod.UID) + digest[:28],
		Ready: true, Started: new(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
	}
}
