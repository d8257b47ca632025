package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"draftlab/engine/weights"
)

// hostileFiles is the number of damaged files that TestHostileFiles tries; 25000 were tried when it was written.
const hostileFiles = 400

// maxHostileAlloc bounds the bytes that a run with a damaged tiny model may allocate. A context of 2^24 positions, the longest
// that is believed, takes 430 MB of tables, which become resident when they are touched.
const maxHostileAlloc = 512 << 20

// TestHostileFiles runs generate on damaged copies of the tiny model. It wants either text or an error that names the
// file, never a panic, and no more memory than the file can ask for.
func TestHostileFiles(t *testing.T) {
	good := tinyGGUF()
	path := filepath.Join(t.TempDir(), "hostile.gguf")
	rng := rand.New(rand.NewPCG(1, 2))
	spots := hostileSpots(t, good)
	failed := 0
	for n := range hostileFiles {
		data, what := damaged(rng, good, spots)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		env, stdout, stderr := testEnv(t)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		status := Run(context.Background(), env, []string{"generate", "--model", path, "--threads", "1", "--max-tokens", "3", "--raw", "x"})
		runtime.ReadMemStats(&after)
		switch status {
		case exitOK:
		case exitFailure:
			failed++
			if stdout.Len() > 0 || !strings.HasPrefix(stderr.String(), "draftlab: ") {
				t.Errorf("file %d (%s): %q on standard output, %q on standard error", n, what, stdout, stderr)
			}
		default:
			t.Errorf("file %d (%s): status %d: %s", n, what, status, stderr)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > maxHostileAlloc {
			t.Errorf("file %d (%s): %d MB allocated: %s", n, what, used>>20, stderr)
		}
	}
	if failed < hostileFiles/4 || failed == hostileFiles {
		t.Errorf("%d of %d damaged files were refused: the damage is of the wrong kind", failed, hostileFiles)
	}
}

// hostileSpots returns where a byte decides much: at the file's head, keys, tensors' names, and the first data.
func hostileSpots(t *testing.T, file []byte) []int {
	f, err := weights.ParseGGUF("tiny", file)
	if err != nil {
		t.Fatal(err)
	}
	spots := []int{8, 16}
	header := int(f.Tensors()[0].Offset)
	for _, key := range f.Meta().Keys() {
		spots = append(spots, bytes.Index(file, []byte(key)))
	}
	for _, tensor := range f.Tensors() {
		spots = append(spots, bytes.LastIndex(file[:header], []byte(tensor.Name)), int(tensor.Offset))
	}
	return spots
}

// damaged returns a copy of a file with one or two changes, and says which.
func damaged(rng *rand.Rand, file []byte, spots []int) (data []byte, what string) {
	data = bytes.Clone(file)
	for range 1 + rng.IntN(2) {
		at := min(max(0, spots[rng.IntN(len(spots))]-8+rng.IntN(80)), len(data)-8)
		extreme := []uint64{0, 1, 3, 255, 1 << 16, 1 << 20, 1 << 24, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 40, 1<<63 - 1, 1<<64 - 1}[rng.IntN(13)]
		switch rng.IntN(6) {
		case 0:
			data[at] ^= 1 << rng.IntN(8)
		case 1:
			data[at] = byte(rng.Uint32())
		case 2:
			binary.LittleEndian.PutUint32(data[at:], uint32(extreme))
		case 3:
			binary.LittleEndian.PutUint64(data[at:], extreme)
		case 4:
			data = append(data[:at:at], data[min(len(data), at+1+rng.IntN(40)):]...)
		case 5:
			data = data[:max(8, rng.IntN(len(data)))]
		}
		what += fmt.Sprintf("at %d ", at)
	}
	return data, what
}
