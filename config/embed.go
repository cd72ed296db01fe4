// Package config embeds the manifests of config/default and of its components, so that a program installs the
// manifests that it was built with.
package config

import "embed"

// Manifests has config/default, the folders that its kustomization refers to, and the components.
//
//go:embed components crd default manager rbac webhook
var Manifests embed.FS
