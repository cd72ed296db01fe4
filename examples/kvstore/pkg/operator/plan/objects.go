package plan

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
)

// Ports of a member.
const (
	ClientPort = 8080
	PeerPort   = 7000
)

// Names within pods.
const (
	ContainerName = "kvstore"
	VolumeName    = "data"
	dataFolder    = "/data"
	scratchName   = "scratch" // of Jobs, which write a backup there before it is uploaded
	scratchFolder = "/tmp"

	// versionArg is the argument of a member with its version.
	versionArg = "--version="
)

// Bounds of Jobs.
const (
	checkSeconds     = 300       // how long a health check may take
	checkTries       = 1         // how often it is repeated by the Job
	backupSeconds    = 3600      // how long a backup may take
	migrationSeconds = 3600      // how long a migration may take
	checkTTLSeconds  = 24 * 3600 // how long the Job of a check remains
)

// nonRoot is the user of the processes.
const nonRoot = 65532

// objects decides the writes of the Service and the StatefulSet: none if they are as desired.
func (p *planner) objects(replicas int32) {
	if service := p.service(); p.Service == nil {
		p.decision.Service = service
	} else if !equality.Semantic.DeepDerivative(service.Spec, p.Service.Spec) || lacks(p.Service.Labels, service.Labels) {
		changed := p.Service.DeepCopy()
		changed.Labels = union(changed.Labels, service.Labels)
		changed.Spec.Selector, changed.Spec.Ports = service.Spec.Selector, service.Spec.Ports
		changed.Spec.PublishNotReadyAddresses = service.Spec.PublishNotReadyAddresses
		p.decision.Service = changed
	}
	set := p.statefulSet(replicas)
	if p.StatefulSet == nil {
		p.decision.StatefulSet = set
		return
	}
	found := p.StatefulSet
	if found.DeletionTimestamp != nil || asDesired(set, found) {
		return
	}
	changed := found.DeepCopy()
	changed.Labels = union(changed.Labels, set.Labels)
	changed.Spec.Replicas, changed.Spec.Template, changed.Spec.UpdateStrategy = set.Spec.Replicas, set.Spec.Template, set.Spec.UpdateStrategy
	changed.Spec.PersistentVolumeClaimRetentionPolicy = set.Spec.PersistentVolumeClaimRetentionPolicy
	p.decision.StatefulSet = changed
}

// asDesired reports whether a StatefulSet has every field that the operator manages as desired. Defaults
// of the API server, and fields of others, do not count.
func asDesired(desired, found *appsv1.StatefulSet) bool {
	return equality.Semantic.DeepDerivative(managed(desired), managed(found)) && !lacks(found.Labels, desired.Labels)
}

// managed returns the fields of a StatefulSet that may change after its creation.
func managed(set *appsv1.StatefulSet) appsv1.StatefulSetSpec {
	return appsv1.StatefulSetSpec{
		Replicas: set.Spec.Replicas, Template: set.Spec.Template, UpdateStrategy: set.Spec.UpdateStrategy,
		PersistentVolumeClaimRetentionPolicy: set.Spec.PersistentVolumeClaimRetentionPolicy,
	}
}

func lacks(found, desired map[string]string) bool {
	for key, value := range desired {
		if found[key] != value {
			return true
		}
	}
	return false
}

func union(found, desired map[string]string) map[string]string {
	all := maps.Clone(found)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, desired)
	return all
}

// Labels returns the labels of a cluster's objects, and MemberLabels the labels of its pods.
func Labels(cluster string) map[string]string {
	return map[string]string{kvstorev1.NameLabelKey: kvstorev1.NameLabelValue, kvstorev1.InstanceLabelKey: cluster}
}

// MemberLabels returns the labels that select the pods and the claims of a cluster.
func MemberLabels(cluster string) map[string]string {
	labels := Labels(cluster)
	labels[kvstorev1.ComponentLabelKey] = kvstorev1.ComponentMember
	return labels
}

// meta returns the metadata for an object of the cluster.
func (p *planner) meta(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: p.Cluster.Namespace, Name: name, Labels: labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p.Cluster, kvstorev1.GroupVersion().WithKind("KVStoreCluster"))},
	}
}

// service returns the headless Service that gives the pods their names. Members find each other before
// they are ready.
func (p *planner) service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: p.meta(p.Cluster.Name, Labels(p.Cluster.Name)),
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true, Selector: MemberLabels(p.Cluster.Name),
			Ports: []corev1.ServicePort{
				{Name: "client", Port: ClientPort, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("client")},
				{Name: "peer", Port: PeerPort, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("peer")},
			},
		},
	}
}

// statefulSet returns the StatefulSet that follows from the status: the version and the partition
// come from the upgrade, if any.
func (p *planner) statefulSet(replicas int32) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: p.meta(p.Cluster.Name, Labels(p.Cluster.Name)),
		Spec: appsv1.StatefulSetSpec{
			ServiceName: p.Cluster.Name,
			Replicas:    &replicas,
			Selector:    &metav1.LabelSelector{MatchLabels: MemberLabels(p.Cluster.Name)},
			// A store without a quorum is not ready, and a pod of a bad version never: with
			// OrderedReady neither the second pod nor a rollback would come.
			PodManagementPolicy: appsv1.ParallelPodManagement,
			UpdateStrategy:      p.updateStrategy(),
			// The data of a pod that was scaled in are stale when it comes back. After a deletion
			// the operator deletes the claims, once the backup is complete.
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			},
			Template:             p.template(p.version()),
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{p.claim()},
		},
	}
}

// version returns the version of new pods.
func (p *planner) version() string {
	u := p.status.Upgrade
	switch {
	case p.upgrading() && u.RollingBack:
		return u.FromVersion
	case p.upgrading():
		return u.ToVersion
	case p.status.CurrentVersion != "":
		return p.status.CurrentVersion
	default:
		return p.Cluster.Spec.Version
	}
}

// updateStrategy returns the partition of an upgrade's step. In a rollback the operator deletes the
// pods: with a partition the StatefulSet controller would choose them, and it may create pods below
// the partition with the version to leave, if all pods had it.
func (p *planner) updateStrategy() appsv1.StatefulSetUpdateStrategy {
	partition := int32(0)
	u := p.status.Upgrade
	switch {
	case p.upgrading() && u.RollingBack:
		return appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	case p.upgrading() && u.Step == kvstorev1.StepWaiting:
		partition = u.Ordinal + 1
	case p.upgrading():
		partition = u.Ordinal
	}
	return appsv1.StatefulSetUpdateStrategy{
		Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: &partition},
	}
}

func (p *planner) template(version string) corev1.PodTemplateSpec {
	labels := MemberLabels(p.Cluster.Name)
	labels[appsv1alpha1.ControlLabelKey] = appsv1alpha1.ControlLabelValue
	domain := p.Cluster.Name + "." + p.Cluster.Namespace + ".svc"
	container := p.container(version, "serve", "--id=$(POD_NAME)", "--host=$(POD_NAME)."+domain, "--listen=$(POD_IP)",
		"--cluster="+p.identity(), "--data="+dataFolder, "--seeds="+domain, "--bootstrap="+PodName(p.Cluster.Name, 0), versionArg+version)
	container.Env = []corev1.EnvVar{fromField("POD_NAME", "metadata.name"), fromField("POD_IP", "status.podIP")}
	container.Ports = []corev1.ContainerPort{
		{Name: "client", ContainerPort: ClientPort, Protocol: corev1.ProtocolTCP},
		{Name: "peer", ContainerPort: PeerPort, Protocol: corev1.ProtocolTCP},
	}
	container.ReadinessProbe = probe("/readyz", 2, 3)
	container.LivenessProbe = probe("/livez", 10, 6)
	container.VolumeMounts = []corev1.VolumeMount{{Name: VolumeName, MountPath: dataFolder}}
	spec := p.podSpec(container)
	spec.TerminationGracePeriodSeconds = ptr.To(int64(30))
	spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 100,
			PodAffinityTerm: corev1.PodAffinityTerm{
				LabelSelector: &metav1.LabelSelector{MatchLabels: MemberLabels(p.Cluster.Name)}, TopologyKey: corev1.LabelHostname,
			},
		}},
	}}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}
}

func (p *planner) claim() corev1.PersistentVolumeClaim {
	// Admission has checked the size; an object that was stored without it gets no storage.
	size, _ := resource.ParseQuantity(p.Cluster.Spec.Storage.Size)
	return corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: VolumeName},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: ptr.To(p.Cluster.Spec.Storage.ClassName),
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
		},
	}
}

// container returns a container of the store's image.
func (p *planner) container(version string, args ...string) corev1.Container {
	return corev1.Container{
		Name: ContainerName, Image: p.settings.Image + ":" + version, Args: args,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}

func (p *planner) podSpec(container corev1.Container) corev1.PodSpec {
	return corev1.PodSpec{
		AutomountServiceAccountToken: ptr.To(false),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(int64(nonRoot)), FSGroup: ptr.To(int64(nonRoot)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{container},
	}
}

// identity returns the name of the cluster among all clusters that ever were.
func (p *planner) identity() string {
	return p.Cluster.Namespace + "/" + p.Cluster.Name + "/" + string(p.Cluster.UID)
}

func fromField(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

// probe returns a probe with every number set: asDesired compares numbers that are 0, too.
func probe(path string, period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:   corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("client")}},
		TimeoutSeconds: 1, PeriodSeconds: period, SuccessThreshold: 1, FailureThreshold: failures,
	}
}

// checkName returns the name of the Job that checks the pod of a step.
func checkName(cluster string, u *kvstorev1.UpgradeStatus) string {
	return fmt.Sprintf("%s-check-%d-%d", cluster, u.Generation, u.Ordinal)
}

// backupName returns a backup's Job name after a number of failures.
func backupName(cluster string, failures int32) string {
	return cluster + "-backup-" + strconv.Itoa(int(failures))
}

func (p *planner) checkJob(u *kvstorev1.UpgradeStatus, m Member) *batchv1.Job {
	job := p.job(checkName(p.Cluster.Name, u), kvstorev1.ComponentHealthCheck,
		p.container(u.ToVersion, "check", "--url", clientURL(m.Pod), "--version", u.ToVersion))
	job.Spec.BackoffLimit, job.Spec.ActiveDeadlineSeconds = ptr.To(int32(0)), ptr.To(int64(checkSeconds))
	job.Spec.TTLSecondsAfterFinished = ptr.To(int32(checkTTLSeconds))
	return job
}

func (p *planner) backupJob(name string) *batchv1.Job {
	args := []string{"backup"}
	if p.settings.BackupTarget != "" {
		args = append(args, "--to", p.settings.BackupTarget+"/"+p.identity())
	}
	args = append(args, p.fromHealthyMember("--from")...)
	version := p.status.CurrentVersion
	if version == "" {
		version = p.Cluster.Spec.Version
	}
	job := p.job(name, kvstorev1.ComponentBackup, p.container(version, args...))
	job.Spec.BackoffLimit, job.Spec.ActiveDeadlineSeconds = ptr.To(int32(0)), ptr.To(int64(backupSeconds))
	return job
}

// fromHealthyMember returns a flag with the address of a healthy member; nil without one.
func (p *planner) fromHealthyMember(flag string) []string {
	for _, ordinal := range p.ordinals() {
		if m := p.Members[ordinal]; m.healthy() {
			return []string{flag, clientURL(m.Pod)}
		}
	}
	return nil
}

func (p *planner) job(name, component string, container corev1.Container) *batchv1.Job {
	labels := Labels(p.Cluster.Name)
	labels[kvstorev1.ComponentLabelKey] = component
	container.VolumeMounts = []corev1.VolumeMount{{Name: scratchName, MountPath: scratchFolder}}
	spec := p.podSpec(container)
	spec.Volumes = []corev1.Volume{{Name: scratchName, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	spec.RestartPolicy = corev1.RestartPolicyNever
	return &batchv1.Job{
		ObjectMeta: p.meta(name, labels),
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}},
	}
}

// clientURL returns the address of a member's HTTP API.
func clientURL(pod *corev1.Pod) string {
	host := pod.Status.PodIP
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return fmt.Sprintf("http://%s:%d", host, ClientPort)
}

// jobResult is how a Job ended.
type jobResult int

// The results.
const (
	jobRunning jobResult = iota
	jobComplete
	jobFailed
)

// readJobResult returns the result of a Job, and the message of a failure. A Job that is nil runs.
func readJobResult(job *batchv1.Job) (jobResult, string) {
	if job == nil {
		return jobRunning, ""
	}
	for _, c := range job.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			return jobComplete, ""
		case c.Type == batchv1.JobFailed:
			return jobFailed, c.Reason + ": " + c.Message
		}
	}
	return jobRunning, ""
}

// finishedAt returns when a Job failed.
func finishedAt(job *batchv1.Job) time.Time {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

func isBackup(job *batchv1.Job) bool {
	return job.Labels[kvstorev1.ComponentLabelKey] == kvstorev1.ComponentBackup
}

// IsClaim reports whether a PersistentVolumeClaim is of a cluster's StatefulSet, with any ordinal.
func IsClaim(cluster string, claim *corev1.PersistentVolumeClaim) bool {
	ordinal, ok := strings.CutPrefix(claim.Name, VolumeName+"-"+cluster+"-")
	_, err := strconv.ParseUint(ordinal, 10, 31)
	return ok && err == nil && !lacks(claim.Labels, MemberLabels(cluster))
}

// Ordinal returns a pod's ordinal in a cluster's StatefulSet.
func Ordinal(cluster, pod string) (int32, bool) {
	text, ok := strings.CutPrefix(pod, cluster+"-")
	ordinal, err := strconv.ParseInt(text, 10, 32)
	return int32(ordinal), ok && err == nil && ordinal >= 0
}
