// Package drafters carries the drafters that ship with draftlab, each a checkpoint directory with a model card. [Unpack] writes one
// where it can be loaded from.
//
// It knows nothing of their format, nor which model each is for (package hub does).
package drafters

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed smollm2-135m-instruct-eagle3/config.json smollm2-135m-instruct-eagle3/model.safetensors
var files embed.FS

// Unpack writes a shipped drafter into a directory of its name under dir, unless it is there already, and returns that directory. Each file
// appears whole or not at all, so that several processes may unpack at once.
func Unpack(name, dir string) (string, error) {
	dst := filepath.Join(dir, name)
	entries, err := fs.ReadDir(files, name)
	if err != nil {
		return "", fmt.Errorf("drafter %q does not ship with draftlab", name)
	}
	if err := os.MkdirAll(dst, 0o777); err != nil {
		return "", err
	}
	for _, e := range entries {
		data, err := files.ReadFile(name + "/" + e.Name())
		if err != nil {
			return "", err
		}
		if err := put(filepath.Join(dst, e.Name()), data); err != nil {
			return "", fmt.Errorf("unpacking drafter %s: %w", name, err)
		}
	}
	return dst, nil
}

// put writes a file unless it has just these bytes.
func put(path string, data []byte) (err error) {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".unpack-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // an early return would leave it behind
		}
	}()
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
