//go:build !linux

package field

import (
	"os/exec"
	"runtime"
)

// processors are those of the machine.
func processors() (list []int) {
	for i := range runtime.NumCPU() {
		list = append(list, i)
	}
	return list
}

// startOn starts a command; this system has no way to keep it on some processors.
func startOn(cmd *exec.Cmd, _ []int) error { return cmd.Start() }
