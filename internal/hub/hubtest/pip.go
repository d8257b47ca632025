package hubtest

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Member is where the model lies in the wheel that Pip delivers.
const Member = "tiny_model/model.gguf"

// Content returns the stand-in model's bytes: size of them, incompressible enough to be worth resuming.
func Content(size int) []byte {
	b := make([]byte, size)
	x := uint32(1)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

// Wheel returns a wheel that carries content as its Member.
func Wheel(content []byte) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create(Member)
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		panic("hubtest: " + err.Error()) // a bytes.Buffer takes everything
	}
	return b.Bytes()
}

// Pip is the main function of a stand-in for "python3 -m pip" or "pip". mode says how it behaves: "good"
// delivers a wheel with content, "corrupt" one with a wrong byte, "nopip" has no pip module,
// "offline" finds no network, "full" finds no space, "killed" dies during the download. It returns the exit status.
func Pip(args []string, mode string, content []byte, stderr io.Writer) int {
	dest := ""
	for i, a := range args {
		if a == "--dest" && i+1 < len(args) {
			dest = args[i+1]
		}
	}
	call := strings.Join(args, " ")
	switch {
	case mode == "nopip":
		fmt.Fprintln(stderr, "/usr/bin/python3: No module named pip")
		return 1
	case mode == "offline":
		fmt.Fprintln(stderr, "ERROR: Could not find a version that satisfies the requirement tiny-model==1.0 (from versions: none)")
		return 1
	case mode == "full":
		fmt.Fprintln(stderr, "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device")
		return 1
	case dest == "" || !strings.Contains(call, "download --no-deps --only-binary=:all:") || !strings.HasSuffix(call, "tiny-model==1.0"):
		fmt.Fprintln(stderr, "unexpected arguments:", call)
		return 2
	case mode == "corrupt":
		content = append([]byte(nil), content...)
		content[len(content)/2] ^= 1
	}
	wheel := Wheel(content)
	// Like pip: the download grows in the temporary directory and is moved when it is whole.
	part := filepath.Join(os.Getenv("TMPDIR"), "pip-unpack")
	if mode == "killed" {
		wheel = wheel[:len(wheel)/2]
	}
	err := os.WriteFile(part, wheel, 0o644)
	if err == nil && mode == "killed" {
		return 137
	}
	if err == nil {
		err = os.Rename(part, filepath.Join(dest, "tiny_model-1.0-py3-none-any.whl"))
	}
	if err != nil {
		fmt.Fprintln(stderr, "ERROR:", err)
		return 1
	}
	return 0
}
