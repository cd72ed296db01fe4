// Command reference writes the reference pages of the plugin from its commands. Run it with `make docs`.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/root"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(arguments []string) int {
	if len(arguments) != 1 {
		fmt.Fprintln(os.Stderr, "usage: reference FOLDER")
		return 2
	}
	if err := write(arguments[0]); err != nil {
		fmt.Fprintf(os.Stderr, "reference: %v\n", err)
		return 1
	}
	return 0
}

// write replaces the pages of a folder.
func write(folder string) error {
	old, err := filepath.Glob(filepath.Join(folder, "*.md"))
	if err != nil {
		return fmt.Errorf("listing %s: %w", folder, err)
	}
	var errs []error
	for _, file := range old {
		errs = append(errs, os.Remove(file))
	}
	errs = append(errs, os.MkdirAll(folder, 0o755))
	for name, page := range pages() {
		errs = append(errs, os.WriteFile(filepath.Join(folder, name), []byte(page), 0o644))
	}
	return errors.Join(errs...)
}

// pages returns the pages by the names of their files.
func pages() map[string]string {
	env := command.NewEnvironment(genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard})
	plugin := root.Command(env)
	cluster := pflag.NewFlagSet("cluster", pflag.ContinueOnError)
	env.Config.AddFlags(cluster)
	all := map[string]string{"README.md": index(plugin, cluster)}
	for _, verb := range verbs(plugin) {
		all[verb.Name()+".md"] = page(verb, cluster)
	}
	return all
}

const written = "<!-- Written by make docs from the commands in cmd/kubectl-podops. -->\n"

// index returns the page that lists the verbs.
func index(plugin *cobra.Command, cluster *pflag.FlagSet) string {
	var text strings.Builder
	text.WriteString(written + "# Reference of kubectl podops\n\n" + plugin.Long +
		"\n\n[kubectl-podops.md](../kubectl-podops.md) has the installation and examples.\n")
	groups := append(plugin.Groups(), &cobra.Group{Title: "Other:"})
	for _, group := range groups {
		var rows strings.Builder
		for _, verb := range verbs(plugin) {
			if verb.GroupID == group.ID {
				fmt.Fprintf(&rows, "| [%s](%s.md) | %s |\n", verb.Name(), verb.Name(), verb.Short)
			}
		}
		if rows.Len() > 0 {
			fmt.Fprintf(&text, "\n## %s\n\n| Verb | Use |\n|---|---|\n%s", strings.TrimSuffix(group.Title, ":"), rows.String())
		}
	}
	text.WriteString("\n## Flags that select the cluster\n\nVerbs that read a cluster have the flags of kubectl:\n\n" + table(cluster, nil, false))
	return text.String()
}

// verbs returns the verbs that a page is written for.
func verbs(plugin *cobra.Command) []*cobra.Command {
	var listed []*cobra.Command
	for _, verb := range plugin.Commands() {
		if verb.IsAvailableCommand() && verb.Name() != "help" && verb.Name() != "completion" {
			listed = append(listed, verb)
		}
	}
	return listed
}

// page returns the page of a verb.
func page(verb *cobra.Command, cluster *pflag.FlagSet) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s# kubectl podops %s\n\n%s\n\n```\n%s\n```\n", written, verb.Name(), described(verb), verb.UseLine())
	if verb.Example != "" {
		fmt.Fprintf(&text, "\n## Examples\n\n```sh\n%s\n```\n", unindented(verb.Example))
	}
	if flags := table(verb.LocalFlags(), cluster, true); flags != "" {
		text.WriteString("\n## Flags\n\n" + flags)
	}
	if verb.Flags().Lookup("kubeconfig") != nil {
		text.WriteString("\nThe [flags of kubectl](README.md#flags-that-select-the-cluster) select the cluster and the namespace.\n")
	}
	return text.String()
}

func described(verb *cobra.Command) string {
	if verb.Long != "" {
		return strings.TrimSpace(verb.Long)
	}
	return verb.Short + "."
}

// unindented returns a text without the indentation that help has.
func unindented(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(strings.TrimRight(lines[i], " "), "  ")
	}
	return strings.Join(lines, "\n")
}

// table returns the flags of a set that another set does not have. Defaults of flags that select the cluster
// depend on the machine.
func table(flags, except *pflag.FlagSet, defaults bool) string {
	var rows strings.Builder
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden || flag.Name == "help" || except != nil && except.Lookup(flag.Name) != nil {
			return
		}
		name := "`--" + flag.Name + "`"
		if flag.Shorthand != "" {
			name = "`-" + flag.Shorthand + "`, " + name
		}
		fallback := ""
		if defaults && flag.DefValue != "" && flag.DefValue != "[]" {
			fallback = "`" + flag.DefValue + "`"
		}
		_, usage := pflag.UnquoteUsage(flag)
		if defaults {
			fmt.Fprintf(&rows, "| %s | %s | %s |\n", name, fallback, escaped(usage))
		} else {
			fmt.Fprintf(&rows, "| %s | %s |\n", name, escaped(usage))
		}
	})
	switch {
	case rows.Len() == 0:
		return ""
	case defaults:
		return "| Flag | Default | Meaning |\n|---|---|---|\n" + rows.String()
	default:
		return "| Flag | Meaning |\n|---|---|\n" + rows.String()
	}
}

// escaped returns a text with the characters escaped that have a meaning in a table cell.
func escaped(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ").Replace(text)
}
