// Command words reports words in the sources and the documentation that this project does not use, with the
// words to use instead (CONTRIBUTING.md). It reads the files that git knows, and exits with 1 if it has
// found any.
package main

import (
	"bufio"
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
)

//go:embed words.txt
var list string

func main() {
	count := flag.Bool("count", false, "print how often each word occurs in comments of Go files, per 1,000 words of comments, and exit with 0")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: words [-count] [FILE...]\n\n"+
			"Reports words that this project does not use, in all files that git knows or in the given ones.")
		flag.PrintDefaults()
	}
	flag.Parse()
	found, err := run(os.Stdout, *count, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(2)
	}
	if found > 0 && !*count {
		fmt.Fprintf(os.Stderr, "words: %d found; hack/words/words.txt has what to write instead\n", found)
		os.Exit(1)
	}
}

func run(out io.Writer, count bool, files []string) (found int, err error) {
	words, err := parse(list)
	if err != nil {
		return 0, err
	}
	if len(files) == 0 {
		if files, err = known(); err != nil {
			return 0, err
		}
	}
	comments, hits := 0, map[string]int{}
	for _, file := range files {
		if !isChecked(file) {
			continue
		}
		content, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue // deleted, and not yet committed
		}
		if err != nil {
			return found, err
		}
		if count {
			comments += countComments(file, content, words, hits)
			continue
		}
		for _, hit := range words.in(content) {
			fmt.Fprintf(out, "%s:%d: %q: write %s\n", file, hit.line, hit.text, hit.instead)
			found++
		}
	}
	if count {
		report(out, comments, hits)
	}
	return found, nil
}

// known returns the files that git knows.
func known() ([]string, error) {
	out, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the files: %w", err)
	}
	return strings.Fields(string(out)), nil
}

// isChecked reports whether a file has text of this project.
func isChecked(file string) bool {
	if strings.HasPrefix(file, "hack/words/") || strings.HasPrefix(path.Base(file), "zz_generated") || strings.Contains(file, "/testdata/hostile/") {
		return false
	}
	switch path.Ext(file) {
	case ".go", ".rego", ".md", ".yaml", ".txt":
		return true
	default:
		return path.Base(file) == "Makefile"
	}
}

// word is an expression that is not used, and the words to use instead.
type word struct {
	expression *regexp.Regexp
	instead    string
}

type words []word

type hit struct {
	line          int
	text, instead string
}

// parse reads the list: a regular expression and the words to use instead on each line, separated by " => ".
// Empty lines and lines that begin with # are comments.
func parse(list string) (words, error) {
	var all words
	for i, line := range strings.Split(list, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		text, instead, ok := strings.Cut(line, " => ")
		if !ok {
			return nil, fmt.Errorf("words.txt:%d: no \" => \" in %q", i+1, line)
		}
		expression, err := regexp.Compile(`(?i)\b(?:` + strings.ReplaceAll(strings.TrimSpace(text), " ", `\s+`) + `)\b`)
		if err != nil {
			return nil, fmt.Errorf("words.txt:%d: %w", i+1, err)
		}
		all = append(all, word{expression: expression, instead: strings.TrimSpace(instead)})
	}
	return all, nil
}

// camel finds the place between the words of an identifier.
var camel = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// code finds text that is quoted as code, and names on the wire, which are not checked.
var code = regexp.MustCompile("`[^`\n]*`|--[a-z-]+|json:\"[^\"]*\"")

// in returns the hits in a text, in order.
func (w words) in(content []byte) []hit {
	var hits []hit
	scanner := bufio.NewScanner(bytes.NewReader(content))
	scanner.Buffer(nil, 1<<20)
	for line := 1; scanner.Scan(); line++ {
		text := camel.ReplaceAllString(code.ReplaceAllString(scanner.Text(), ""), "$1 $2")
		text = strings.ReplaceAll(text, "_", " ")
		for _, word := range w {
			for _, found := range word.expression.FindAllString(text, -1) {
				hits = append(hits, hit{line: line, text: found, instead: word.instead})
			}
		}
	}
	return hits
}

// countComments adds the hits in the comments of a Go file that is no test, and returns how many words its
// comments have.
func countComments(file string, content []byte, words words, hits map[string]int) int {
	if path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
		return 0
	}
	total := 0
	for _, line := range strings.Split(string(content), "\n") {
		_, comment, ok := strings.Cut(strings.TrimSpace(line), "// ")
		if !ok {
			continue
		}
		total += len(strings.Fields(comment))
		for _, hit := range words.in([]byte(comment)) {
			hits[strings.ToLower(hit.text)]++
		}
	}
	return total
}

func report(out io.Writer, comments int, hits map[string]int) {
	all := 0
	names := make([]string, 0, len(hits))
	for name, count := range hits {
		names, all = append(names, name), all+count
	}
	slices.SortFunc(names, func(a, b string) int { return hits[b] - hits[a] })
	for _, name := range names {
		fmt.Fprintf(out, "%6d  %5.2f  %s\n", hits[name], per1000(hits[name], comments), name)
	}
	fmt.Fprintf(out, "%6d  %5.2f  in %d words of comments\n", all, per1000(all, comments), comments)
}

func per1000(count, words int) float64 {
	if words == 0 {
		return 0
	}
	return 1000 * float64(count) / float64(words)
}
