package dist

import (
	"fmt"
	"strings"
)

// unreleased is the heading of changes since the last release.
const unreleased = "Unreleased"

// Changelog returns the section of a version in a changelog, with its heading. Headings are "## v0.1.0", with a date
// or more behind it. A version before a release may have the section of unreleased changes.
func Changelog(changelog, version string, prerelease bool) (string, error) {
	section, found := sectionOf(changelog, version)
	if !found && prerelease {
		section, found = sectionOf(changelog, unreleased)
	}
	if !found {
		return "", fmt.Errorf("CHANGELOG.md has no section %q", "## "+version)
	}
	return section, nil
}

// sectionOf returns the lines from a heading of the second level to the next.
func sectionOf(changelog, title string) (string, bool) {
	var section strings.Builder
	inside := false
	for line := range strings.Lines(changelog) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			if inside {
				break
			}
			words := strings.Fields(heading)
			inside = len(words) > 0 && strings.Trim(words[0], "[]") == title
		}
		if inside {
			section.WriteString(line)
		}
	}
	return strings.TrimRight(section.String(), "\n") + "\n", inside
}
