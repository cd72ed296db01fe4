// Package manifests reads objects of Kubernetes from YAML and JSON files, with the place of each field.
package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// maxFileBytes bounds a file: an export of some ten thousand pods fits.
const maxFileBytes = 256 << 20

// Stdin is the path of standard input.
const Stdin = "-"

// Document is one object of a file.
type Document struct {
	// File is the path of the file, and Line the first line of the document in it.
	File string
	Line int

	// Kind is the kind and its group and version.
	Kind schema.GroupVersionKind

	// JSON is the document as JSON.
	JSON []byte

	// Object is the document as a typed object; nil for a kind that the scheme does not have.
	Object client.Object

	node *yamlv3.Node
}

// Place returns the file and the first line of the document, for messages.
func (d Document) Place() string { return fmt.Sprintf("%s:%d", d.File, d.Line) }

// Read reads the documents of files, and of the YAML and JSON files in folders. Items of lists become
// documents of their own.
func Read(stdin io.Reader, scheme *runtime.Scheme, paths ...string) ([]Document, error) {
	var documents []Document
	for _, path := range paths {
		files, err := listFiles(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			content, err := readContent(stdin, file)
			if err != nil {
				return nil, err
			}
			read, err := Parse(scheme, file, content)
			if err != nil {
				return nil, err
			}
			documents = append(documents, read...)
		}
	}
	return documents, nil
}

// IsData reports whether a file is data of Rego tests, and no manifest: data.json, data.yaml or data.yml.
func IsData(file string) bool {
	return slices.Contains([]string{"data.json", "data.yaml", "data.yml"}, filepath.Base(file))
}

// listFiles returns a file itself, and the files of a folder and its subfolders by name, without data files.
func listFiles(path string) ([]string, error) {
	if path == Stdin {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	var files []string
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)) && !IsData(file) {
			files = append(files, file)
		}
		return err
	})
	return files, err
}

func readContent(stdin io.Reader, file string) ([]byte, error) {
	from := stdin
	if file != Stdin {
		opened, err := os.Open(file) //nolint:gosec // The user of the command names the file.
		if err != nil {
			return nil, err
		}
		defer func() { _ = opened.Close() }() // the file was only read
		from = opened
	}
	content, err := io.ReadAll(io.LimitReader(from, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	if len(content) > maxFileBytes {
		return nil, fmt.Errorf("reading %s: it has more than %d bytes", file, maxFileBytes)
	}
	return content, nil
}

// Parse parses the documents of one file.
func Parse(scheme *runtime.Scheme, file string, content []byte) ([]Document, error) {
	decoder := yamlv3.NewDecoder(bytes.NewReader(content))
	var documents []Document
	for {
		node := &yamlv3.Node{}
		err := decoder.Decode(node)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if len(node.Content) == 0 || node.Content[0].Kind != yamlv3.MappingNode {
			continue // an empty document
		}
		read, err := splitDocuments(scheme, file, node.Content[0])
		if err != nil {
			return nil, err
		}
		documents = append(documents, read...)
	}
}

// splitDocuments returns the document of a node, or the items of a list.
func splitDocuments(scheme *runtime.Scheme, file string, node *yamlv3.Node) ([]Document, error) {
	d := Document{File: file, Line: node.Line, node: node}
	text, err := yamlv3.Marshal(node)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Place(), err)
	}
	if d.JSON, err = yaml.YAMLToJSON(text); err != nil {
		return nil, fmt.Errorf("%s: %w", d.Place(), err)
	}
	kind := metav1.TypeMeta{}
	if err := yaml.Unmarshal(text, &kind); err != nil || kind.Kind == "" {
		return nil, fmt.Errorf("%s: the document has no kind; data of Rego tests is in a file data.yaml or data.json", d.Place())
	}
	d.Kind = kind.GroupVersionKind()
	if items := child(node, "items"); items != nil && strings.HasSuffix(kind.Kind, "List") {
		var all []Document
		for _, item := range items.Content {
			read, err := splitDocuments(scheme, file, item)
			if err != nil {
				return nil, err
			}
			all = append(all, read...)
		}
		return all, nil
	}
	if !scheme.Recognizes(d.Kind) {
		return []Document{d}, nil
	}
	decoded, _, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(d.JSON, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Place(), err)
	}
	if _, err := meta.Accessor(decoded); err == nil {
		d.Object, _ = decoded.(client.Object)
	}
	return []Document{d}, nil
}

// LineAt returns the line of a field such as "spec.rules[0].rego", or of its nearest parent that is in
// the document.
func (d Document) LineAt(path string) int {
	line, node := d.Line, d.node
	for _, part := range Split(path) {
		key, value := find(node, part)
		if value == nil {
			break
		}
		line, node = key.Line, value
	}
	return line
}

// Split splits the path of a field into the names of fields, the indexes of lists and the keys of maps.
func Split(path string) []string {
	var parts []string
	for path != "" {
		switch path[0] {
		case '.':
			path = path[1:]
		case '[':
			end := strings.IndexByte(path, ']')
			if end < 0 {
				return append(parts, path[1:])
			}
			parts, path = append(parts, path[1:end]), path[end+1:]
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			parts, path = append(parts, path[:end]), path[end:]
		}
	}
	return parts
}

// find returns the node that has the place of a part of a node, and the value of the part; nil without such
// a node.
func find(node *yamlv3.Node, part string) (key, value *yamlv3.Node) {
	if node == nil {
		return nil, nil
	}
	if node.Kind == yamlv3.SequenceNode {
		for i, item := range node.Content {
			if fmt.Sprint(i) == part {
				return item, item
			}
			if name := child(item, "name"); name != nil && name.Value == part {
				return item, item
			}
		}
		return nil, nil
	}
	for i := 0; node.Kind == yamlv3.MappingNode && i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == part {
			return node.Content[i], node.Content[i+1]
		}
	}
	return nil, nil
}

func child(node *yamlv3.Node, name string) *yamlv3.Node {
	if node.Kind != yamlv3.MappingNode {
		return nil
	}
	_, value := find(node, name)
	return value
}

// BlockAt returns by how many columns the text of a field is indented, and whether the text begins in the line
// after the field, as a block with | does.
func (d Document) BlockAt(path string) (indent int, block bool) {
	key, node := d.node, d.node
	for _, part := range Split(path) {
		if key, node = find(node, part); node == nil {
			return 0, false
		}
	}
	// The parser records no column of the text: usually it is indented by two more than its field.
	return key.Column + 1, node.Style&yamlv3.LiteralStyle != 0
}
