package world

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/world/apiserver"
)

const replicaSets = "system:serviceaccount:kube-system:replicaset-controller"

// lawCase is a sequence of writes that keeps a law, and the change of it that breaks the law.
type lawCase struct {
	law     string
	prepare func(w *World)
	keeps   func(w *World)
	breaks  func(w *World)
}

// cluster returns a world with a Deployment of three pods that serve, whose writes the laws have seen.
func cluster(on Workload) *World {
	w := &World{
		schedule: Schedule{Workloads: []Workload{on}}, began: time.Now(), trace: &trace{began: time.Now()}, granted: map[string]int{},
		wishes: map[string]*wishes{on.Name: {replicas: on.Replicas, before: on.Replicas, image: first, previous: first, labelled: on.isLabelled()}},
	}
	w.managers = &managers{world: w, steady: time.Now()}
	w.laws = newLaws(w)
	for i := range on.Replicas {
		pod := served(on, i)
		w.laws.write(apiserver.Write{Time: time.Now(), User: replicaSets, Verb: "create", Resource: "pods", Namespace: pod.Namespace, Name: pod.Name, After: pod})
	}
	time.Sleep(time.Minute) // what is recent explains much
	w.laws.acting, w.laws.lastAct = true, time.Now()
	return w
}

// served returns the Nth pod of a workload, which serves.
func served(on Workload, n int) *corev1.Pod {
	made, controller := template(on), true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: on.Namespace(), Name: string(rune('a' + n)), UID: types.UID(rune('a' + n)), Labels: made.Labels,
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: on.Name, Controller: &controller}},
	}, Spec: made.Spec}
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: appsv1alpha1.ServiceReadyGate}}
	for _, kind := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady, appsv1alpha1.ServiceReadyGate} {
		set(pod, kind, corev1.ConditionTrue)
	}
	return pod
}

func set(pod *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus) {
	pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: status})
}

// stored returns a copy of a pod as the laws know it.
func stored(w *World, name string) *corev1.Pod {
	for _, object := range w.laws.mirror["pods"] {
		if pod := object.(*corev1.Pod); pod.Name == name {
			return pod.DeepCopy()
		}
	}
	return &corev1.Pod{}
}

// change writes a change of a pod.
func change(w *World, user, name string, change func(*corev1.Pod)) {
	before, after := stored(w, name), stored(w, name)
	change(after)
	w.laws.write(apiserver.Write{
		Time: time.Now(), User: user, Verb: "patch", Resource: "pods", Namespace: before.Namespace, Name: name, Before: before, After: after, Code: 200,
	})
}

// remove writes the removal of a pod.
func remove(w *World, user, name string) {
	change(w, user, name, func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
}

// off takes a pod off traffic, as PodOps does for its deletion.
func off(w *World, name string) {
	change(w, managerUser, name, func(pod *corev1.Pod) {
		pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/pod-delete"] = "1"
		set(pod, appsv1alpha1.ServiceReadyGate, corev1.ConditionFalse)
		set(pod, corev1.PodReady, corev1.ConditionFalse)
	})
}

func wish(w *World, n int) {
	w.wish("web", func(known *wishes) { known.replicas = n })
	last := w.laws.latest("web")
	w.laws.wished["web"] = append(w.laws.wished["web"], dated{time.Now(), n, last.revision})
	time.Sleep(time.Minute)
}

func bound(w *World, most int) {
	object, _ := rule(w.schedule.Workloads[0], "max=9")
	object.Spec.Rules[0].AvailablePolicy.MaxUnavailableValue.IntVal = int32(most)
	w.laws.write(apiserver.Write{Time: time.Now(), Resource: "podtransitionrules", Namespace: object.Namespace, Name: object.Name, After: object})
	time.Sleep(time.Minute)
}

func lawCases() []lawCase {
	answered := func(user, namespace, name string) func(*World) {
		return func(w *World) {
			w.laws.write(apiserver.Write{
				Time: time.Now(), User: user, Verb: "delete", Resource: "pods", Namespace: namespace, Name: name, Code: 429, Message: "PodOps: try again",
			})
		}
	}
	replicas := func(user string) func(*World) {
		return func(w *World) {
			three, two := int32(3), int32(2)
			before, after := &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Replicas: &three}}, &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Replicas: &two}}
			w.laws.write(apiserver.Write{Time: time.Now(), User: user, Resource: "replicasets", Name: "web", Before: before, After: after, Code: 200})
		}
	}
	return []lawCase{
		{
			law: lawAvailable, prepare: func(w *World) { bound(w, 1); wish(w, 3) },
			keeps:  func(w *World) { answered(person, Shop, "a")(w); off(w, "a") },
			breaks: func(w *World) { answered(person, Shop, "b")(w); off(w, "b") },
		},
		{
			law: lawWanted, prepare: func(w *World) { wish(w, 2) },
			keeps:  func(w *World) { off(w, "a"); remove(w, replicaSets, "a") },
			breaks: func(w *World) { off(w, "b"); remove(w, replicaSets, "b") },
		},
		{
			law: lawRefused, prepare: func(w *World) { wish(w, 1) },
			keeps: func(w *World) {
				change(w, person, "a", func(pod *corev1.Pod) { pod.Labels[appsv1alpha1.ToDeleteLabelKey] = "true" })
				off(w, "a")
				remove(w, managerUser, "a")
			},
			breaks: func(w *World) { off(w, "b"); remove(w, managerUser, "b") },
		},
		{
			law: lawTraffic, prepare: func(w *World) { wish(w, 1) },
			keeps:  func(w *World) { off(w, "a"); remove(w, replicaSets, "a") },
			breaks: func(w *World) { remove(w, replicaSets, "b") },
		},
		{law: lawNumber, keeps: replicas(replicaSets), breaks: replicas(managerUser)},
		{
			law: lawStrangers,
			keeps: func(w *World) {
				answered(person, Shop, "a")(w)
				labelled := served(Workload{Kind: Deployment, Name: "web", Stranger: true}, 3)
				labelled.Labels[appsv1alpha1.ControlLabelKey] = appsv1alpha1.ControlLabelValue
				w.laws.write(apiserver.Write{
					Time: time.Now(), User: person, Verb: "patch", Resource: "pods", Namespace: Strangers, Name: labelled.Name, After: labelled,
				})
				answered(replicaSets, Strangers, labelled.Name)(w)
			},
			breaks: answered(person, Strangers, "x"),
		},
		{
			law: lawInVain,
			keeps: func(w *World) {
				answered(person, Shop, "a")(w)
				off(w, "a")
				time.Sleep(inVain - 20*time.Second)
				w.laws.overdue(time.Now())
			},
			breaks: func(w *World) {
				change(w, managerUser, "a", func(pod *corev1.Pod) { set(pod, appsv1alpha1.ServiceReadyGate, corev1.ConditionTrue) })
				time.Sleep(moment / 2)
				off(w, "a")
				time.Sleep(40 * time.Second)
				w.laws.overdue(time.Now())
			},
		},
		{
			law: lawRequests, prepare: func(w *World) { w.laws.counted, w.laws.since = map[string]int{}, time.Now(); time.Sleep(quiet) },
			keeps:  func(w *World) { w.laws.requests(map[string]int{replicaSets + " update pods": most}); time.Sleep(quiet) },
			breaks: func(w *World) { w.laws.requests(map[string]int{replicaSets + " update pods": 2*most + 1}) },
		},
	}
}

// TestLawsOfWrites shows that each law of writes can fail, and holds just before.
func TestLawsOfWrites(t *testing.T) {
	for _, tc := range lawCases() {
		t.Run(tc.law, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := cluster(Workload{Kind: Deployment, Name: "web", Replicas: 3})
				if tc.prepare != nil {
					tc.prepare(w)
				}
				tc.keeps(w)
				if found := w.laws.found(); len(found.Violations) > 0 {
					t.Fatalf("violations of what the law permits: %v", found.Violations)
				}
				tc.breaks(w)
				if found := w.laws.found(); !found.Broke(tc.law) {
					t.Errorf("violations %v, want one of %q", found.Violations, tc.law)
				}
			})
		})
	}
}

// TestLawsOfTheEnd shows that each law of the end can fail.
func TestLawsOfTheEnd(t *testing.T) {
	for law, breaks := range map[string]func(w *World){
		lawServes: func(w *World) {
			change(w, "system:node:a", "a", func(pod *corev1.Pod) { set(pod, corev1.PodReady, corev1.ConditionFalse) })
		},
		lawOwners: func(w *World) { wish(w, 2) },
		lawRemains: func(w *World) {
			change(w, managerUser, "a", func(pod *corev1.Pod) { pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/pod-delete"] = "1" })
		},
	} {
		t.Run(law, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := cluster(Workload{Kind: ReplicaSet, Name: "web", Replicas: 3})
				if !w.awaitSettled(context.Background(), settles, "") {
					t.Fatalf("unsettled: %v", w.laws.unsettled())
				}
				breaks(w)
				for step, want := range map[string]string{"": law, "rollout": lawAndThen} {
					if w.awaitSettled(context.Background(), afterwards, step) {
						t.Error("everything has settled")
					}
					if found := w.laws.found(); !found.Broke(want) {
						t.Errorf("violations %v, want one of %q", found.Violations, want)
					}
				}
			})
		})
	}
}
