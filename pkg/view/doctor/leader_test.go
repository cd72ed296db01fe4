package doctor_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/view/doctor"
	"github.com/podops-dev/podops/test/builders"
)

// TestAStatefulSetThatWaitsForALeader shows that the finding of a pod that a rule withholds has the command with which another pod goes.
func TestAStatefulSetThatWaitsForALeader(t *testing.T) {
	ago := now.Add(-45 * time.Minute)
	db := func(name string) *builders.PodBuilder {
		return builders.MakePod(name).Namespace(shop).Label("app", "web").Label(appsv1.StatefulSetRevisionLabel, "old").Available().
			OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "db", Controller: new(true)})
	}
	for code, want := range map[string]string{
		"NotAllowed": "kubectl podops delete pod -n default db-0 lets a lower pod go first; why it waits: kubectl podops explain -n default pod/db-1",
		"NoRoom":     "kubectl podops explain -n default pod/db-1",
	} {
		t.Run(code, func(t *testing.T) {
			s := healthy(t)
			set := appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "db", UID: "db"}}
			set.Status.UpdateRevision = "new"
			s.StatefulSets = append(s.StatefulSets, set)
			waiting := db("db-1").Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, ago).
				Label(appsv1alpha1.PreCheckLabelPrefix+"/"+appsv1alpha1.PodDeleteID, builders.Stamp(ago)).
				Annotation(appsv1alpha1.DetailAnnotationKey("web"), `{"stage":"PreCheck","rejectInfo":[{"ruleName":"leader","reason":"`+code+`: the leader"}]}`)
			s.Pods = append(s.Pods, *db("db-0").Obj(), *waiting.Obj())
			var remedies []string
			for _, finding := range doctor.Inspect(*s, doctor.Options{}, now).Findings {
				if finding.Check == "rule-waits-long" {
					remedies = append(remedies, finding.Remedy)
				}
			}
			if diff := cmp.Diff([]string{want}, remedies); diff != "" {
				t.Errorf("remedies (-want +got):\n%s", diff)
			}
		})
	}
}
