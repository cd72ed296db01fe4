package lifecycle

import (
	"fmt"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// maxOperations bounds Operations.
const maxOperations = 5

// DescribeOperation returns the operation of an id, human-readable: "deletion" for a delete that PodOps
// carries out, "creation" for a new pod, otherwise "operation <type> of id <id>".
func DescribeOperation(operationType, id string) string {
	switch id {
	case appsv1alpha1.PodDeleteID:
		return "deletion"
	case appsv1alpha1.PodCreateID:
		return "creation"
	}
	return fmt.Sprintf("operation %s of id %s", operationType, id)
}

// Operations returns DescribeOperation of the ids that hold a permit or have finished, sorted by
// id; the first five of them.
func Operations(p PodFacts) []string {
	m := machine{facts: p, labels: p.Labels}
	var operations []string
	for _, id := range operationIDs(p.Labels) {
		var operationType string
		switch {
		case m.isPermitted(id):
			operationType = m.get(appsv1alpha1.OperationTypeLabelPrefix, id)
		case m.isFinished(id):
			operationType = m.get(appsv1alpha1.DoneOperationTypeLabelPrefix, id)
		default:
			continue
		}
		if len(operations) == maxOperations {
			break
		}
		operations = append(operations, DescribeOperation(operationType, id))
	}
	return operations
}
