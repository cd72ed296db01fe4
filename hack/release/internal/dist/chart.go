package dist

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Chart returns the files of the Helm chart in a folder as they are packed for a release: with its version, and with
// the image that it installs unless the value image is another. Chart.yaml and values.yaml must have the lines that
// `make chart` writes for a chart without a release.
func Chart(folder fs.FS, version, image string) ([]Entry, error) {
	replacements := map[string][][2]string{
		// Versions of charts have no leading v.
		"Chart.yaml": {
			{"version: 0.0.0\n", "version: " + strings.TrimPrefix(version, "v") + "\n"},
			{"appVersion: dev\n", "appVersion: " + version + "\n"},
		},
		"values.yaml": {
			{"# The image of the manager, by tag or digest. There is no published image: make image builds one.\n", "# The image of the manager, by tag or digest.\n"},
			{"image: podops-manager:dev\n", "image: " + image + "\n"},
		},
	}
	var entries []Entry
	err := fs.WalkDir(folder, ".", func(name string, file fs.DirEntry, err error) error {
		if err != nil || file.IsDir() {
			return err
		}
		content, err := fs.ReadFile(folder, name)
		if err != nil {
			return err
		}
		text := string(content)
		for _, lines := range replacements[name] {
			if strings.Count(text, "\n"+lines[0]) != 1 {
				return fmt.Errorf("%s does not have the line %q once", name, strings.TrimSpace(lines[0]))
			}
			text = strings.Replace(text, "\n"+lines[0], "\n"+lines[1], 1)
		}
		entries = append(entries, Entry{Name: path.Join("podops", name), Content: []byte(text)})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the chart: %w", err)
	}
	return entries, nil
}
