package podoperation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// placeholderTag is the tag of a reference that has only a digest, when another reference of the
// same digest is needed. Kubelets ignore the tag of a reference with a digest.
const placeholderTag = "restarted"

// pullablePrefix is the scheme before the name of an image that cri-dockerd has pulled.
const pullablePrefix = "docker-pullable://"

// Removes reports whether an action removes the pod.
func Removes(action appsv1alpha1.PodOperationAction) bool {
	return action.Type == appsv1alpha1.ActionDelete || action.Type == appsv1alpha1.ActionEvict
}

// OperationType returns the operation type of an action's lifecycles. Rules refer to it.
func OperationType(action appsv1alpha1.PodOperationAction) string {
	switch action.Type {
	case appsv1alpha1.ActionRestart:
		return "restart"
	case appsv1alpha1.ActionUpdateImages:
		return "update"
	case appsv1alpha1.ActionResize:
		return "resize"
	default:
		return appsv1alpha1.DeleteOperationType
	}
}

// Images returns the new image of each container that an action replaces, and the record of the IDs
// that these containers have now. Containers that run the image already are left out. It fails when the
// action cannot be carried out on the pod.
func Images(action appsv1alpha1.PodOperationAction, pod *corev1.Pod) (images map[string]string, record Record, err error) {
	images, record = map[string]string{}, Record{Containers: map[string]string{}, Images: map[string]string{}}
	for _, wanted := range wantedImages(action, pod) {
		container, status := findContainer(pod, wanted.Name)
		if container == nil {
			return nil, Record{}, noContainer(pod, wanted.Name)
		}
		image := wanted.Image
		if action.Type == appsv1alpha1.ActionRestart {
			if status == nil {
				return nil, Record{}, fmt.Errorf("container %s has no status", wanted.Name)
			}
			if image, err = sameImage(container.Image, status.ImageID); err != nil {
				return nil, Record{}, fmt.Errorf("restarting container %s: %w", wanted.Name, err)
			}
		}
		if before, after := imageRepository(container.Image), imageRepository(image); before != after {
			return nil, Record{}, fmt.Errorf(
				"container %s has an image of the repository %s, and not of %s: change the template of the owner instead", wanted.Name, before, after)
		}
		if image == container.Image {
			continue
		}
		images[wanted.Name], record.Images[wanted.Name] = image, container.Image
		record.Containers[wanted.Name] = ""
		if status != nil {
			record.Containers[wanted.Name] = status.ContainerID
		}
	}
	return images, record, nil
}

// Check returns what an action waits for before it can be carried out on a pod; empty if it can be. It fails when the action
// cannot be carried out on the pod at all. The lifecycle of such a pod does not begin. The pod has all its containers.
func Check(action appsv1alpha1.PodOperationAction, pod *corev1.Pod, now time.Time) (waits string, err error) {
	switch action.Type {
	case appsv1alpha1.ActionResize:
		_, err = Resources(action, pod)
		return "", err
	case appsv1alpha1.ActionUpdateImages:
		images, _, err := Images(action, pod)
		return changing(images, pod, now), err
	case appsv1alpha1.ActionRestart:
		for _, wanted := range wantedImages(action, pod) {
			container, status := findContainer(pod, wanted.Name)
			if container == nil {
				return "", noContainer(pod, wanted.Name)
			}
			if waits := behind(pod, container, status); waits != "" {
				return waits, nil
			}
		}
		_, _, err = Images(action, pod)
		return "", err
	default:
		return "", nil
	}
}

// IsDone reports whether nothing is left to do on a pod: its spec has the images, or its kubelet has applied the resources. The
// lifecycle of such a pod does not begin.
func IsDone(action appsv1alpha1.PodOperationAction, pod *corev1.Pod) bool {
	switch action.Type {
	case appsv1alpha1.ActionResize:
		_, applied, _ := resizeProgress(action, pod)
		return applied
	case appsv1alpha1.ActionUpdateImages:
		images, _, err := Images(action, pod)
		return err == nil && len(images) == 0
	default:
		return false
	}
}

// behind returns why a container status may describe an earlier image than spec.image; empty if it does not. The digest
// in such a status would put the earlier image back.
func behind(pod *corev1.Pod, container *corev1.Container, status *corev1.ContainerStatus) string {
	parsed, err := reference.ParseNormalizedNamed(container.Image)
	if _, hasDigest := parsed.(reference.Digested); err != nil || hasDigest {
		return "" // the spec itself has the digest, or an error that Images returns
	}
	switch {
	case status == nil:
		return fmt.Sprintf("waits until container %s has a status", container.Name)
	case isUnseen(pod):
		return "waits until its kubelet reports the status of its newest spec"
	case status.State.Waiting != nil && status.State.Waiting.Reason != "CrashLoopBackOff":
		return fmt.Sprintf("waits until container %s runs %s (%s)", container.Name, container.Image, status.State.Waiting.Reason)
	}
	if runsAnotherTag(parsed, status.Image) {
		return fmt.Sprintf("waits until container %s runs %s: its kubelet reports %s. Where both are the same image, "+
			"use updateImages with the digest instead", container.Name, container.Image, status.Image)
	}
	return ""
}

// isUnseen reports whether the status of a pod is older than its spec. Kubelets before 1.34 do not report that.
func isUnseen(pod *corev1.Pod) bool {
	return pod.Status.ObservedGeneration > 0 && pod.Status.ObservedGeneration < pod.Generation
}

// wantedImages returns the containers of an action; containers of a restart have no image.
func wantedImages(action appsv1alpha1.PodOperationAction, pod *corev1.Pod) []appsv1alpha1.ContainerImage {
	var wanted []appsv1alpha1.ContainerImage
	switch {
	case action.UpdateImages != nil:
		return action.UpdateImages.Containers
	case action.Restart != nil:
		for _, name := range action.Restart.Containers {
			wanted = append(wanted, appsv1alpha1.ContainerImage{Name: name})
		}
	default:
		for i := range pod.Spec.Containers {
			wanted = append(wanted, appsv1alpha1.ContainerImage{Name: pod.Spec.Containers[i].Name})
		}
	}
	return wanted
}

// imageRepository returns an image without its tag and digest, as the admission policy podops-manager
// compares it: as it is written, without a default registry. The colon of a tag is behind the last
// slash, the colon of a port is not.
func imageRepository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	name := strings.LastIndex(image, "/") + 1
	last, _, _ := strings.Cut(image[name:], ":")
	return image[:name] + last
}

// sameImage returns another reference of the image that a container runs. imageID is the imageID of
// its status: a kubelet reports the repository with the digest, or no repository when the image was
// never pulled from a registry.
func sameImage(image, imageID string) (string, error) {
	parsed, err := reference.Parse(image)
	if err != nil {
		return "", fmt.Errorf("parsing the image %q: %w", image, err)
	}
	named, ok := parsed.(reference.Named)
	if !ok {
		return "", fmt.Errorf("the image %q has no name", image)
	}
	repository := reference.TrimNamed(named)
	digested, hasDigest := parsed.(reference.Digested)
	if !hasDigest {
		running, err := reference.Parse(strings.TrimPrefix(imageID, pullablePrefix))
		if err != nil {
			return "", fmt.Errorf("parsing the imageID %q: %w", imageID, err)
		}
		_, hasRepository := running.(reference.Named)
		if digested, hasDigest = running.(reference.Digested); !hasDigest || !hasRepository {
			return "", fmt.Errorf("the kubelet reports no digest of a registry for the image %q: delete the pod instead", image)
		}
		return named.String() + "@" + digested.Digest().String(), nil
	}
	if _, hasTag := parsed.(reference.Tagged); hasTag {
		return repository.Name() + "@" + digested.Digest().String(), nil
	}
	return repository.Name() + ":" + placeholderTag + "@" + digested.Digest().String(), nil
}

// renamedDelay is how long after the grace period a container that runs another image than its spec has is about to be replaced. After it both
// names are taken for one image: a container runtime reports either.
const renamedDelay = 30 * time.Second

// isPending reports whether the kubelet is about to replace a container of a record: the container has the ID from before, or runs
// another image than its spec, since the kubelet had begun to start an earlier one. wait is the time after which both images count as one.
func isPending(record Record, pod *corev1.Pod, now time.Time) (pending bool, wait time.Duration) {
	pending = isUnseen(pod)
	for name, before := range record.Containers {
		container, status := findContainer(pod, name)
		if container == nil || status == nil || status.State.Running == nil {
			continue
		}
		wait = max(wait, untilRenamed(pod, container, status, now))
		pending = pending || status.ContainerID == before || wait > 0
	}
	return pending, wait
}

// isRunning reports whether every container of a record runs.
func isRunning(record Record, pod *corev1.Pod) bool {
	for name := range record.Containers {
		if _, status := findContainer(pod, name); status == nil || status.State.Running == nil {
			return false
		}
	}
	return true
}

// untilRenamed returns the time after which the image that a container runs and the image of its spec count as one; 0 if they do.
func untilRenamed(pod *corev1.Pod, container *corev1.Container, status *corev1.ContainerStatus, now time.Time) time.Duration {
	if status == nil || status.State.Running == nil || !runsAnother(container, status) {
		return 0
	}
	grace := time.Duration(ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)) * time.Second
	return max(0, status.State.Running.StartedAt.Add(grace+renamedDelay).Sub(now))
}

// changing returns what an update of images waits for: a kubelet that is about to replace a container, and might find that it runs the
// new image already.
func changing(images map[string]string, pod *corev1.Pod, now time.Time) (waits string) {
	for _, name := range slices.Sorted(maps.Keys(images)) {
		container, status := findContainer(pod, name)
		switch {
		case status == nil || status.State.Running == nil:
		case isUnseen(pod):
			return "waits until its kubelet reports the status of its newest spec"
		case untilRenamed(pod, container, status, now) > 0:
			return fmt.Sprintf("waits until container %s runs %s: its kubelet reports %s", name, container.Image, status.Image)
		}
	}
	return ""
}

// reverted returns a container whose image another client has set back before its kubelet has replaced it; empty for none. No container
// is going to be replaced for the record.
func reverted(record Record, pod *corev1.Pod) string {
	if isUnseen(pod) {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(record.Images)) {
		container, status := findContainer(pod, name)
		if container != nil && container.Image == record.Images[name] && status != nil && status.ContainerID == record.Containers[name] {
			return name
		}
	}
	return ""
}

// isReplacing reports whether another PodOperation has written images to a pod and has not finished. An image that is written meanwhile
// could be that of the running container, so that none would be replaced.
func isReplacing(operation types.UID, pod *corev1.Pod) bool {
	for key, value := range pod.Annotations {
		uid, isRecord := strings.CutPrefix(key, appsv1alpha1.PodOperationAnnotationPrefix+"/")
		if !isRecord || types.UID(uid) == operation || !has(pod, appsv1alpha1.OperatingLabelPrefix, ID(types.UID(uid))) {
			continue
		}
		if record, _ := parse(value); len(record.Containers) > 0 && !record.Done && record.Failed == "" {
			return true
		}
	}
	return false
}

// runsAnother reports whether the status of a container has another digest or another tag than its spec.
func runsAnother(container *corev1.Container, status *corev1.ContainerStatus) bool {
	parsed, err := reference.ParseNormalizedNamed(container.Image)
	if err != nil {
		return false
	}
	if wanted, hasDigest := parsed.(reference.Digested); hasDigest {
		running, err := reference.Parse(strings.TrimPrefix(status.ImageID, pullablePrefix))
		digested, isDigested := running.(reference.Digested)
		return err == nil && isDigested && digested.Digest() != wanted.Digest()
	}
	return runsAnotherTag(parsed, status.Image)
}

// runsAnotherTag reports whether an image that a kubelet reports has another tag than a reference to the same repository.
func runsAnotherTag(wanted reference.Named, image string) bool {
	running, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return false // a runtime may report an ID
	}
	tag, isTagged := reference.TagNameOnly(wanted).(reference.Tagged)
	other, isOther := running.(reference.Tagged)
	return isTagged && isOther && wanted.Name() == running.Name() && tag.Tag() != other.Tag()
}

// Resources returns the resources of each container that an action resizes, as they are after it. It
// fails when the pod does not have the container.
func Resources(action appsv1alpha1.PodOperationAction, pod *corev1.Pod) (map[string]*corev1.ResourceRequirements, error) {
	resources := map[string]*corev1.ResourceRequirements{}
	for _, wanted := range action.Resize.Containers {
		container, _ := findContainer(pod, wanted.Name)
		if container == nil {
			return nil, noContainer(pod, wanted.Name)
		}
		resources[wanted.Name] = &corev1.ResourceRequirements{Requests: resourceList(wanted.Requests), Limits: resourceList(wanted.Limits)}
	}
	return resources, nil
}

func resourceList(resources *appsv1alpha1.ResizableResources) corev1.ResourceList {
	if resources == nil {
		return nil
	}
	list := corev1.ResourceList{}
	for name, quantity := range map[corev1.ResourceName]*resource.Quantity{corev1.ResourceCPU: resources.CPU, corev1.ResourceMemory: resources.Memory} {
		if quantity != nil {
			list[name] = *quantity
		}
	}
	return list
}

// resizeProgress returns how far the resize of a pod is: whether its spec has the resources, whether its
// kubelet has applied them, and why it never will.
func resizeProgress(action appsv1alpha1.PodOperationAction, pod *corev1.Pod) (written, applied bool, infeasible string) {
	written, applied = true, true
	for _, wanted := range action.Resize.Containers {
		container, status := findContainer(pod, wanted.Name)
		if container == nil {
			return false, false, ""
		}
		requests, limits := resourceList(wanted.Requests), resourceList(wanted.Limits)
		written = written && contains(container.Resources.Requests, requests) && contains(container.Resources.Limits, limits)
		applied = applied && status != nil && status.Resources != nil &&
			contains(status.Resources.Requests, requests) && contains(status.Resources.Limits, limits)
	}
	for i := range pod.Status.Conditions {
		if condition := &pod.Status.Conditions[i]; isInfeasible(condition, pod.Generation) {
			infeasible = "the kubelet cannot resize the pod: " + condition.Message
		}
	}
	return written, written && applied, infeasible
}

// isInfeasible reports whether the kubelet cannot resize a pod as this generation requests. A condition with an earlier
// generation reports an earlier resize.
func isInfeasible(condition *corev1.PodCondition, generation int64) bool {
	return condition.Type == corev1.PodResizePending && condition.Status == corev1.ConditionTrue && condition.Reason == corev1.PodReasonInfeasible &&
		(condition.ObservedGeneration == 0 || condition.ObservedGeneration >= generation)
}

// isDeferred reports whether the kubelet resizes a pod once its node has room, which may be never.
func isDeferred(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodResizePending && condition.Status == corev1.ConditionTrue && condition.Reason == corev1.PodReasonDeferred
	})
}

func contains(list, wanted corev1.ResourceList) bool {
	for name, quantity := range wanted {
		if has, ok := list[name]; !ok || has.Cmp(quantity) != 0 {
			return false
		}
	}
	return true
}

// findContainer returns a container of a pod and its status; nil for each that does not exist.
func findContainer(pod *corev1.Pod, name string) (container *corev1.Container, status *corev1.ContainerStatus) {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			container = &pod.Spec.Containers[i]
		}
	}
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == name {
			status = &pod.Status.ContainerStatuses[i]
		}
	}
	return container, status
}

// noContainer returns why an action cannot change a container: it is not in spec.containers.
func noContainer(pod *corev1.Pod, name string) error {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return fmt.Errorf("%s is an init container or a sidecar, and an action changes spec.containers only: change the template of the owner instead", name)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return fmt.Errorf("%s is an ephemeral container, which cannot be changed", name)
		}
	}
	return fmt.Errorf("the pod has no container %s", name)
}
