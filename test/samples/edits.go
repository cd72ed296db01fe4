package samples

// edit is a difference between a sample and the program that is compiled. Each edit has a reason; nothing
// else is changed.
type edit struct {
	old, new, reason string
}

const (
	importPath = "an import path"
	elided     = "the document leaves it out"
	notGo      = "the document has no valid Go there"
)

// edits returns the edits of each sample. old occurs in the sample, and each occurrence is replaced.
func edits() map[string][]edit {
	return map[string][]edit{
		"podopslifecycle-concept.md, Operation Controller, 1": {
			{`"kusionstack.io/operating/pkg/controllers/utils/podopslifecycle"`, `"github.com/podops-dev/podops/pkg/podopslifecycle"`, importPath},
			{"import (\n", "import (\n    ctrl \"sigs.k8s.io/controller-runtime\"\n    \"k8s.io/apimachinery/pkg/api/errors\"\n", elided},
			{"......\n", "", elided},
			{
				"operationAdapter, pod); err != nil {\n        return reconcile.Result{}, err\n    }\n}\n",
				"operationAdapter, pod); err != nil {\n        return reconcile.Result{}, err\n    }\n    return reconcile.Result{}, nil\n}\n", elided,
			},
		},
		"podopslifecycle-concept.md, Pod Cooperation Controller, 1": {
			{`"k8s.io/kubernetes/pkg/api/v1/pod/util.go"`, `"github.com/podops-dev/podops/pkg/podopslifecycle/cooperation"`, importPath},
			{`"kusionstack.io/operating/apis/apps/v1alpha1"`, `"github.com/podops-dev/podops/apis/apps/v1alpha1"`, importPath},
			{"......\n", "", elided},
			{"pod.status.PodIP", "pod.Status.PodIP", notGo},
			{
				"r.removeFinalizer(ctx, pod, protectionFinalizer)\n    }\n",
				"r.removeFinalizer(ctx, pod, protectionFinalizer)\n    }\n    return reconcile.Result{}, nil\n", elided,
			},
		},
		"resourceconsist-manual.md, Tutorials, 1": {{"    }\n}", "    },\n}", notGo}},
		"resourceconsist-manual.md, Tutorials, 2": {{"    }\n}", "    },\n}", notGo}},
		"operator-patterns-kvstore.md, The Foundation: A Well-Defined CRD API, 1": {
			{"corev1 \"k8s.io/api/core/v1\"\n", "", notGo + ": the import is not used"},
		},
		"operator-patterns-kvstore.md, Pattern 2: Idempotent Reconciliation for State Convergence, 1": {
			{"appsv1.StatefulSet{ /* ... */ }", "appsv1.StatefulSet{ObjectMeta: statefulSetMeta(c), Spec: statefulSetSpec(c)}", elided},
		},
	}
}
