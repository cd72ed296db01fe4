package verify

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/podops-dev/podops/pkg/runtime/text"
)

// text prints a report for a terminal.
func (v *verb) text(r report) error {
	for _, found := range r.Findings {
		place := fmt.Sprintf("%s:%d", found.File, found.Line)
		if found.Column > 0 {
			place += fmt.Sprintf(":%d", found.Column)
		}
		_, _ = fmt.Fprintf(v.Out, "%s: %s: %s [%s]\n", place, found.Level, found.Object, found.ID)
		if found.Field != "" {
			_, _ = fmt.Fprintf(v.Out, "  %s: %s\n", found.Field, found.Message)
		} else {
			_, _ = fmt.Fprintf(v.Out, "  %s\n", found.Message)
		}
		_, _ = fmt.Fprintf(v.Out, "  fix: %s\n", found.Fix)
	}
	_, err := fmt.Fprintf(v.Out, "objects: %d; findings: %s, %s, %s\n",
		r.Objects, text.Count(r.Errors, "error"), text.Count(r.Warnings, "warning"), text.Count(r.Notes, "note"))
	return err
}

func (v *verb) json(r report) error { return v.encode(r) }

func (v *verb) encode(content any) error {
	encoder := json.NewEncoder(v.Out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(content)
}

// document is a JSON object.
type document = map[string]any

// sarif prints a report in the Static Analysis Results Interchange Format, version 2.1.0.
func (v *verb) sarif(r report) error {
	var rules []document
	places := map[string]int{}
	for i, id := range slices.Sorted(maps.Keys(catalogue())) {
		places[id] = i
		known := catalogue()[id]
		rules = append(rules, document{
			"id": id, "shortDescription": document{"text": known.Title}, "help": document{"text": known.Fix},
			"defaultConfiguration": document{"level": known.Level},
		})
	}
	results := []document{}
	for _, found := range r.Findings {
		region := document{"startLine": found.Line}
		if found.Column > 0 {
			region["startColumn"] = found.Column
		}
		results = append(results, document{
			"ruleId": found.ID, "ruleIndex": places[found.ID], "level": found.Level,
			"message": document{"text": fmt.Sprintf("%s: %s: %s", found.Object, found.Field, found.Message)},
			"locations": []document{{"physicalLocation": document{
				"artifactLocation": document{"uri": filepath.ToSlash(found.File)}, "region": region,
			}}},
		})
	}
	return v.encode(document{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []document{{"tool": document{"driver": document{"name": "kubectl-podops", "rules": rules}}, "results": results}},
	})
}
