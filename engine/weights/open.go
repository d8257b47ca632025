package weights

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Open opens a model: a GGUF or safetensors file, a *.safetensors.index.json, or a directory that
// holds one of those. A directory may hold one GGUF file, or one safetensors model (an index goes
// before the files it may list); where the choice is not clear the error lists the candidates.
func Open(path string) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		if path, err = modelIn(path); err != nil {
			return nil, err
		}
	}
	if strings.HasSuffix(path, ".json") {
		return openIndex(path)
	}
	m, err := openMapping(path)
	if err != nil {
		return nil, err
	}
	var f *File
	switch {
	case isGGUF(m.data) || strings.HasSuffix(path, ".gguf"):
		f, err = ParseGGUF(path, m.data)
	case strings.HasSuffix(path, ".safetensors") || looksLikeSafetensors(m.data):
		f, err = ParseSafetensors(path, m.data)
	default:
		err = fmt.Errorf("%s: neither GGUF nor safetensors: it starts with the bytes % x", path, m.data[:min(8, len(m.data))])
	}
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	f.dir = filepath.Dir(path)
	f.adopt(m)
	return f, nil
}

// adopt makes f the owner of the mapping that its tensors, all still without one, lie in.
func (f *File) adopt(m *mapping) {
	f.maps = append(f.maps, m)
	for i := range f.tensors {
		f.tensors[i].src = m
	}
}

// modelIn returns the model file in a directory.
func modelIn(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var gguf, index, plain []string
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasSuffix(name, ".gguf"):
			gguf = append(gguf, name)
		case strings.HasSuffix(name, ".safetensors.index.json"):
			index = append(index, name)
		case strings.HasSuffix(name, ".safetensors"):
			plain = append(plain, name)
		}
	}
	found := append(gguf, index...)
	if len(index) == 0 {
		found = append(found, plain...)
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("%s: no .gguf, .safetensors or .safetensors.index.json file in this directory", dir)
	case 1:
		return filepath.Join(dir, found[0]), nil
	}
	return "", fmt.Errorf("%s: several models in this directory, name one of them: %s", dir, strings.Join(found, ", "))
}

// openRegular opens a file that is no directory, pipe or device.
func openRegular(path string) (*os.File, error) {
	info, err := os.Stat(path) // before it is opened, because opening a named pipe for reading blocks
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	return os.Open(path)
}

// openMapping maps a whole regular file.
func openMapping(path string) (*mapping, error) {
	file, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	switch size := info.Size(); {
	case size == 0:
		return nil, fmt.Errorf("%s: the file is empty; fetch it again", path)
	case size > int64(maxInt):
		return nil, fmt.Errorf("%s: %d bytes are more than this system can map", path, size)
	}
	m, err := newMapping(file, int(info.Size()))
	if err != nil {
		return nil, fmt.Errorf("%s: map: %w", path, err)
	}
	return m, nil
}
