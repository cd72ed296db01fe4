package hostile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// order is an attack and its target.
type order struct {
	Attack     string
	Namespaces []string
	Kubeconfig string
	Webhook    string // address of the webhook port
}

// attackFlag makes this program an attacker: a process of its own at the lowest priority.
var attackFlag = flag.String("attack", "", "run an attack, an order as JSON, instead of the tests")

func TestMain(m *testing.M) {
	flag.Parse()
	if *attackFlag == "" {
		os.Exit(m.Run())
	}
	if err := carryOut(*attackFlag); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// attacker sends requests and counts them.
type attacker struct {
	order
	admin client.Client
	sent  atomic.Int64
}

// carryOut runs an attack for attackTime and prints how many requests were sent.
func carryOut(text string) error {
	a := &attacker{}
	if err := json.Unmarshal([]byte(text), &a.order); err != nil {
		return fmt.Errorf("reading the order: %w", err)
	}
	attack, known := map[string]func(context.Context) error{
		"modules": a.sendModules, "waiting-pods": a.makePodsWait, "large-selectors": a.sendLargeSelectors,
		"large-blobs":      a.sendLargeBlobs,
		"large-objects":    a.storeLargeObjects,
		"names":            a.useNamesOnce,
		"half-sent-bodies": a.sendHalfBodies, "handshakes": a.handshake, "forged-reviews": a.forgeReviews,
	}[a.Attack]
	if !known {
		return fmt.Errorf("unknown attack %q", a.Attack)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, appsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", a.Kubeconfig)
	if err != nil {
		return err
	}
	if a.admin, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), attackTime)
	defer stop()
	if err := attack(ctx); err != nil {
		return err
	}
	fmt.Println(a.sent.Load())
	return nil
}

// inParallel calls attack repeatedly until ctx ends, from several workers, each time with
// another number.
func (a *attacker) inParallel(ctx context.Context, workers int, attack func(ctx context.Context, n int) error) error {
	var group errgroup.Group
	for worker := range workers {
		group.Go(func() error {
			for n := worker; ctx.Err() == nil; n += workers {
				if err := attack(ctx, n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// expectDenialOrSuccess counts a request. It returns an error unless the request succeeded,
// or was rejected by the API server or the manager. Any other error means that the attack
// did not take place.
func (a *attacker) expectDenialOrSuccess(err error) error {
	a.sent.Add(1)
	if err == nil || slices.ContainsFunc(
		[]string{"denied", "nvalid", "too many", "failed calling webhook", "context canceled", "context deadline exceeded", "would exceed context deadline"},
		func(text string) bool { return strings.Contains(err.Error(), text) },
	) {
		return nil
	}
	return err
}

// start runs an attack in a separate process. The returned function waits for its end and
// returns the number of requests that it sent.
func (f *target) start(ctx context.Context, o order) (wait func() string) {
	GinkgoHelper()
	o.Kubeconfig, o.Webhook = f.Kubeconfig(), f.WebhookAddress()
	text, err := json.Marshal(o)
	Expect(err).NotTo(HaveOccurred())
	self, err := os.Executable()
	Expect(err).NotTo(HaveOccurred())
	words := outranked(19, self, "-attack", string(text))
	command := exec.CommandContext(ctx, words[0], words[1:]...)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	Expect(command.Start()).To(Succeed())
	return func() string {
		GinkgoHelper()
		Expect(command.Wait()).To(Succeed(), "attack %s: %s", o.Attack, &problems)
		sent := strings.TrimSpace(out.String())
		Expect(sent).NotTo(Or(BeEmpty(), Equal("0")), "requests that the attack %s sent", o.Attack)
		return sent
	}
}
