package rolloutview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/podops-dev/podops/pkg/runtime/text"
)

const (
	// MinWidth is the smallest width of a frame. Narrower terminals cut its lines.
	MinWidth = 20

	// wideWidth is the width from which pods have the columns for operation steps and traffic.
	wideWidth = 60

	// minReason is the least width in which the reason of a pod is shown beside it.
	minReason = 12

	// longestName bounds the names of pods, rules and revisions in columns.
	longestName = 48
)

// renderer makes the lines of one frame.
type renderer struct {
	view  View
	width int
	names int // columns of the names of pods
}

// At returns the view with the time that ages are counted to.
func (v View) At(now time.Time) View {
	v.Time = metav1.NewTime(now)
	return v
}

// Frame returns the view as lines of at most width columns, and at most height lines; a height of 0 is no
// limit. In a frame with too few lines, pods that a rule withholds come first, and the others are counted.
func (v View) Frame(width, height int) Frame {
	r := renderer{view: v, width: max(width, MinWidth), names: 1}
	for _, pod := range v.AllPods() {
		r.names = max(r.names, Width(pod.Name))
	}
	// A quarter of the width identifies pods of a workload, which differ at the end of their names.
	r.names = min(r.names, longestName, max(10, r.width/4))
	head, side := r.head(), r.side()
	rows := -1
	if height > 0 {
		// A third of the frame, or the lines that the pods leave free.
		side = limited(side, max(2, (height-len(head))/3, height-len(head)-1-r.needed()))
		rows = max(0, height-len(head)-len(side)-1)
	}
	lines := slices.Concat(head, side, []Line{nil}, r.revisions(rows))
	if height > 0 {
		lines = lines[:min(len(lines), height)]
	}
	return Frame(lines).Fit(width)
}

// limited returns the first lines, the last of which counts the rest.
func limited(lines []Line, most int) []Line {
	if len(lines) <= most {
		return lines
	}
	return append(slices.Clone(lines[:most-1]), Line{{Text: fmt.Sprintf("… and %d more lines", len(lines)-most+1), Style: StyleFaint}})
}

// head returns the name and the numbers of the workload.
func (r renderer) head() []Line {
	v := r.view
	first := Line{{v.Kind + "/" + v.Name, StyleStrong}, {Text: ": "}, r.state(), {Text: ", in " + v.Namespace}}
	unavailable := Segment{Text: fmt.Sprintf("%d unavailable", v.Unavailable)}
	if v.Unavailable > 0 {
		unavailable.Style = StyleOff
	}
	second := Line{{Text: fmt.Sprintf("%d of %d available, ", v.Available, v.Desired)}, unavailable}
	if v.Highest != nil {
		second = append(second, Segment{Text: fmt.Sprintf(" (highest %d)", *v.Highest)})
	}
	second = append(second, Segment{Text: fmt.Sprintf(", %d updated", v.Updated)})
	lines := []Line{first, second}
	if v.Stale != "" {
		lines = append([]Line{{{v.Stale, StyleProblem}}}, lines...)
	}
	if v.Requests != nil {
		failed := Segment{Text: fmt.Sprintf("failed %s", thousands(v.Requests.Failed)), Style: StyleServing}
		if v.Requests.Failed > 0 {
			failed.Style = StyleProblem
		}
		lines = append(lines, Line{{Text: fmt.Sprintf("requests %s, ", thousands(v.Requests.Sent))}, failed})
	}
	return lines
}

func (r renderer) state() Segment {
	switch r.view.State {
	case StateComplete:
		return Segment{"complete", StyleServing}
	case StateWithheld:
		withheld := 0
		for _, pod := range r.view.AllPods() {
			if pod.Withheld != nil {
				withheld++
			}
		}
		return Segment{text.Count(withheld, "pod") + " withheld by rules", StyleWaiting}
	default:
		return Segment{"in progress", StyleOff}
	}
}

// revisions returns the revisions with their pods in so many rows; -1 is no limit.
func (r renderer) revisions(rows int) []Line {
	shown := r.view.Revisions
	if needed := r.needed(); rows < 0 || needed <= rows {
		return r.groups(shown, needed)
	}
	// Each revision takes a line of its own and a line that counts its other pods.
	shown, hidden := urgent(shown, max(1, rows/3))
	var last []Line
	if len(hidden) > 0 {
		pods := 0
		for i := range hidden {
			pods += len(hidden[i].Pods)
		}
		last = []Line{{{fmt.Sprintf("… and %s in %d more of the revisions", text.Count(pods, "pod"), len(hidden)), StyleFaint}}}
	}
	return append(r.groups(shown, rows-len(last)-2*len(shown)), last...)
}

// needed returns how many rows the revisions take with all their pods.
func (r renderer) needed() int {
	rows := len(r.view.Revisions)
	for i := range r.view.Revisions {
		rows += len(r.view.Revisions[i].Pods)
	}
	return rows
}

// first returns the most urgent pod of a revision.
func (r Revision) first() Pod {
	if len(r.Pods) == 0 {
		return Pod{}
	}
	return r.Pods[0]
}

// urgent returns the revisions with the most urgent pods, at most so many, and the others, both in the order of
// the view.
func urgent(revisions []Revision, most int) (shown, hidden []Revision) {
	byPods := make([]int, len(revisions))
	for i := range byPods {
		byPods[i] = i
	}
	slices.SortStableFunc(byPods, func(a, b int) int { return byUrgency(revisions[a].first(), revisions[b].first()) })
	for i := range revisions {
		if slices.Index(byPods, i) < most {
			shown = append(shown, revisions[i])
		} else {
			hidden = append(hidden, revisions[i])
		}
	}
	return shown, hidden
}

// groups returns revisions with the most urgent of their pods.
func (r renderer) groups(revisions []Revision, most int) []Line {
	var all []Pod
	for i := range revisions {
		all = append(all, revisions[i].Pods...)
	}
	slices.SortStableFunc(all, byUrgency)
	chosen := map[string]bool{}
	for _, pod := range all[:min(len(all), max(0, most))] {
		chosen[pod.UID] = true
	}
	var lines []Line
	for i := range revisions {
		lines = append(lines, r.revision(&revisions[i]))
		pods := revisions[i].Pods
		count := 0
		for count < len(pods) && chosen[pods[count].UID] {
			count++
		}
		if len(pods)-count == 1 {
			count++ // A line that counts one pod is no shorter than the pod.
		}
		for j, pod := range pods[:count] {
			lines = append(lines, r.pod(pod, j == len(pods)-1))
		}
		if rest := pods[count:]; len(rest) > 0 {
			lines = append(lines, Line{{fmt.Sprintf("└ … and %d more: %s", len(rest), words(rest)), StyleFaint}})
		}
	}
	return lines
}

// revision returns the line of a revision: its name, a bar with a block for each pod, and their number by group.
func (r renderer) revision(revision *Revision) Line {
	line := Line{{cutLeft(revision.Name, max(10, r.width/3)), StyleStrong}}
	if revision.Name == "" {
		line = Line{{"pods", StyleStrong}}
	}
	if revision.Number != "" {
		line = append(line, Segment{Text: ", revision " + revision.Number})
	}
	if !revision.Current {
		line = append(line, Segment{Text: ", old"})
	}
	line = append(line, Segment{Text: "  "})
	if r.width >= wideWidth {
		line = append(append(line, bar(revision.Pods, min(24, r.width/5))...), Segment{Text: "  "})
	}
	for i, part := range groupPods(revision.Pods) {
		if i > 0 {
			line = append(line, Segment{Text: " "})
		}
		line = append(line, Segment{string(part.block), part.style}, Segment{Text: fmt.Sprintf(" %d %s", part.count, part.word)})
	}
	return line
}

// pod returns the line of a pod.
func (r renderer) pod(pod Pod, last bool) Line {
	branch := "├ "
	if last {
		branch = "└ "
	}
	group := phaseGroup(pod.Phase)
	line := Line{{branch, StyleFaint}, {Text: pad(cutLeft(pod.Name, r.names), r.names) + " "}}
	if r.width >= wideWidth {
		line = append(append(line, steps(pod.Phase)...), Segment{Text: " "})
	}
	line = append(line, Segment{pad(string(pod.Phase), len(PhaseTerminating)), group.style}, Segment{Text: " " + pad(r.age(pod), 5)})
	if r.width >= wideWidth {
		line = append(line, Segment{Text: " " + pad(trafficText(pod), 3)})
	}
	reason := pod.WaitsFor
	if pod.Withheld != nil {
		reason = pod.Withheld.Rule + ": " + pod.Withheld.Message
	}
	if taken := Width(line.Text()) + 1; reason != "" && r.width-taken >= minReason {
		line = append(line, Segment{Text: " " + reason})
	}
	return line
}

// age returns for how long a pod has been in its phase.
func (r renderer) age(pod Pod) string {
	if pod.Since == nil {
		return ""
	}
	return duration.HumanDuration(max(0, r.view.Time.Sub(pod.Since.Time)))
}

// trafficText returns whether a pod gets traffic.
func trafficText(pod Pod) string {
	switch {
	case pod.Backends == 0:
		return ""
	case pod.TrafficOn == 0:
		return "off"
	case pod.TrafficOn == pod.Backends:
		return "on"
	default:
		return fmt.Sprintf("%d/%d", pod.TrafficOn, pod.Backends)
	}
}

// words returns the number of pods by group.
func words(pods []Pod) string {
	var parts []string
	for _, group := range groupPods(pods) {
		parts = append(parts, fmt.Sprintf("%d %s", group.count, group.word))
	}
	return strings.Join(parts, ", ")
}

// thousands returns a number with commas: 3,390.
func thousands(n int) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
