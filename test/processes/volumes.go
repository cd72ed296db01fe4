package processes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volumeLabelKey is the label of volumes of this kubelet.
const volumeLabelKey = "test.podops.dev/processes"

// errUnbound means that a claim has no volume, as far as the cache knows: the scheduler, which
// has placed its pod, can be ahead of it.
var errUnbound = errors.New("the claim is not bound")

// provision creates a volume for a claim of any class without a volume. The controller of
// volumes binds them.
func (k *Kubelet) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	if claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil || claim.Status.Phase != corev1.ClaimPending {
		return
	}
	name := "pvc-" + string(claim.UID)
	class := ""
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{volumeLabelKey: "true"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, StorageClassName: class, VolumeMode: claim.Spec.VolumeMode,
			// The directory is removed here, once no claim has it.
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef: &corev1.ObjectReference{
				Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: k.volume(name)}},
		},
	}
	if err := os.MkdirAll(k.volume(name), 0o755); err != nil {
		k.fail(fmt.Errorf("making the volume of claim %s/%s: %w", claim.Namespace, claim.Name, err))
		return
	}
	_, err := k.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
		k.fail(fmt.Errorf("creating the volume of claim %s/%s: %w", claim.Namespace, claim.Name, err))
	}
}

// reclaim removes a volume whose claim no longer exists.
func (k *Kubelet) reclaim(ctx context.Context, volume *corev1.PersistentVolume) {
	if volume.Labels[volumeLabelKey] == "" || volume.Status.Phase != corev1.VolumeReleased || volume.DeletionTimestamp != nil {
		return
	}
	if err := os.RemoveAll(k.volume(volume.Name)); err != nil {
		k.fail(fmt.Errorf("removing volume %s: %w", volume.Name, err))
		return
	}
	err := k.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		k.fail(fmt.Errorf("deleting volume %s: %w", volume.Name, err))
	}
}

func (k *Kubelet) volume(name string) string {
	return filepath.Join(k.options.Dir, "volumes", name)
}

// mounts returns the directories of a pod's volumes by the paths at which its container
// has them.
func (k *Kubelet) mounts(pod *corev1.Pod) (map[string]string, error) {
	directories := map[string]string{}
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			claim, err := k.claims.PersistentVolumeClaims(pod.Namespace).Get(v.PersistentVolumeClaim.ClaimName)
			if err != nil {
				return nil, fmt.Errorf("reading the claim of volume %s: %w", v.Name, err)
			}
			if claim.Spec.VolumeName == "" {
				return nil, fmt.Errorf("%w: %s of volume %s", errUnbound, claim.Name, v.Name)
			}
			directories[v.Name] = k.volume(claim.Spec.VolumeName)
		case v.EmptyDir != nil:
			directories[v.Name] = filepath.Join(k.options.Dir, "pods", string(pod.UID), v.Name)
		}
	}
	mounts := map[string]string{}
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		directory, ok := directories[m.Name]
		if !ok {
			continue // a projected token, say: programs that read it fail
		}
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return nil, fmt.Errorf("making volume %s: %w", m.Name, err)
		}
		mounts[m.MountPath] = directory
	}
	return mounts, nil
}
