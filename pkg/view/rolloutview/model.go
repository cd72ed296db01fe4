package rolloutview

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
)

// View is a workload at one moment. Its JSON is the output of kubectl podops get -o json.
type View struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`

	// Time is when the objects were read.
	Time metav1.Time `json:"time"`

	// Stale is why the objects are older than Time; empty while the API server answers.
	Stale string `json:"stale,omitempty"`

	// State is the state of the workload as a whole.
	State State `json:"state"`

	// Desired is the desired number of pods. Without an owner that sets it, it is the number of pods.
	Desired int `json:"desired"`

	// Pods counts the pods that are not finished, Available the pods that serve, and Updated the pods
	// of the current revision.
	Pods      int `json:"pods"`
	Available int `json:"available"`
	Updated   int `json:"updated"`

	// Unavailable is the number of desired pods that are not available.
	Unavailable int `json:"unavailable"`

	// Highest is the highest number of unavailable pods since a watch began; nil without a watch.
	Highest *int `json:"highestUnavailable,omitempty"`

	// Requests counts requests to the pods, where something counts them.
	Requests *Requests `json:"requests,omitempty"`

	Revisions []Revision `json:"revisions"`
	Rules     []Rule     `json:"rules"`
	Budgets   []Budget   `json:"budgets"`
	Traffic   []Traffic  `json:"traffic"`
	Notes     []string   `json:"notes,omitempty"`
}

// State is the state of a workload as a whole.
type State string

const (
	// StateComplete means that as many pods as desired are available, all of the current revision,
	// and no other pods are left.
	StateComplete State = "Complete"

	// StateProgressing means that pods are about to change, and no rule withholds a pod.
	StateProgressing State = "Progressing"

	// StateWithheld means that a rule withholds at least one pod.
	StateWithheld State = "Withheld"
)

// Requests counts requests to the pods.
type Requests struct {
	Sent   int `json:"sent"`
	Failed int `json:"failed"`
}

// Revision is a set of pods from one template: the pods of a ReplicaSet or a controller revision.
type Revision struct {
	// Name of the ReplicaSet or the controller revision; otherwise the name of the owner of the
	// pods.
	Name string `json:"name"`

	// Number of the revision, of Deployments only.
	Number string `json:"number,omitempty"`

	// Current is true for the revision that the workload should have.
	Current bool `json:"current"`

	// Pods, pods that a rule withholds first.
	Pods []Pod `json:"pods"`
}

// Pod is one pod of a view.
type Pod struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	Node string `json:"node,omitempty"`

	Phase Phase `json:"phase"`

	// Since is when the phase began; nil if that is not known.
	Since *metav1.MicroTime `json:"since,omitempty"`

	// Operations are the operations on the pod, in words.
	Operations []string `json:"operations,omitempty"`

	// Withheld is the first reason for which a rule withholds the pod.
	Withheld *Withheld `json:"withheld,omitempty"`

	// WaitsFor is an external change that the pod waits for, in the words of the event TrafficStillOn or
	// TrafficNotOn; empty if it waits for no such change.
	WaitsFor string `json:"waitsFor,omitempty"`

	// Backends is the number of load balancers and Services that the pod belongs to, and TrafficOn the
	// number of them that send it traffic.
	Backends  int `json:"backends"`
	TrafficOn int `json:"trafficOn"`
}

// Withheld is a rule that withholds a pod, with its reason, as events and status have it.
type Withheld struct {
	Rule    string `json:"rule"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Rule is a rule that selects at least one pod of the view.
type Rule struct {
	// Name is "<PodTransitionRule>/<rule>".
	Name        string                       `json:"name"`
	Kind        string                       `json:"kind"`
	Stage       appsv1alpha1.TransitionStage `json:"stage"`
	Enforcement appsv1alpha1.Enforcement     `json:"enforcement"`

	// Withholds is the number of pods in the view that the rule is known to withhold. Status lists the
	// first ten pods of a PodTransitionRule, and pods that have waited for 10 s carry their reasons.
	Withholds int `json:"withholds"`

	// Reason and Message are those of the first pod.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Budget is the number of pods that may be unavailable, by a rule or a PodDisruptionBudget.
type Budget struct {
	// Name is the name of the rule, or "PodDisruptionBudget/<name>".
	Name string `json:"name"`

	// Used is the number of unavailable pods, of at most Limit.
	Used  int `json:"used"`
	Limit int `json:"limit"`
}

// Traffic is a load balancer or a Service in front of the pods.
type Traffic struct {
	// Name is "<Kind>/<name>".
	Name string `json:"name"`

	// Pods is the number of pods that belong to it, and On the number of pods to which it sends
	// traffic.
	Pods int `json:"pods"`
	On   int `json:"on"`

	// By is how that is known: Finalizer (its controller confirms it) or Endpoints (EndpointSlices).
	By string `json:"by"`
}

const (
	byFinalizer = "Finalizer"
	byEndpoints = "Endpoints"
)

// Done reports whether the rollout is complete.
func (v View) Done() bool { return v.State == StateComplete }

// AllPods returns the pods of all revisions.
func (v View) AllPods() []Pod {
	var pods []Pod
	for i := range v.Revisions {
		pods = append(pods, v.Revisions[i].Pods...)
	}
	return pods
}

// PodsIn returns the pods of all revisions as they are in the snapshot of the view.
func (v View) PodsIn(snapshot *clusterstate.Snapshot) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range v.AllPods() {
		if found := snapshot.Pod(pod.Name); found != nil {
			pods = append(pods, found)
		}
	}
	return pods
}

// timeOrNil returns a time for JSON, nil for the zero time.
func timeOrNil(at time.Time) *metav1.MicroTime {
	if at.IsZero() {
		return nil
	}
	stamp := metav1.NewMicroTime(at)
	return &stamp
}
