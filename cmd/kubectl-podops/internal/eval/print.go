package eval

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/evaluation/offline"
)

// print prints the verdicts in the format of --output.
func (v *verb) print(verdicts []offline.Verdict) error {
	if len(verdicts) == 0 {
		_, _ = fmt.Fprintln(v.ErrOut, "No pods found.")
	}
	document := struct {
		Verdicts []offline.Verdict `json:"verdicts"`
	}{Verdicts: append([]offline.Verdict{}, verdicts...)}
	var text []byte
	var err error
	switch v.output {
	case "":
		Text(v.Out, verdicts)
		return nil
	case "json":
		text, err = json.MarshalIndent(document, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(document)
	default:
		return fmt.Errorf("--output: %q is neither json nor yaml", v.output)
	}
	if err != nil {
		return fmt.Errorf("printing the verdicts: %w", err)
	}
	_, err = v.Out.Write(text)
	return err
}

// Text prints verdicts as readable text.
func Text(out io.Writer, verdicts []offline.Verdict) {
	for _, verdict := range verdicts {
		if verdict.State == offline.NotWaiting {
			_, _ = fmt.Fprintf(out, "%s: not evaluated, %s\n", verdict.Pod, verdict.Message)
			continue
		}
		_, _ = fmt.Fprintf(out, "%s: %s (%s of %s)\n", verdict.Pod, state(verdict.State), verdict.Stage, verdict.Operation)
		for _, found := range verdict.Rules {
			_, _ = fmt.Fprintf(out, "  %s: %s\n", found.Rule, ruleState(found))
			if found.Message != "" {
				_, _ = fmt.Fprintf(out, "    %s: %s\n", found.Code, found.Message)
			}
		}
	}
}

// state returns the state of a pod in words.
func state(state offline.State) string {
	switch state {
	case offline.Permitted:
		return "permitted"
	case offline.NeedsService:
		return "needs the service of a webhook rule"
	default:
		return "withheld"
	}
}

// ruleState returns the state of a verdict in words.
func ruleState(verdict offline.RuleVerdict) string {
	if verdict.NeedsService {
		return "needs the service, which is not called"
	}
	switch verdict.State {
	case evaluation.VerdictPermitted:
		return "permits it"
	case evaluation.VerdictWithheld:
		return "withholds it"
	case evaluation.VerdictWouldWithhold:
		return fmt.Sprintf("would withhold it (%s)", verdict.Enforcement)
	case evaluation.VerdictNotApplicable:
		return "does not apply"
	case evaluation.VerdictWaived:
		return "withholds it, and is waived"
	default:
		return "not evaluated, another rule withholds it"
	}
}
