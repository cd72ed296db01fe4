package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"
)

// The figures beside the lines of each room.
const (
	figureRooms      = "rooms"
	figureLocks      = "structs with a lock"
	figureParameters = "functions with six or more parameters"
	figureOf         = "functions whose name ends in Of"
	figureChains     = "chains of two or more of in comments"
	figureOfWords    = "of in 1,000 words of comments"
	figureUnused     = "exported functions that no other package calls"
)

// linesIn begins the figure of a room.
const linesIn = "lines of "

// maxParameters is the number of parameters from which a function counts.
const maxParameters = 6

var (
	endsInOf  = regexp.MustCompile(`[a-z]Of$`)
	chain     = regexp.MustCompile(`\bof(?: [\w'-]+){1,3} of\b`)
	generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
)

// measure returns the figures of sources, which are Go files by path.
func measure(sources map[string]string) (map[string]int, error) {
	m := measurement{figures: map[string]int{}, exported: map[string]bool{}, used: map[string]bool{}}
	for name, text := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parsing %s: %w", name, err)
		}
		m.addUses(name, file)
		if isProduction(name, text) {
			m.add(name, text, file)
		}
	}
	for name := range m.exported {
		if !m.used[name] {
			m.figures[figureUnused]++
		}
	}
	if m.words > 0 {
		m.figures[figureOfWords] = (1000*m.of + m.words/2) / m.words
	}
	m.figures[figureRooms] = len(m.rooms)
	return m.figures, nil
}

// measurement collects figures from one file after the other.
type measurement struct {
	figures   map[string]int
	rooms     map[string]bool
	words, of int // in comments

	// exported are the exported functions of packages that only this repository imports, and used the names that other packages use.
	exported, used map[string]bool
}

// isProduction reports whether a file is part of a room or a program.
func isProduction(name, text string) bool {
	root, _, _ := strings.Cut(name, "/")
	return (root == "pkg" || root == "cmd" || root == "apis") && !strings.HasSuffix(name, "_test.go") && !generated.MatchString(text)
}

// room returns the folder that a file counts to: a room of pkg, or cmd or apis.
func room(name string) string {
	parts := strings.Split(name, "/")
	if parts[0] == "pkg" && len(parts) > 2 {
		return "pkg/" + parts[1]
	}
	return parts[0]
}

func (m *measurement) add(name, text string, file *ast.File) {
	in := room(name)
	m.figures[linesIn+in] += strings.Count(text, "\n")
	if strings.HasPrefix(in, "pkg/") {
		if m.rooms == nil {
			m.rooms = map[string]bool{}
		}
		m.rooms[in] = true
	}
	for _, comment := range file.Comments {
		m.addComment(comment.Text())
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncDecl:
			m.addFunction(n)
		case *ast.StructType:
			if hasLock(n) {
				m.figures[figureLocks]++
			}
		}
		return true
	})
	if isForOthers(in) {
		return
	}
	for _, declaration := range file.Decls {
		if function, ok := declaration.(*ast.FuncDecl); ok && function.Recv == nil && function.Name.IsExported() {
			m.exported[path.Dir(name)+"."+function.Name.Name] = true
		}
	}
}

func (m *measurement) addComment(text string) {
	words := strings.Fields(text)
	m.words += len(words)
	for _, word := range words {
		if strings.EqualFold(word, "of") {
			m.of++
		}
	}
	m.figures[figureChains] += len(chain.FindAllString(strings.Join(words, " "), -1))
}

func (m *measurement) addFunction(function *ast.FuncDecl) {
	if endsInOf.MatchString(function.Name.Name) {
		m.figures[figureOf]++
	}
	if function.Type.Params.NumFields() >= maxParameters {
		m.figures[figureParameters]++
	}
}

// addUses adds the names of other packages of the repository that a file uses.
func (m *measurement) addUses(name string, file *ast.File) {
	imported := map[string]string{}
	for _, spec := range file.Imports {
		folder, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module+"/")
		if !ours || folder == path.Dir(name) {
			continue
		}
		alias := path.Base(folder)
		if spec.Name != nil {
			alias = spec.Name.Name
		}
		imported[alias] = folder
	}
	ast.Inspect(file, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if qualifier, ok := selector.X.(*ast.Ident); ok && imported[qualifier.Name] != "" {
			m.used[imported[qualifier.Name]+"."+selector.Sel.Name] = true
		}
		return true
	})
}

// isForOthers reports whether programs outside of the repository import the packages of a folder, or none does.
func isForOthers(in string) bool {
	switch in {
	case "apis", "cmd", "pkg/adapters", "pkg/podopslifecycle", "pkg/resourceconsist":
		return true
	default:
		return false
	}
}

func hasLock(s *ast.StructType) bool {
	for _, field := range s.Fields.List {
		selector, ok := field.Type.(*ast.SelectorExpr)
		if !ok {
			continue
		}
		if qualifier, ok := selector.X.(*ast.Ident); ok && qualifier.Name == "sync" && strings.HasSuffix(selector.Sel.Name, "Mutex") {
			return true
		}
	}
	return false
}
