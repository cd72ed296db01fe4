package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/utils/clock"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/engine/opa/sandbox"
	"github.com/podops-dev/podops/pkg/telemetry/decisionlog"
	"github.com/podops-dev/podops/pkg/telemetry/export"
)

// newEngine starts the policy engine, and the decision log if it is configured; nil
// otherwise. modules compiles and evaluates the modules of users.
func newEngine(
	mgr manager.Manager, options Options, modules *sandbox.Sandbox, traces *export.Tracer, measured *decisionlog.Metrics,
) (*opa.Engine, *decisionlog.Writer, error) {
	engineOptions := opa.Options{
		Timeout: options.EvaluationTimeout, CustomTimeout: options.PolicyTimeout, Workers: modules, Memory: engineBytes(memoryLimit()),
	}
	var log *decisionlog.Writer
	if options.DecisionLog != "" {
		masks, err := decisionlog.ParseMasks(options.DecisionLogMask)
		if err != nil {
			return nil, nil, fmt.Errorf("--decision-log-mask: %w", err)
		}
		logOptions := decisionlog.Options{Sample: options.DecisionLogSample, Masks: masks, Metrics: measured}
		if traces != nil {
			logOptions.Tracer = traces
		}
		log = decisionlog.New(logOptions, clock.RealClock{})
		engineOptions.Observe = log.Observe
		if err := mgr.Add(decisionLogFile{log: log, path: options.DecisionLog}); err != nil {
			return nil, nil, fmt.Errorf("adding the decision log: %w", err)
		}
	}
	engine, err := opa.New(engineOptions)
	if err != nil {
		return nil, nil, fmt.Errorf("starting the policy engine: %w", err)
	}
	return engine, log, nil
}

// decisionLogFile appends the decision log to a file, or writes it to standard output.
type decisionLogFile struct {
	log  *decisionlog.Writer
	path string
}

// stdout is the path of standard output.
const stdout = "-"

// Start writes until ctx ends, or until a line cannot be written: any namespace can fill the disk, which must not end
// the manager. It fails only if the file cannot be opened.
func (f decisionLogFile) Start(ctx context.Context) (err error) {
	var out io.Writer = os.Stdout
	if f.path != stdout {
		file, openErr := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if openErr != nil {
			return fmt.Errorf("--decision-log: %w", openErr)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}
	if err := f.log.Run(ctx, out); err != nil {
		ctrllog.FromContext(ctx).Error(err, "The decision log ends: further decisions are dropped until the manager starts again")
	}
	return nil
}
