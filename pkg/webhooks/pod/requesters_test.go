package pod_test

import (
	"fmt"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/builders"
)

const requesters = appsv1alpha1.RequestersAnnotationKey

// entry returns the annotation of a pod whose operation a was requested by a user.
func entry(name, operationType string) string {
	return fmt.Sprintf(`{"operating.podopslifecycle.kusionstack.io/a":{"value":%q,"type":%q,"actor":"Client","user":%q}}`,
		builders.Stamp(builders.Epoch), operationType, name)
}
