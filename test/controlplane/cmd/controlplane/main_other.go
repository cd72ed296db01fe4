//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "controlplane: runs on Linux only: it needs the parent death signal, and pod addresses in the whole of 127.0.0.0/8. Point KUBECONFIG at another cluster instead.")
	os.Exit(1)
}
