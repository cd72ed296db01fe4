package spec

import (
	"fmt"
	"strings"
)

// MaxSourceBytes bounds a module together with everything that it imports.
const MaxSourceBytes = 65536

// Part is a Rego file that a module imports: the module or the data of a PodTransitionPolicy.
type Part struct {
	// File is "lib/<policy>.rego" for a module, and "config/<policy>.rego" for data.
	File   string
	Source string
}

// partPrefix begins the line above a part.
const partPrefix = "# podops: import "

// Join returns a module and the parts that it imports as one text, which Split splits again.
func Join(module string, parts []Part) string {
	joined := strings.Builder{}
	joined.WriteString(module)
	for _, part := range parts {
		if !strings.HasSuffix(joined.String(), "\n") {
			joined.WriteString("\n")
		}
		fmt.Fprintf(&joined, "%s%s\n%s", partPrefix, part.File, part.Source)
	}
	return joined.String()
}

// Split returns the module of a joined text, and its parts. The rows of both begin at 1.
func Split(source string) (module string, parts []Part) {
	texts := strings.Split("\n"+source, "\n"+partPrefix)
	for i := range texts[:len(texts)-1] {
		texts[i] += "\n"
	}
	for _, text := range texts[1:] {
		file, rest, _ := strings.Cut(text, "\n")
		parts = append(parts, Part{File: strings.TrimSpace(file), Source: rest})
	}
	return strings.TrimPrefix(texts[0], "\n"), parts
}
