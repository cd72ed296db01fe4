// Package timeline implements kubectl podops timeline.
package timeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/podops-dev/podops/pkg/view/clusterstate"
	"github.com/podops-dev/podops/pkg/view/rolloutview"
	"github.com/podops-dev/podops/pkg/view/timeline"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/cluster"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/live"
)

// recheckInterval is the longest time between two snapshots of a recording.
const recheckInterval = time.Second

// verb is one run of timeline.
type verb struct {
	env    *command.Environment
	flags  cluster.Flags
	target cluster.Target
	output string
	page   string
	record bool
	since  time.Duration
}

// Command returns the verb timeline.
func Command(env *command.Environment) *cobra.Command {
	v := &verb{env: env}
	show := &cobra.Command{
		Use:   "timeline (pod/NAME | deploy/NAME | sts/NAME | ds/NAME | rs/NAME | ptr/NAME)",
		Short: "Show the phases of pods with their times and durations",
		Long: `Show the phases of a pod, or of all pods of a workload as a chart, with times and durations.

Sources and precision of the times:

  Exact     labels of an operation that is in progress, and service-available: the manager
            writes them, in nanoseconds. They are removed when the operation ends.
  Second    events Permitted and ServiceAvailable, also of deleted pods, for as long as
            the API server keeps events (an hour by default); creation and deletion.
  Observed  with --record: the time at which the watch delivered the change, some milliseconds
            after it.

A phase that none of them shows is part of the phase before it, and the end of a pod that is gone is
not known. To have every phase of a rollout, record it while it runs: --record watches each
version of each pod until the rollout is complete, or Ctrl-C.

--html writes the chart to a single file, with a table of the same content.`,
		Example: `  # The phases of a pod
  kubectl podops timeline pod/web-7b9d8e6f5c-2xk9p -n shop

  # Record a rollout, and write it as a page
  kubectl rollout restart deploy/web && kubectl podops timeline deploy/web --record --html rollout.html

  # The last half hour of all pods that a PodTransitionRule selects
  kubectl podops timeline ptr/web --since 30m

  # How long each pod waited for its rules
  kubectl podops timeline deploy/web -o json | jq '.pods[] | {name, phases: [.spans[] | {phase, from, to}]}'`,
		Args: cobra.ArbitraryArgs, // cluster.ParseTarget checks them
		RunE: func(cmd *cobra.Command, arguments []string) error {
			if err := v.complete(arguments); err != nil {
				return err
			}
			return v.run(cmd.Context())
		},
	}
	show.Flags().StringVar(&v.page, "html", "", "write the chart to this file, as a page")
	show.Flags().BoolVar(&v.record, "record", false, "watch until the rollout is complete, or Ctrl-C, and show the phases with exact times")
	show.Flags().DurationVar(&v.since, "since", 0, "leave out phases that ended longer ago than this, such as 30m; 0 shows all known phases")
	show.Flags().StringVarP(&v.output, "output", "o", "", "json or yaml")
	v.flags.Add(env, show, cluster.KindPod, cluster.KindDeployment, cluster.KindStatefulSet, cluster.KindDaemonSet, cluster.KindReplicaSet,
		cluster.KindRule)
	return show
}

func (v *verb) complete(arguments []string) error {
	target, err := cluster.ParseTarget(arguments, v.flags.Selector)
	if err != nil {
		return err
	}
	v.target = target
	switch {
	case v.target.Name == "" || v.flags.AllNamespaces:
		return errors.New("timeline needs one object, such as deploy/NAME")
	case v.output != "" && v.output != "json" && v.output != "yaml":
		return fmt.Errorf("-o %s: it must be json or yaml", v.output)
	case v.since < 0:
		return fmt.Errorf("--since %s: it must not be negative", v.since)
	}
	return nil
}

func (v *verb) run(ctx context.Context) error {
	namespace, err := v.env.Namespace()
	if err != nil {
		return err
	}
	read := v.history
	if v.record {
		read = v.watch
	}
	shown, err := read(ctx, namespace)
	if err != nil {
		return err
	}
	if v.page != "" {
		if err := writePage(v.page, shown); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(v.env.ErrOut, "Written: "+v.page); err != nil {
			return err
		}
	}
	return v.print(shown)
}

// from returns the time before which phases are left out; zero to leave out none.
func (v *verb) from() time.Time {
	if v.since == 0 {
		return time.Time{}
	}
	return v.env.Now().Add(-v.since)
}

func (v *verb) title(namespace string) string { return fmt.Sprintf("%s in %s", v.target, namespace) }

// history returns the timeline that pods and events show.
func (v *verb) history(ctx context.Context, namespace string) (timeline.Timeline, error) {
	client, err := v.env.Client(ctx)
	if err != nil {
		return timeline.Timeline{}, err
	}
	snapshot, err := cluster.Reader{Reader: client, ManagerNamespace: v.flags.ManagerNamespace}.Snapshot(ctx, namespace)
	if err != nil {
		return timeline.Timeline{}, err
	}
	object := cluster.Find(snapshot, v.target)
	if object == nil {
		return timeline.Timeline{}, cluster.NotFound(snapshot, v.target)
	}
	pods := rolloutview.Of(snapshot, object, v.env.Now()).PodsIn(snapshot)
	shown := timeline.New(v.title(namespace), timeline.History(pods, selectEvents(snapshot, object, pods), podRevision), v.from(), v.env.Now())
	if snapshot.CannotRead("events") {
		shown.Notes = append(shown.Notes, "events are left out, and with them the phases of operations that are over")
	}
	return shown, nil
}

// selectEvents returns the events of an object's pods. Pods that are gone belong to it if their names begin
// with that of one of its ReplicaSets.
func selectEvents(snapshot *clusterstate.Snapshot, object metav1.Object, pods []*corev1.Pod) []*corev1.Event {
	here := map[types.UID]bool{}
	for _, pod := range pods {
		here[pod.UID] = true
	}
	prefixes := map[string]bool{object.GetName(): true}
	for _, set := range snapshot.ReplicaSetsOwnedBy(object.GetUID()) {
		prefixes[set.Name] = true
	}
	var events []*corev1.Event
	for _, event := range snapshot.Events {
		if here[event.InvolvedObject.UID] || isGone(snapshot, event) && prefixes[timeline.OwnerName(event.InvolvedObject.Name)] {
			events = append(events, event)
		}
	}
	return events
}

func isGone(snapshot *clusterstate.Snapshot, event *corev1.Event) bool {
	pod := snapshot.Pod(event.InvolvedObject.Name)
	return pod == nil || pod.UID != event.InvolvedObject.UID
}

func podRevision(pod *corev1.Pod) string {
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		return controller.Name
	}
	return ""
}

// watch records the phases until the rollout is complete, or ctx ends.
func (v *verb) watch(ctx context.Context, namespace string) (timeline.Timeline, error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var changes timeline.Changes
	watch, err := live.Start(watching, v.env, live.Options{
		ManagerNamespace: v.flags.ManagerNamespace, Namespaces: []string{namespace}, Changes: &changes,
	})
	if err != nil {
		return timeline.Timeline{}, err
	}
	var recorder timeline.Recorder
	from, lost := v.env.Now().Add(-max(v.since, 0)), ""
	for announced := false; ; {
		taken := changes.Take()
		snapshot, err := watch.Snapshot(ctx, namespace)
		if err != nil && ctx.Err() == nil {
			return timeline.Timeline{}, err
		}
		done := false
		if err == nil {
			if done, err = v.observe(&recorder, snapshot, taken); err != nil {
				return timeline.Timeline{}, err
			}
		}
		if done || ctx.Err() != nil {
			return timeline.New(v.title(namespace), recorder.Pods(), from, v.env.Now()), nil
		}
		if !announced {
			announced = true
			_, _ = fmt.Fprintf(v.env.ErrOut, "Recording %d pods until the rollout is complete; Ctrl-C ends it.\n", len(recorder.Pods()))
		}
		lost = v.warn(lost, watch.Lost())
		select {
		case <-ctx.Done():
		case err := <-watch.Ended():
			if ctx.Err() == nil {
				return timeline.Timeline{}, fmt.Errorf("the watch of the cluster ended: %w", err)
			}
		case <-watch.Changed():
		case <-time.After(recheckInterval):
		}
	}
}

// warn prints that the API server does not answer the watch, or answers again. It returns the last text.
func (v *verb) warn(last string, lost error) string {
	text := ""
	if lost != nil {
		text = lost.Error()
	}
	if text != last {
		_, _ = fmt.Fprintln(v.env.ErrOut, cmp.Or(text, live.Answers))
	}
	return text
}

// observe records a snapshot and the changes before it, and reports whether the rollout is complete and recorded.
func (v *verb) observe(recorder *timeline.Recorder, snapshot *clusterstate.Snapshot, changes []timeline.Change) (done bool, err error) {
	now := v.env.Now()
	object := cluster.Find(snapshot, v.target)
	if object == nil {
		if len(recorder.Pods()) == 0 {
			return false, cluster.NotFound(snapshot, v.target)
		}
		return recorder.Follow(nil, changes, podRevision, now), nil
	}
	view := rolloutview.Of(snapshot, object, now)
	complete := recorder.Follow(view.PodsIn(snapshot), changes, podRevision, now)
	return complete && view.Done(), nil
}

func writePage(path string, shown timeline.Timeline) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return shown.HTML(file)
}

// print prints the chart, or the timeline as an object.
func (v *verb) print(shown timeline.Timeline) error {
	if v.output == "" {
		width, _, terminal := v.env.Terminal()
		if !terminal || width <= 0 {
			width = 80
		}
		frame := shown.Frame(width)
		text := frame.Text()
		if v.env.Colors() {
			text = frame.Colored()
		}
		_, err := io.WriteString(v.env.Out, text)
		return err
	}
	encoded, err := json.MarshalIndent(shown, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the timeline: %w", err)
	}
	encoded = append(encoded, '\n')
	if v.output == "yaml" {
		if encoded, err = yaml.JSONToYAML(encoded); err != nil {
			return fmt.Errorf("encoding the timeline: %w", err)
		}
	}
	_, err = v.env.Out.Write(encoded)
	return err
}
