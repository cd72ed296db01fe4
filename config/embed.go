// Package config embeds the manifests of config/default, so that a program installs the manifests that it
// was built with.
package config

import "embed"

// Manifests has config/default and the folders that its kustomization refers to.
//
//go:embed crd default manager rbac webhook
var Manifests embed.FS
