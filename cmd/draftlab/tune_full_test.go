package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// TestFullDiskSaysHowToGoOn: of the system's error and of SQLite's, which is none of the system's.
func TestFullDiskSaysHowToGoOn(t *testing.T) {
	env, _, _ := testEnv(t)
	cmd := newTune(env)
	cmd.SetContext(context.Background())
	for _, full := range []error{fmt.Errorf("write out/samples.jsonl: %w", syscall.ENOSPC), errors.New("database or disk is full (13)"), errors.New("draftlab.db: disk I/O error (4874)")} {
		err := goOn(env, cmd, "my out", full)
		var h *hintedError
		if !errors.As(err, &h) || !strings.Contains(h.msg, full.Error()) || h.hint != "free some space, and go on with: draftlab tune --resume 'my out'" {
			t.Errorf("%v: %#v", full, err)
		}
	}
	if err := goOn(env, cmd, "my out", nil); err != nil {
		t.Error(err)
	}
}
