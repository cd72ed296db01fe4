package dist

import (
	"fmt"
	"strings"
)

// Krew returns the manifest of a plugin for krew: the template with the version, and with the checksums of archives
// by platform, as in linux/amd64. The template has SHA256_LINUX_AMD64 in its place.
func Krew(template, version string, sums map[string]string) (string, error) {
	_, text, found := strings.Cut(template, "\napiVersion:")
	if !found {
		return "", fmt.Errorf("the template of the manifest for krew has no apiVersion")
	}
	text = "apiVersion:" + text // without the comment of the template
	for platform, sum := range sums {
		placeholder := "SHA256_" + strings.ToUpper(strings.ReplaceAll(platform, "/", "_"))
		if !strings.Contains(text, placeholder+"\n") {
			return "", fmt.Errorf("the template of the manifest for krew has no %s", placeholder)
		}
		text = strings.Replace(text, placeholder+"\n", sum+"\n", 1)
	}
	text = strings.ReplaceAll(text, "VERSION", version)
	if at := strings.Index(text, "SHA256_"); at >= 0 {
		placeholder, _, _ := strings.Cut(text[at:], "\n")
		return "", fmt.Errorf("the release has no archive for %s of the manifest for krew", placeholder)
	}
	return text, nil
}
