package moduletest

import (
	"encoding/json"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// maxInputs bounds the inputs that are kept for a module, and maxInputBytes the size of each.
const maxInputs, maxInputBytes = 100, 1 << 20

// Input is an input of a module in a test.
type Input struct {
	// File is the file of the module.
	File string

	// Test is the name of the test.
	Test string

	// Document is the input document, or the part of it that the test gives.
	Document json.RawMessage
}

// inputTracer traces the coverage, and keeps the inputs of modules. A tracer does not know which test it traces, so the tests must run
// one at a time.
type inputTracer struct {
	*cover.Cover

	// files are module files by package; empty for a package that only tests have.
	files map[string]string

	test   string
	seen   map[seenInput]bool
	kept   map[string]int // by file
	inputs []Input
}

// seenInput is an input that a module has read: a term, which OPA has for each with, or a document.
type seenInput struct {
	file     string
	term     *ast.Term
	document string
}

func newInputTracer(modules map[string]*ast.Module) *inputTracer {
	made := &inputTracer{Cover: cover.New(), files: map[string]string{}, seen: map[seenInput]bool{}, kept: map[string]int{}}
	for path, module := range modules {
		if name := module.Package.Path.String(); !isTest(path) {
			made.files[name] = path
		} else if _, known := made.files[name]; !known {
			made.files[name] = ""
		}
	}
	return made
}

// TraceEvent implements topdown.QueryTracer. OPA reports each index lookup, also if no rule matches the input.
func (t *inputTracer) TraceEvent(event topdown.Event) {
	t.Cover.TraceEvent(event)
	if event.Op != topdown.IndexOp || event.Ref == nil {
		return
	}
	for end := len(*event.Ref) - 1; end > 1; end-- {
		name := (*event.Ref)[:end].String()
		file, known := t.files[name]
		rule, isString := (*event.Ref)[end].Value.(ast.String)
		switch {
		case !known:
			continue
		case isString && strings.HasPrefix(string(rule), "test_"):
			t.test = strings.TrimPrefix(name, "data.") + "." + string(rule)
		case file != "" && isObject(event.Input()):
			t.keep(file, event.Input())
		}
		return
	}
}

func isObject(input *ast.Term) bool {
	if input == nil {
		return false
	}
	_, ok := input.Value.(ast.Object)
	return ok
}

// keep keeps an input for the module in a file.
func (t *inputTracer) keep(file string, input *ast.Term) {
	if t.seen[seenInput{file: file, term: input}] || t.kept[file] >= maxInputs {
		return
	}
	t.seen[seenInput{file: file, term: input}] = true
	value, err := ast.JSON(input.Value)
	if err != nil {
		return // it has a value that JSON has not, such as an unknown one
	}
	document, err := json.Marshal(value)
	if err != nil || len(document) > maxInputBytes || t.seen[seenInput{file: file, document: string(document)}] {
		return
	}
	t.seen[seenInput{file: file, document: string(document)}] = true
	t.kept[file]++
	t.inputs = append(t.inputs, Input{File: file, Test: t.test, Document: document})
}
