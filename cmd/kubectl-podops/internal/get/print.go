package get

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"github.com/podops-dev/podops/pkg/view/rolloutview"
)

// list is the output for several objects.
type list struct {
	Items []rolloutview.View `json:"items"`
}

// printObjects prints views as JSON or YAML: one view alone, or a list.
func printObjects(out io.Writer, format string, views []rolloutview.View, alone bool) error {
	var object any = list{Items: views}
	if alone {
		object = views[0]
	}
	encoded, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the view: %w", err)
	}
	encoded = append(encoded, '\n')
	if format == "yaml" {
		if encoded, err = yaml.JSONToYAML(encoded); err != nil {
			return fmt.Errorf("encoding the view: %w", err)
		}
	}
	_, err = out.Write(encoded)
	return err
}
