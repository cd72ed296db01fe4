package clients_test

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/golden"
	"github.com/podops-dev/podops/test/stage/stagetest"
)

const (
	// bound is how long a story may take.
	bound = 3 * time.Minute

	// atOnce is how many stories are played at a time: fewer than nodes, since some of them drain one.
	atOnce = 3

	// calm is for how long nothing may follow the end of a story.
	calm = 3 * time.Second
)

// story is what a program does to pods, and what happens to them.
type story struct {
	client, does string

	// needs is the program of another project, empty for imitations and kubectl.
	needs string

	// rule is the rule of the pods, without a name for no rule; limits is its text.
	rule    appsv1alpha1.TransitionRule
	limits  string
	maxHold time.Duration

	// workload creates so many pods; left are in the end, if not as many.
	workload   setup
	pods, left int32

	// act sends the requests, and returns what their program reports.
	act func(ctx context.Context, c *cell) (string, error)

	without, with end

	// alone is true for a story whose program looks at all nodes.
	alone bool
}

// end is how a story has to end.
type end struct {
	// gone returns how many pods are to be removed.
	gone func(c *cell) int

	// least is how many pods must serve at any time.
	least int

	// keeps is true if no pod of the beginning may be removed.
	keeps bool

	// reports is what the program has to report, and text describes the end.
	reports, text string
}

// all returns the stories, those with the longest first.
func all() []story { return slices.Concat(nodes(), deschedules(), rollouts(), groups(), kruises()) }

func exactly(pods int) func(*cell) int { return func(*cell) int { return pods } }

// quarter lets 25 % of the pods be unavailable at a time.
func quarter() appsv1alpha1.TransitionRule { return stagetest.Unavailable(intstr.FromString("25%")) }

// observed is how a story has ended, with the label or without it.
type observed struct {
	gone, least, held int
	reports           string
	took              time.Duration

	// p99 is the longest time but one in a hundred of requests that were carried out.
	p99 time.Duration
}

func TestClients(t *testing.T) {
	w := &cluster{stagetest.Start(t, filepath.Join("..", ".."), "clients")}
	startRollouts(t, w)
	startGroups(t, w)
	startKruise(t, w)
	stories := all()
	ends := make([][2]observed, len(stories))
	var group sync.WaitGroup
	places := make(chan struct{}, atOnce)
	play := func(i, label int) {
		s := stories[i]
		name := s.client + " " + s.does + [2]string{": without the label", ": with it"}[label]
		t.Run(strings.ReplaceAll(name, "/", "-"), func(t *testing.T) {
			if _, built := w.program(s.needs); s.needs != "" && !built {
				t.Fatalf("bin/clients/%s has not been built: make test-clients builds it", s.needs)
			}
			ends[i][label] = s.play(t, w, label == 1)
		})
	}
	for i, s := range stories {
		for label := range 2 {
			if s.alone {
				group.Wait()
				play(i, label)
				continue
			}
			places <- struct{}{}
			group.Go(func() {
				defer func() { <-places }()
				play(i, label)
			})
		}
	}
	group.Wait()
	t.Log("\n" + figures(stories, ends))
	if slices.ContainsFunc(ends, func(e [2]observed) bool { return e[0].took == 0 || e[1].took == 0 }) {
		t.Log("the table is compared only once every story was played and has passed")
		return
	}
	golden.CheckBlock(t, filepath.Join("..", "..", "docs", "workloads.md"), tableBegins, tableEnds, table(stories))
}

// play plays a story, and checks its end.
func (s story) play(t *testing.T, w *cluster, controlled bool) observed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	c, err := newCell(ctx, w, s, controlled)
	if err != nil {
		t.Fatalf("making the namespace: %v", err)
	}
	defer func() {
		_ = w.Delete(context.WithoutCancel(ctx), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}}) // the cluster ends anyway
	}()
	if err := s.workload(ctx, c, s.pods); err != nil {
		t.Fatalf("creating the workload: %v", err)
	}
	if err := c.awaitServing(ctx, int(s.pods)); err != nil {
		t.Fatal(err)
	}
	c.measure()
	began := time.Now()
	reports, err := s.act(ctx, c)
	took := time.Since(began)
	if err == nil {
		err = c.settles(ctx, int(cmp.Or(s.left, s.pods)))
	}
	o, reading := c.observations()
	o.reports, o.took = reports, took
	if err != nil || reading != nil {
		t.Fatalf("%v %v; reports %q\n%s", err, reading, reports, c.Story())
	}
	want := s.without
	if controlled {
		want = s.with
	}
	want.check(t, c, o)
	return o
}

// settles waits until the pods serve, and checks that this lasts.
func (c *cell) settles(ctx context.Context, pods int) error {
	if err := c.awaitServing(ctx, pods); err != nil {
		return err
	}
	gone := func() int {
		c.Lock()
		defer c.Unlock()
		return len(c.gone)
	}
	before := gone()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(calm):
	}
	if after := gone(); after != before {
		return fmt.Errorf("%d more pods were removed once the program had ended", after-before)
	}
	return c.awaitServing(ctx, pods)
}

// observations returns what has happened to the pods and the requests.
func (c *cell) observations() (observed, error) {
	removals, err := c.removals()
	if err != nil {
		return observed{}, err
	}
	c.Lock()
	defer c.Unlock()
	o := observed{gone: len(c.gone), least: c.least, held: removals.Count(audit.Code(429))}
	var waits []time.Duration
	for _, e := range removals.Where(audit.Accepted) {
		waits = append(waits, e.Took)
	}
	if slices.Sort(waits); len(waits) > 0 {
		o.p99 = waits[len(waits)*99/100]
	}
	return o, nil
}

func (e end) check(t *testing.T, c *cell, o observed) {
	t.Helper()
	if want := e.gone(c); o.gone != want {
		t.Errorf("%d pods were removed, want %d", o.gone, want)
	}
	if o.least < e.least {
		t.Errorf("%d pods served at a time, want at least %d", o.least, e.least)
	}
	if left := c.kept(); e.keeps && left != len(c.before) {
		t.Errorf("%d of the pods of the beginning are left, want %d", left, len(c.before))
	}
	if o.reports != e.reports {
		t.Errorf("the program reports %q, want %q", o.reports, e.reports)
	}
	if t.Failed() {
		t.Log("\n" + c.Story())
	}
}

// figures returns what was measured.
func figures(stories []story, ends [][2]observed) string {
	var text strings.Builder
	text.WriteString("| Client | Requests | Rule | Pods | Label | Removed | Least that served | 429 | Reports | Seconds | p99 of requests that passed |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for i, s := range stories {
		for label, o := range ends[i] {
			fmt.Fprintf(&text, "| %s | %s | %s | %d | %s | %d | %d | %d | %s | %.1f | %.2f s |\n", s.client, s.does, s.limits, s.pods,
				[2]string{"no", "yes"}[label], o.gone, o.least, o.held, o.reports, o.took.Seconds(), o.p99.Seconds())
		}
	}
	return text.String()
}

// table returns the stories as a table of Markdown.
func table(stories []story) string {
	var text strings.Builder
	text.WriteString("| Client | Requests | Pods, rule | Without the label | With it |\n|---|---|---|---|---|\n")
	for _, s := range stories {
		fmt.Fprintf(&text, "| %s | %s | %d, %s | %s | %s |\n", s.client, s.does, s.pods, s.limits, s.without.text, s.with.text)
	}
	return text.String()
}

// The table of docs/workloads.md.
const (
	tableBegins = "<!-- table of make test-clients -->\n"
	tableEnds   = "<!-- end of the table -->\n"
)
