package processes

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// errImage means that no program is known for an image.
var errImage = errors.New("no program for the image")

// command is the command of a container.
type command struct {
	path        string
	args        []string
	environment []string
}

// commandOf returns the command of a pod's container. mounts has the directories of volumes,
// hosts is the file of hosts.
func commandOf(pod *corev1.Pod, programs map[string]Program, mounts map[string]string, hosts string) (command, error) {
	container := pod.Spec.Containers[0]
	repository, tag := splitImage(container.Image)
	program, ok := programs[repository]
	if !ok {
		return command{}, fmt.Errorf("%w %q", errImage, container.Image)
	}
	variables := map[string]string{}
	var environment []string
	for _, v := range container.Env {
		value := expand(v.Value, variables)
		if v.ValueFrom != nil {
			if v.ValueFrom.FieldRef == nil {
				return command{}, fmt.Errorf("environment variable %s: only fields are supported", v.Name)
			}
			value = field(pod, v.ValueFrom.FieldRef.FieldPath)
		}
		variables[v.Name] = value
		environment = append(environment, v.Name+"="+mounted(value, mounts))
	}
	for name, value := range map[string]string{program.VersionVariable: tag, program.HostsVariable: hosts} {
		if name != "" {
			environment = append(environment, name+"="+value)
		}
	}
	sort.Strings(environment)
	// The entry point of an image may be repeated by the command of the container.
	args := []string{}
	if len(container.Command) > 1 {
		args = append(args, container.Command[1:]...)
	}
	args = append(args, container.Args...)
	for i, arg := range args {
		args[i] = mounted(expand(arg, variables), mounts)
	}
	return command{path: program.Path, args: args, environment: environment}, nil
}

// splitImage returns the name and the tag of an image.
func splitImage(image string) (repository, tag string) {
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		return image[:i], image[i+1:]
	}
	return image, "latest"
}

var reference = regexp.MustCompile(`\$\(([A-Za-z_][A-Za-z0-9_]*)\)`)

// expand replaces references to variables. Unknown variables stay as they are.
func expand(text string, variables map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(match string) string {
		if value, ok := variables[match[2:len(match)-1]]; ok {
			return value
		}
		return match
	})
}

// field returns the value of a field that containers may refer to.
func field(pod *corev1.Pod, path string) string {
	switch path {
	case "metadata.name":
		return pod.Name
	case "metadata.namespace":
		return pod.Namespace
	case "metadata.uid":
		return string(pod.UID)
	case "status.podIP":
		return pod.Status.PodIP
	case "spec.nodeName":
		return pod.Spec.NodeName
	default:
		return ""
	}
}

// mounted replaces the path of a mounted volume by its directory: "/data/x" and "--dir=/data".
func mounted(text string, mounts map[string]string) string {
	flag, value, isFlag := strings.Cut(text, "=")
	if !isFlag {
		flag, value = "", text
	} else {
		flag += "="
	}
	for path, directory := range mounts {
		if rest, ok := strings.CutPrefix(value, path); ok && (rest == "" || rest[0] == '/') {
			return flag + filepath.Join(directory, rest)
		}
	}
	return text
}
