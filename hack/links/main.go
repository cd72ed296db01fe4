// Command links reports links in the documentation whose file or heading does not exist, and excerpts that
// differ from their file: a fenced block with the info string "text FILE" is part of FILE. It reads the
// Markdown files that git knows, and references such as docs/permits.md in comments and messages of Go
// files, and exits with 1 if it has found any.
package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

func main() {
	out, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "links: listing the files:", err)
		os.Exit(2)
	}
	found, err := check(os.Stdout, os.DirFS("."), strings.Fields(string(out)))
	if err != nil {
		fmt.Fprintln(os.Stderr, "links:", err)
		os.Exit(2)
	}
	if found > 0 {
		fmt.Fprintf(os.Stderr, "links: %d lead nowhere\n", found)
		os.Exit(1)
	}
}

var (
	// link finds the target of a link or an image.
	link = regexp.MustCompile(`\]\(([^()\s]+)(?:\s+"[^"]*")?\)`)

	// reference finds a page that a Go file names.
	reference = regexp.MustCompile(`\bdocs/[a-z0-9/_-]+\.md(?:#[a-z0-9_-]+)?`)

	// inline finds text that is quoted as code.
	inline = regexp.MustCompile("`[^`]*`")

	// remote is a link to another site.
	remote = regexp.MustCompile(`^[a-z]+:`)
)

// testFile names pages that do not exist.
const testFile = "hack/links/main_test.go"

// check writes the links that lead nowhere, and returns their number.
func check(out io.Writer, tree fs.FS, files []string) (found int, err error) {
	pages := map[string]map[string]bool{}
	for _, file := range files {
		var links []target
		switch {
		case path.Ext(file) == ".md":
			links, err = linksOf(tree, file, link, inline)
		case path.Ext(file) == ".go" && file != testFile:
			links, err = linksOf(tree, file, reference, nil)
		}
		if err != nil {
			return found, err
		}
		for _, l := range links {
			problem, err := l.problem(tree, file, pages)
			if err != nil {
				return found, err
			}
			if problem != "" {
				fmt.Fprintf(out, "%s:%d: %s: %s\n", file, l.line, l.text, problem)
				found++
			}
		}
		if path.Ext(file) == ".md" {
			excerpts, err := checkExcerpts(out, tree, file)
			if err != nil {
				return found, err
			}
			found += excerpts
		}
	}
	return found, nil
}

// excerpt finds the fence of a block that is part of a file.
var excerpt = regexp.MustCompile("^```text ([^ ]+/[^ ]+)$")

// checkExcerpts writes the excerpts of a page that are not part of their file, and returns their number.
func checkExcerpts(out io.Writer, tree fs.FS, page string) (found int, err error) {
	content, err := fs.ReadFile(tree, page)
	if os.IsNotExist(err) {
		return 0, nil // deleted, and not yet committed
	}
	if err != nil {
		return 0, err
	}
	lines := strings.SplitAfter(string(content), "\n")
	for i, line := range lines {
		match := excerpt.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if match == nil {
			continue
		}
		length := slices.Index(lines[i+1:], "```\n")
		source, err := fs.ReadFile(tree, match[1])
		switch {
		case err != nil:
			fmt.Fprintf(out, "%s:%d: %s: no such file\n", page, i+1, match[1])
		case length < 0:
			fmt.Fprintf(out, "%s:%d: the block has no end\n", page, i+1)
		case !strings.Contains(string(source), strings.Join(lines[i+1:i+1+length], "")):
			fmt.Fprintf(out, "%s:%d: the block is not part of %s\n", page, i+1, match[1])
		default:
			continue
		}
		found++
	}
	return found, nil
}

// target is a link in a file.
type target struct {
	line int
	text string
}

// linksOf returns the matches of an expression in a file, in Markdown outside of code.
func linksOf(tree fs.FS, file string, expression, without *regexp.Regexp) (links []target, err error) {
	err = eachLine(tree, file, func(number int, line string) {
		if without != nil {
			line = without.ReplaceAllString(line, "")
		}
		for _, match := range expression.FindAllStringSubmatch(line, -1) {
			links = append(links, target{line: number, text: match[len(match)-1]})
		}
	})
	return links, err
}

// eachLine visits the lines of a file, in Markdown without fenced code.
func eachLine(tree fs.FS, file string, visit func(number int, line string)) error {
	content, err := fs.ReadFile(tree, file)
	if os.IsNotExist(err) {
		return nil // deleted, and not yet committed
	}
	if err != nil {
		return err
	}
	fenced := false
	for i, line := range strings.Split(string(content), "\n") {
		if path.Ext(file) == ".md" && strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if !fenced {
			visit(i+1, line)
		}
	}
	return nil
}

// problem returns why a link of a file leads nowhere; "" if it leads somewhere. Pages of Go files
// begin at the root.
func (t target) problem(tree fs.FS, file string, pages map[string]map[string]bool) (string, error) {
	if remote.MatchString(t.text) {
		return "", nil
	}
	name, anchor, _ := strings.Cut(t.text, "#")
	switch {
	case name == "":
		name = file
	case path.Ext(file) == ".md":
		name = path.Join(path.Dir(file), name)
	}
	if !fs.ValidPath(name) {
		return "outside of the repository", nil
	}
	if !exists(tree, name) {
		return "no such file", nil
	}
	if anchor == "" || path.Ext(name) != ".md" {
		return "", nil
	}
	if pages[name] == nil {
		anchors, err := anchorsOf(tree, name)
		if err != nil {
			return "", err
		}
		pages[name] = anchors
	}
	if !pages[name][anchor] {
		return "no such heading", nil
	}
	return "", nil
}

func exists(tree fs.FS, name string) bool {
	_, err := fs.Stat(tree, name)
	return err == nil
}

// anchorsOf returns the anchors of the headings of a page, as GitHub names them.
func anchorsOf(tree fs.FS, file string) (map[string]bool, error) {
	anchors, times := map[string]bool{}, map[string]int{}
	err := eachLine(tree, file, func(_ int, line string) {
		text := strings.TrimLeft(line, "#")
		if text == line || !strings.HasPrefix(text, " ") {
			return
		}
		anchor := anchorOf(strings.TrimSpace(text))
		if times[anchor]++; times[anchor] > 1 {
			anchor += "-" + strconv.Itoa(times[anchor]-1)
		}
		anchors[anchor] = true
	})
	return anchors, err
}

// anchorOf returns the anchor of a heading.
func anchorOf(heading string) string {
	return strings.Map(func(char rune) rune {
		switch {
		case unicode.IsLetter(char), unicode.IsDigit(char), char == '-', char == '_':
			return unicode.ToLower(char)
		case char == ' ':
			return '-'
		default:
			return -1
		}
	}, link.ReplaceAllString(heading, "]"))
}
