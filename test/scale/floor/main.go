// Command floor does for each lifecycle only the work that every implementation has to do: it reads the same watch events
// of the pods, decodes and allows the same admission reviews, and sends as many writes of pods, events and statuses of
// rules, over the same transport. It has no rules, no queues, no caches and no bounds. Its processor time is a lower
// bound of the processor time of a manager.
//
//	make bench-floor
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
)

// collectorPercent is the GOGC of the manager while its heap is small.
const collectorPercent = 400

// options are the flags of the manager that command scale sets.
type options struct {
	kubeconfig, webhookURL, metrics, probe, pprof string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "floor: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	debug.SetGCPercent(collectorPercent)
	ctrl.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS, config.DisableCompression = -1, true
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, config, o); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func parse(args []string) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("floor", flag.ContinueOnError)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the manager")
	flags.StringVar(&o.webhookURL, "webhook-url", "", "address of the webhooks")
	flags.StringVar(&o.metrics, "metrics-bind-address", "", "address of the metrics")
	flags.StringVar(&o.probe, "health-probe-bind-address", "", "address of the readiness probe")
	flags.StringVar(&o.pprof, "pprof-bind-address", "", "address of the profiles; empty: no profiles")
	flags.Bool("metrics-secure", false, "has no effect")
	flags.Duration("shutdown-delay", 0, "has no effect")
	return o, flags.Parse(args)
}

// serve returns when the first of its parts ends.
func serve(ctx context.Context, config *rest.Config, o options) error {
	at, err := url.Parse(o.webhookURL)
	if err != nil {
		return fmt.Errorf("parsing --webhook-url: %w", err)
	}
	certificate, key, err := certutil.GenerateSelfSignedCertKey(at.Hostname(), nil, nil)
	if err != nil {
		return fmt.Errorf("making a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("reading the certificate: %w", err)
	}
	w, err := newWrites(config)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return listen(ctx, at.Host, reviews(), &pair) })
	group.Go(func() error { return listen(ctx, o.metrics, promhttp.Handler(), nil) })
	if o.pprof != "" {
		group.Go(func() error { return listen(ctx, o.pprof, profiles(), nil) })
	}
	if err := publish(ctx, config, at, certificate); err != nil {
		return err
	}
	group.Go(func() error { return listen(ctx, o.probe, http.NotFoundHandler(), nil) })
	group.Go(func() error { return watchPods(ctx, config, w.react) })
	return group.Wait()
}

// listen serves a handler, by HTTPS if there is a certificate, until ctx ends. Every server has /readyz.
func listen(ctx context.Context, address string, handler http.Handler, certificate *tls.Certificate) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("/", handler)
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: time.Minute, BaseContext: func(net.Listener) context.Context { return ctx }}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	var err error
	if certificate == nil {
		err = server.ListenAndServe()
	} else {
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*certificate}}
		err = server.ListenAndServeTLS("", "")
	}
	if ctx.Err() != nil {
		return context.Canceled
	}
	return fmt.Errorf("serving at %s: %w", address, err)
}

func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	return mux
}
