package lifecycle_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/test/sim"
)

// session interprets the commands of a script. In labels the domain is left out
// (operate/a), a time is written as its distance from the start (@5s), and a label
// without value has the start as its time.
//
//	pod [label]... [finalizers=x,y] [expected=x,y] [gate=missing|unset|false|true] [ready=yes|no|gates|never] [control=off]
//	    a stored pod. By default it is controlled, its gate is True and it is Ready.
//	create [label]...            the creation of a pod, through admission
//	user|podops|bypass [set label...] [remove label...] [finalizer +x|-x...] [expect x,y|malformed] [status gate=... ready=...] [copied] [then set|remove label...]
//	    one update of the pod: by a client, by PodOps itself, or without admission. "copied" starts
//	    from the labels that copy remembered; "status" is a status in the request; "then" is a later webhook.
//	copy                         a client reads the pod into its cache
//	permit|postpermit id...      the rules pass, for the attempt that the pod has now
//	waiting                      the ids that wait for rules, with their stage
//	renew                        the controller gives waiting ids a new attempt
//	gone name...                 the employers that put finalizers of these names do not exist any more
//	advance                      one round of the controller, with all permits given so far
//	kubelet [crash|recover]      the kubelet reports Ready
//	gate true|false              another client writes the gate
//	tick duration                time passes
//	jump duration                the clock is set forward, or back
//	option settle=...|timeout=...|policy=...
//	services none|some           whether a Service selects the pod
//	connections none|some        what the drain endpoint of the pod answers
//	checks none|create           whether PostCheck rules apply to the creation of the pod
//	annotate key=value           an annotation of the lifecycle
//	delete                       a deletion request
//	show | writes                the pod as it is | how many requests the controller has sent for it
type session struct {
	sim     *environment
	permits lifecycle.Permits
	cached  map[string]string
}

// run executes the commands and returns their output. When more than one prints,
// each output starts with its command.
func (s *session) run(t *testing.T, commands []string) string {
	t.Helper()
	var printed []string
	var outputs int
	for _, command := range commands {
		output := s.execute(t, strings.Fields(command))
		if output != "" {
			outputs++
			printed = append(printed, "> "+command, output)
		}
	}
	if outputs == 1 {
		printed = printed[1:]
	}
	if len(printed) == 0 {
		return ""
	}
	return strings.Join(printed, "\n") + "\n"
}

func (s *session) execute(t *testing.T, words []string) string {
	t.Helper()
	verb, args := words[0], words[1:]
	switch verb {
	case "pod", "create":
		return s.start(t, verb == "create", args)
	case "user", "podops":
		edit, then := s.editOf(t, args)
		return printResponse(s.sim.update(t, verb == "podops", edit, then))
	case "bypass":
		edit, _ := s.editOf(t, args)
		s.sim.bypass(edit)
	case "copy":
		s.cached = maps.Clone(s.sim.pod.Labels)
	case "permit":
		s.grant(s.permits.PreCheck, appsv1alpha1.PreCheckLabelPrefix, args)
	case "postpermit":
		s.grant(s.permits.PostCheck, appsv1alpha1.PostCheckLabelPrefix, args)
	case "services":
		s.sim.services = map[string]lifecycle.Services{"none": lifecycle.ServicesNone, "some": lifecycle.ServicesSome}[args[0]]
	case "connections":
		s.sim.drained = args[0] == "none"
	case "checks":
		s.sim.createRules = args[0] == "create"
	case "annotate":
		key, value, _ := strings.Cut(args[0], "=")
		s.sim.bypass(func(pod *corev1.Pod) { pod.Annotations = map[string]string{longKey(key): value} })
	case "gone":
		for _, name := range args {
			s.sim.goneEmployers = append(s.sim.goneEmployers, employerOf(name))
		}
	case "advance":
		return printChange(s.sim.reconcile(t, s.permits))
	case "waiting":
		return printWaiting(lifecycle.WaitingIDs(lifecycle.NewPodFacts(s.sim.pod)))
	case "renew":
		change := lifecycle.Renew(lifecycle.NewPodFacts(s.sim.pod), s.sim.clock.Now())
		s.sim.bypass(func(pod *corev1.Pod) { pod.Labels = change.Apply(pod.Labels) })
		return printChange(change)
	case "kubelet":
		if len(args) > 0 {
			s.sim.kubelet.Healthy = args[0] == "recover"
		}
		s.sim.report()
	case "gate":
		sim.SetCondition(s.sim.pod, appsv1alpha1.ServiceReadyGate, args[0] == "true", "", s.sim.clock.Now())
		s.sim.observe()
	case "tick":
		s.sim.pass(mustDuration(t, args[0]))
	case "jump":
		s.sim.clock.Step(mustDuration(t, args[0]))
	case "option":
		s.option(t, args[0])
	case "delete":
		s.sim.delete()
	case "show":
		return s.show()
	case "writes":
		return strconv.Itoa(s.sim.controllerWrites)
	default:
		t.Fatalf("unknown command %q", verb)
	}
	return ""
}

func (s *session) start(t *testing.T, create bool, args []string) string {
	t.Helper()
	pod := &corev1.Pod{}
	pod.Labels = map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
	settings := map[string]string{"gate": "true", "ready": "yes"}
	if create {
		settings = map[string]string{"gate": "unset", "ready": "never"}
	}
	for _, word := range args {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "finalizers":
			pod.Finalizers = strings.Split(value, ",")
		case "expected":
			expect(pod, strings.Split(value, ","))
		case "gate", "ready":
			settings[key] = value
		case "control":
			delete(pod.Labels, appsv1alpha1.ControlLabelKey)
		default:
			setLabel(t, pod, word)
		}
	}
	s.sim = newSim(pod)
	s.permits = lifecycle.Permits{PreCheck: map[string]string{}, PostCheck: map[string]string{}}
	s.sim.kubelet.Healthy = settings["ready"] != "no"
	setStatus(t, pod, settings)
	if create {
		return printResponse(s.sim.create(pod))
	}
	return ""
}

// setStatus gives the pod a gate and a Ready condition; "" leaves one as it is.
func setStatus(t *testing.T, pod *corev1.Pod, settings map[string]string) {
	t.Helper()
	if gate := settings["gate"]; gate != "" && gate != "missing" {
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: appsv1alpha1.ServiceReadyGate}}
		if gate != "unset" {
			sim.SetCondition(pod, appsv1alpha1.ServiceReadyGate, gate == "true", "", epoch)
		}
	}
	switch ready := settings["ready"]; ready {
	case "yes", "gates":
		sim.SetCondition(pod, corev1.ContainersReady, true, "", epoch)
		sim.SetCondition(pod, corev1.PodReady, ready == "yes", map[string]string{"gates": "ReadinessGatesNotReady"}[ready], epoch)
	case "no":
		sim.SetCondition(pod, corev1.ContainersReady, false, "", epoch)
		sim.SetCondition(pod, corev1.PodReady, false, "ContainersNotReady", epoch)
	case "never", "":
	default:
		t.Fatalf("unknown readiness %q", ready)
	}
}

// editOf reads the words of a request: the changes of the client, and the later changes of
// another webhook (nil if none).
func (s *session) editOf(t *testing.T, words []string) (edit, then func(*corev1.Pod)) {
	t.Helper()
	own, later, found := cutWords(words, "then")
	if found {
		then = func(pod *corev1.Pod) { s.edit(t, pod, later) }
	}
	return func(pod *corev1.Pod) { s.edit(t, pod, own) }, then
}

func (s *session) edit(t *testing.T, pod *corev1.Pod, words []string) {
	t.Helper()
	var mode string
	for _, word := range words {
		switch word {
		case "set", "remove", "finalizer", "expect", "status":
			mode = word
			continue
		case "copied":
			pod.Labels = maps.Clone(s.cached)
			continue
		}
		switch mode {
		case "set":
			setLabel(t, pod, word)
		case "remove":
			delete(pod.Labels, longKey(word))
		case "finalizer":
			pod.Finalizers = slices.DeleteFunc(pod.Finalizers, func(name string) bool { return name == word[1:] })
			if word[0] == '+' {
				pod.Finalizers = append(pod.Finalizers, word[1:])
			}
		case "expect":
			expect(pod, strings.Split(word, ","))
			if word == "malformed" {
				pod.Annotations[appsv1alpha1.AvailableConditionsAnnotationKey] = `{"expectedFinalizers":`
			}
		case "status":
			key, value, _ := strings.Cut(word, "=")
			setStatus(t, pod, map[string]string{key: value})
		default:
			t.Fatalf("%q: start with set, remove, finalizer, expect or status", words)
		}
	}
}

func (s *session) grant(permits map[string]string, prefix string, ids []string) {
	for _, id := range ids {
		permits[id] = s.sim.pod.Labels[prefix+"/"+id]
	}
}

func (s *session) option(t *testing.T, word string) {
	t.Helper()
	key, value, _ := strings.Cut(word, "=")
	switch key {
	case "settle":
		s.sim.opts.Settle = mustDuration(t, value)
	case "policy":
		s.sim.opts.GateSyncPolicy = value
	case "timeout":
		s.sim.opts.GateSyncTimeout = mustDuration(t, value)
	default:
		t.Fatalf("unknown option %q", key)
	}
}

func (s *session) show() string {
	if s.sim.gone() {
		return "gone"
	}
	pod := s.sim.pod
	facts := lifecycle.NewPodFacts(pod)
	gate := [...]string{"missing", "unset", "false", "true"}[facts.Gate]
	lines := []string{"labels " + printLabels(pod.Labels)}
	if len(pod.Finalizers) > 0 {
		lines = append(lines, "finalizers "+strings.Join(pod.Finalizers, " "))
	}
	return strings.Join(append(lines, fmt.Sprintf("gate %s, ready %t", gate, facts.Ready)), "\n")
}

func printResponse(a response) string {
	var lines []string
	for _, denial := range a.denials {
		lines = append(lines, "denied "+shortKey(denial.Key)+": "+shortText(denial.Message))
	}
	if len(a.denials) > 0 {
		return strings.Join(lines, "\n")
	}
	if len(a.stripped) > 0 {
		lines = append(lines, "stripped "+printKeys(a.stripped))
	}
	return strings.Join(append(lines, printChange(a.change)), "\n")
}

func printChange(change lifecycle.Change) string {
	var lines []string
	if len(change.Set) > 0 {
		lines = append(lines, "+ "+printLabels(change.Set))
	}
	if len(change.Remove) > 0 {
		lines = append(lines, "- "+printKeys(change.Remove))
	}
	if change.Gate != nil {
		lines = append(lines, fmt.Sprintf("gate %t", *change.Gate))
	}
	if change.GateReason != nil {
		lines = append(lines, strings.TrimRight("reason "+*change.GateReason, " "))
	}
	for _, condition := range change.Conditions {
		lines = append(lines, "condition "+shortKey(condition.Type)+" "+condition.Reason+": "+shortText(condition.Message))
	}
	for _, kind := range change.RemoveConditions {
		lines = append(lines, "condition "+shortKey(kind)+" removed")
	}
	if len(change.Forget) > 0 {
		lines = append(lines, "forget "+strings.Join(change.Forget, " "))
	}
	for _, move := range change.Transitions {
		lines = append(lines, strings.TrimRight(fmt.Sprintf("move %s %s %s", move.Step, move.ID, move.Type), " "))
	}
	if change.WaitsForKubelet {
		lines = append(lines, "waits for the kubelet")
	}
	if change.WaitsForDrain {
		lines = append(lines, "waits for the drain endpoint")
	}
	if change.Wake > 0 {
		lines = append(lines, "wake in "+change.Wake.String())
	}
	if len(lines) == 0 {
		return "nothing"
	}
	return strings.Join(lines, "\n")
}

func printWaiting(waiting []lifecycle.Waiting) string {
	lines := []string{}
	for _, w := range waiting {
		lines = append(lines, fmt.Sprintf("%s %s %s %s", w.Stage, w.ID, w.Type, printLabels(map[string]string{"attempt": w.Attempt})))
	}
	if len(lines) == 0 {
		return "no id"
	}
	return strings.Join(lines, "\n")
}

func printKeys(keys []string) string {
	short := make([]string, len(keys))
	for i, key := range keys {
		short[i] = shortKey(key)
	}
	return strings.Join(short, " ")
}

// printLabels prints labels sorted by key, times as their distance from the start, and
// leaves out the control label.
func printLabels(labels map[string]string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if key == appsv1alpha1.ControlLabelKey && labels[key] == appsv1alpha1.ControlLabelValue {
			continue
		}
		word := shortKey(key)
		if at, ok := lifecycle.ParseTime(labels[key]); ok && !at.Before(epoch) {
			word += "=@" + at.Sub(epoch).String()
		} else if labels[key] != "" {
			word += "=" + labels[key]
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func setLabel(t *testing.T, pod *corev1.Pod, word string) {
	t.Helper()
	key, value, hasValue := strings.Cut(word, "=")
	if offset, isTime := strings.CutPrefix(value, "@"); isTime || !hasValue {
		at := epoch
		if isTime {
			at = at.Add(mustDuration(t, offset))
		}
		value = strconv.FormatInt(at.UnixNano(), 10)
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[longKey(key)] = value
}

// longKey and shortKey add and remove the domain of the lifecycle. A key of another owner
// is written with its dot.
func longKey(key string) string {
	name, id, hasID := strings.Cut(key, "/")
	switch {
	case key == "control":
		return appsv1alpha1.ControlLabelKey
	case strings.Contains(name, "."):
		return key
	case hasID:
		return name + "." + appsv1alpha1.LifecycleDomain + "/" + id
	default:
		return appsv1alpha1.LifecycleDomain + "/" + name
	}
}

func shortKey(key string) string {
	return shortText(strings.TrimPrefix(key, appsv1alpha1.LifecycleDomain+"/"))
}

func shortText(text string) string {
	return strings.ReplaceAll(text, "."+appsv1alpha1.LifecycleDomain, "")
}

func cutWords(words []string, separator string) (before, after []string, found bool) {
	i := slices.Index(words, separator)
	if i < 0 {
		return words, nil, false
	}
	return words[:i], words[i+1:], true
}

func mustDuration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("reading a duration: %v", err)
	}
	return d
}
