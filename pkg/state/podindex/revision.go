package podindex

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/rule"
)

// revisionHash returns the hash of the template that a pod was made from.
func revisionHash(labels map[string]string) string {
	if hash := labels[appsv1.DefaultDeploymentUniqueLabelKey]; hash != "" {
		return hash
	}
	return labels[appsv1.ControllerRevisionHashLabelKey]
}

// revisions are the revision states of a pod controller.
type revisions struct {
	// all is the state of every pod, as for a ReplicaSet; empty if it depends on the hash.
	all rule.RevisionState

	// newest is the hash of the newest revision, and before the hash of the revision that it
	// replaces.
	newest, before string
}

// revisionState returns the state of the revision with a hash.
func (r revisions) revisionState(hash string) rule.RevisionState {
	switch {
	case r.all != "":
		return r.all
	case hash == r.newest:
		return rule.RevisionNewest
	case hash == r.before:
		return rule.RevisionOutdated
	default:
		return rule.RevisionAbandoned
	}
}

// workloadRevisions returns the revisions of a pod controller.
func (n *namespace) workloadRevisions(controller types.UID) revisions {
	owner, known := n.owners[controller]
	switch {
	case known && owner.UpdateRevision != "":
		return revisions{newest: owner.UpdateRevision, before: owner.CurrentRevision}
	case !known || owner.Revision == 0 || owner.Controller == "":
		return revisions{all: rule.RevisionUnknown}
	case owner.Revision == n.newest[owner.Controller]:
		return revisions{all: rule.RevisionNewest}
	case n.oldest[owner.Controller].Before(owner.Created):
		return revisions{all: rule.RevisionAbandoned}
	default:
		return revisions{all: rule.RevisionOutdated}
	}
}

// noteOldest updates when the oldest ReplicaSet of each Deployment was created that has the newest revision, or
// still has pods. A revision that is neither, and is younger, is abandoned.
func (n *namespace) noteOldest() {
	n.oldest = map[types.UID]time.Time{}
	for _, owner := range n.owners {
		if owner.Controller == "" || owner.Desired == 0 && owner.Revision != n.newest[owner.Controller] {
			continue
		}
		if oldest, known := n.oldest[owner.Controller]; !known || owner.Created.Before(oldest) {
			n.oldest[owner.Controller] = owner.Created
		}
	}
}
