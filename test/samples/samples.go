// Package samples has the code samples of the documents that PodOps follows: facts to conform to. Its test
// compiles and runs the Go samples in a module of their own, with the code of docs/operation-controllers.md
// and docs/service-controllers.md; test/integration/podtransitionrule applies the samples in YAML.
//
// testdata has a file for each document, named as the document, with the samples in it: verbatim, below
// the heading that they have there. A document whose code has lost its indentation has it lost here.
package samples

import (
	"embed"
	"fmt"
	"path"
	"strings"
)

//go:embed testdata/*.md
var documents embed.FS

// Sample is a block of code of a document.
type Sample struct {
	// Document is the file name of the document, Heading the heading above the sample.
	Document, Heading string

	// Number counts the samples below one heading, from 1.
	Number int

	// Language is "go", "yaml" or "json".
	Language string

	// Text ends with a newline.
	Text string
}

// Name returns the name of the sample for messages, and for Find.
func (s Sample) Name() string { return fmt.Sprintf("%s, %s, %d", s.Document, s.Heading, s.Number) }

// All returns the samples of all documents, in the order of their names and then of their text.
func All() ([]Sample, error) {
	entries, err := documents.ReadDir("testdata")
	if err != nil {
		return nil, fmt.Errorf("listing the documents: %w", err)
	}
	var all []Sample
	for _, entry := range entries {
		text, err := documents.ReadFile(path.Join("testdata", entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading a document: %w", err)
		}
		found, err := parse(entry.Name(), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// Find returns the sample of that name.
func Find(all []Sample, name string) (Sample, error) {
	for _, sample := range all {
		if sample.Name() == name {
			return sample, nil
		}
	}
	return Sample{}, fmt.Errorf("no sample %q", name)
}

func parse(document, text string) ([]Sample, error) {
	const fence = "```"
	var found []Sample
	var block *Sample
	heading, number := "", 0
	for line := range strings.Lines(text) {
		switch {
		case block != nil && strings.TrimSpace(line) == fence:
			found, block = append(found, *block), nil
		case block != nil:
			block.Text += line
		case strings.HasPrefix(line, "## "):
			heading, number = strings.TrimSpace(strings.TrimPrefix(line, "## ")), 0
		case strings.HasPrefix(line, fence):
			number++
			block = &Sample{Document: document, Heading: heading, Number: number, Language: strings.TrimSpace(strings.TrimPrefix(line, fence))}
		}
	}
	if block != nil {
		return nil, fmt.Errorf("document %s: the last sample has no end", document)
	}
	return found, nil
}
