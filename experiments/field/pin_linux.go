package field

import (
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// processors are those that this process may run on.
func processors() (list []int) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		for i := range runtime.NumCPU() {
			list = append(list, i)
		}
		return list
	}
	for i := 0; len(list) < set.Count(); i++ {
		if set.IsSet(i) {
			list = append(list, i)
		}
	}
	return list
}

// startOn starts a command that runs, with all its children, on the given processors alone: it inherits them from this thread.
func startOn(cmd *exec.Cmd, on []int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, some unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("cannot read the processors of this thread: %w", err)
	}
	for _, i := range on {
		some.Set(i)
	}
	if err := unix.SchedSetaffinity(0, &some); err != nil {
		return fmt.Errorf("cannot run on processors %v: %w", on, err)
	}
	err := cmd.Start()
	if back := unix.SchedSetaffinity(0, &all); back != nil {
		panic("field: " + back.Error()) // what it was a moment ago
	}
	return err
}
