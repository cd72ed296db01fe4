// Package docpage reads pages of the documentation whose steps are executed by tests.
package docpage

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Step is a file that a reader writes, a command with its output, or a block of shell commands, in the order of the page.
type Step struct {
	// File is the name of a file, and Text its content.
	File, Text string

	// Command is a command that the page shows with a prompt, and Output what it prints.
	Command, Output string

	// Shell are commands without output.
	Shell string
}

// fileName matches a name at the end of the text before a block.
var fileName = regexp.MustCompile("`([a-z-]+\\.yaml)`:$")

// Read returns the steps of a page. A YAML block is a file if the text before it ends with the name of a file and a colon, a
// block without a language has commands with the prompt "$ ", and a block of sh has commands.
func Read(path string) ([]Step, error) {
	blocks, err := read(path)
	if err != nil {
		return nil, err
	}
	var steps []Step
	for _, b := range blocks {
		language, content := b.language, b.content
		switch name := fileName.FindStringSubmatch(b.before); {
		case language == "yaml" && name != nil:
			steps = append(steps, Step{File: name[1], Text: content})
		case language == "sh":
			steps = append(steps, Step{Shell: content})
		case language == "":
			for _, one := range strings.Split("\n"+content, "\n$ ")[1:] {
				command, output, _ := strings.Cut(one, "\n")
				steps = append(steps, Step{Command: command, Output: strings.TrimRight(output, "\n") + "\n"})
			}
		}
	}
	return steps, nil
}

// block is a code block, with the text before it.
type block struct{ before, language, content string }

// fenced matches a code block, which may be part of a list: its language and its content.
var fenced = regexp.MustCompile("(?ms)^ *```([a-z]*)\n(.*?)^ *```")

// read returns the code blocks in a page.
func read(path string) (blocks []block, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a page: %w", err)
	}
	page := string(text)
	for _, at := range fenced.FindAllStringSubmatchIndex(page, -1) {
		blocks = append(blocks, block{before: strings.TrimSpace(page[:at[0]]), language: page[at[2]:at[3]], content: page[at[4]:at[5]]})
	}
	return blocks, nil
}

// Commands returns the shell commands in a page, in its order, each on one line and without comments: the lines of sh blocks, and
// those with the prompt "$ " in other shell blocks. A line goes on after a backslash, a pipe and an open quote.
func Commands(path string) ([]string, error) {
	blocks, err := read(path)
	if err != nil {
		return nil, err
	}
	var commands []string
	for _, b := range blocks {
		language, content := b.language, b.content
		if language != "sh" && language != "console" && language != "" {
			continue
		}
		line := ""
		for part := range strings.Lines(content) {
			part = strings.TrimSpace(part)
			if line == "" && language != "sh" {
				command, isCommand := strings.CutPrefix(part, "$ ")
				if !isCommand {
					continue
				}
				part = command
			}
			line = strings.TrimSpace(strings.TrimRight(line, " \\") + " " + part)
			if strings.HasSuffix(line, "\\") || strings.HasSuffix(line, "|") || strings.Count(line, "'")%2 == 1 {
				continue
			}
			if command := strings.TrimSpace(comment.ReplaceAllString(line, "")); command != "" {
				commands = append(commands, command)
			}
			line = ""
		}
	}
	return commands, nil
}

// comment matches the comment at the end of a command.
var comment = regexp.MustCompile(`(^|\s+)# .*$`)
