package main

import "github.com/podops-dev/podops/hack/release/internal/build"

const (
	module  = "github.com/podops-dev/podops"
	website = "https://" + module
	license = "Apache-2.0"
)

// imageProgram is a program that runs in a cluster.
type imageProgram struct {
	build.Program

	// image is the name of the image in the registry, and text its description.
	image, text string
}

func imagePrograms() []imageProgram {
	return []imageProgram{
		{
			Program: build.Program{Name: "manager", Module: ".", Package: "cmd/manager"},
			image:   "podops-manager", text: "PodOps: operations on pods wait until the rules of their owners allow them",
		},
		{
			Program: build.Program{Name: "slb-manager", Module: "pkg/adapters/alibabacloudslb", Package: "cmd/slb-manager"},
			image:   "podops-slb-manager", text: "The adapter of PodOps for load balancers of Alibaba Cloud",
		},
		{
			Program: build.Program{Name: "kvstore-operator", Module: "examples/kvstore", Package: "cmd/kvstore-operator"},
			image:   "podops-kvstore-operator", text: "The example operator of PodOps: a replicated key-value store",
		},
	}
}

// plugin is the plugin of kubectl.
func plugin() build.Program {
	return build.Program{Name: "kubectl-podops", Module: "cmd/kubectl-podops", Package: "."}
}

func imagePlatforms() []build.Platform {
	return []build.Platform{{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}}
}

func pluginPlatforms() []build.Platform {
	return []build.Platform{
		{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}, {OS: "darwin", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"},
		{OS: "windows", Arch: "amd64"}, {OS: "windows", Arch: "arm64"},
	}
}
