//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "controlplane: runs on Linux only: it ties processes together by what the kernel offers there, and gives pods addresses of the whole 127.0.0.0/8. Point KUBECONFIG at another cluster instead.")
	os.Exit(1)
}
