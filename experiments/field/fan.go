package field

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"draftlab/experiments/rig"
)

// Fan is how the tasks of an experiment are spread over processes.
type Fan struct {
	Jobs   int
	worker string    // "I/N" in the process of a worker
	alive  io.Reader // in a worker, ends with the process that started it
}

var errOrphan = errors.New("the process that started this one has ended")

// Register adds the flags.
func (f *Fan) Register(fs *flag.FlagSet) {
	f.alive = os.Stdin
	fs.IntVar(&f.Jobs, "jobs", 1, "share the campaigns out to `N` processes, each on processors of its own")
	fs.StringVar(&f.worker, "worker", "", "set by --jobs: be `I/N` of the processes")
}

// stopPatience is how long a worker gets to end its server after an interrupt.
const stopPatience = 15 * time.Second

// Run has n tasks done, each named by its number from 0: here, or by Jobs processes that run this program again. It reports whether
// this process is the one that goes on with the results; a worker is not.
func (f *Fan) Run(ctx context.Context, n int, task func(ctx context.Context, i int) error) (goOn bool, err error) {
	if f.worker != "" {
		var i, of int
		if _, err := fmt.Sscanf(f.worker, "%d/%d", &i, &of); err != nil || i < 0 || of <= i {
			return false, rig.Usage("--worker %s: want I/N with I from 0 and below N", f.worker)
		}
		within, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		go func() { // reads on when the tasks are done: a read cannot be called off
			_, _ = io.Copy(io.Discard, f.alive)
			cancel(errOrphan)
		}()
		return false, f.each(within, i, of, n, task)
	}
	cpus := processors()
	if f.Jobs < 1 || f.Jobs > len(cpus) {
		return false, rig.Usage("--jobs %d: want 1 to %d, the number of processors", f.Jobs, len(cpus))
	}
	if f.Jobs == 1 {
		return true, f.each(ctx, 0, 1, n, task)
	}
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	share := len(cpus) / f.Jobs
	failures := make([]error, f.Jobs)
	var group sync.WaitGroup
	for i := range f.Jobs {
		cmd := exec.CommandContext(ctx, self, append(os.Args[1:len(os.Args):len(os.Args)], fmt.Sprintf("--worker=%d/%d", i, f.Jobs))...)
		cmd.Stderr = os.Stderr
		if _, err := cmd.StdinPipe(); err != nil { // its end tells the worker; nothing is written
			return false, err
		}
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = stopPatience
		if err := startOn(cmd, cpus[i*share:(i+1)*share]); err != nil {
			return false, errors.Join(err, errors.Join(failures...))
		}
		group.Go(func() {
			if err := cmd.Wait(); err != nil {
				failures[i] = fmt.Errorf("process %d of %d: %w", i+1, f.Jobs, err)
			}
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return true, errors.Join(failures...)
}

// each does every of-th task from the first on.
func (f *Fan) each(ctx context.Context, first, of, n int, task func(ctx context.Context, i int) error) error {
	for i := first; i < n; i += of {
		if err := task(ctx, i); err != nil {
			return err
		}
	}
	return nil
}
