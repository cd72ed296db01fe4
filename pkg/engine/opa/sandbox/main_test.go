package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain makes the test binary a worker, a real one or one that misbehaves, if a test starts it as
// one.
func TestMain(m *testing.M) {
	if IsChild(os.Args) {
		os.Exit(Main(os.Stdin, os.Stdout))
	}
	if len(os.Args) >= 2 && strings.HasPrefix(os.Args[1], "child:") {
		misbehave(strings.TrimPrefix(os.Args[1], "child:"), os.Args[2:])
	}
	os.Exit(m.Run())
}

// misbehave does not return. A name that begins with "ready, " misbehaves at a module.
func misbehave(how string, arguments []string) {
	if how != "has children" {
		if err := limitWorker(); err != nil {
			panic(err)
		}
	}
	how, ready := strings.CutPrefix(how, "ready, ")
	if ready {
		if _, err := os.Stdout.Write(sealed(append(newFrame(nil), messageReady))); err != nil {
			panic(err)
		}
	}
	switch how {
	case "loops":
		for {
			spin()
		}
	case "is killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Hour)
	case "sleeps":
		time.Sleep(time.Hour)
	case "allocates":
		held := [][]byte{}
		for {
			held = append(held, make([]byte, 1<<20))
			for i := range held[len(held)-1] {
				held[len(held)-1][i] = 1
			}
		}
	case "floods":
		for {
			fmt.Println(strings.Repeat("x", 1<<16))
		}
	case "writes nothing":
		os.Exit(0)
	case "talks nonsense":
		fmt.Print("\x01\x00\x00\x00?")
		os.Exit(0)
	case "recurses":
		fmt.Println(deeper(0))
	case "has children":
		// The test reads the id of the grandchild from the name of a file.
		grandchild := exec.Command(os.Args[0], "child:loops")
		if err := grandchild.Start(); err != nil {
			panic(err)
		}
		name := fmt.Sprintf("%s/%d", arguments[0], grandchild.Process.Pid)
		if err := os.Mkdir(name, 0o700); err != nil {
			panic(err)
		}
		time.Sleep(time.Hour)
	}
	os.Exit(3)
}

func spin() {
	for i := range 1 << 20 {
		_ = i * i
	}
}

func deeper(level int) int {
	if level < 0 {
		return 0
	}
	return deeper(level+1) + 1
}
