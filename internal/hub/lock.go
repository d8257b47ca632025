package hub

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// lockPoll is how often a waiting process asks for the lock: often enough that nobody notices the
// delay, rarely enough that waiting costs nothing. (A blocking wait could not be interrupted.)
const lockPoll = 50 * time.Millisecond

// lockFile takes the lock of the file at path, making it and its directory first, and returns the
// function that releases it. It calls waiting once if another process holds the lock. The file is
// left in place: removing it would let two processes lock two different files of one name.
func lockFile(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, explain(err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, explain(err)
	}
	for told := false; ; {
		ok, err := tryLock(f)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if ok {
			return func() { f.Close() }, nil // closing releases the lock
		}
		if !told {
			told = true
			waiting()
		}
		if err := pause(ctx, lockPoll); err != nil {
			f.Close()
			return nil, err
		}
	}
}

// pause waits for d or until the context ends, whose cause it then returns.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
