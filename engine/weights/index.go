package weights

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sort"
	"strings"
)

// maxIndex bounds a shard index; a model of ten thousand tensors has one of about a megabyte.
const maxIndex = 64 << 20

// openIndex opens a model of several safetensors files through its index, a JSON object whose
// weight_map gives for each tensor the file, beside the index, that holds it. Index and shards
// must agree on every tensor.
func openIndex(path string) (_ *File, err error) {
	text, err := readLimited(path, maxIndex)
	if err != nil {
		return nil, err
	}
	weightMap, shards, err := parseIndex(path, text)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, dir: filepath.Dir(path), format: "safetensors", byName: make(map[string]int)}
	defer func() {
		if err != nil { // the shards opened so far would stay mapped
			err = errors.Join(err, f.Close())
		}
	}()
	for _, name := range shards {
		if err := f.addShard(name, weightMap); err != nil {
			return nil, err
		}
	}
	for tensor, shard := range weightMap {
		if _, ok := f.byName[tensor]; !ok {
			return nil, fmt.Errorf("%s: tensor %s is not in %s, where the index puts it", path, quoteShort(tensor), shard)
		}
	}
	return f, nil
}

// addShard opens one shard and takes over its tensors.
func (f *File) addShard(name string, weightMap map[string]string) error {
	path := filepath.Join(f.dir, name)
	m, err := openMapping(path)
	if err != nil {
		return fmt.Errorf("%s: shard: %w", f.path, err)
	}
	f.maps = append(f.maps, m)
	shard, err := ParseSafetensors(path, m.data)
	if err != nil {
		return err
	}
	for _, t := range shard.tensors {
		if listed, ok := weightMap[t.Name]; !ok || listed != name {
			return &FormatError{File: path, Tensor: t.Name, Offset: t.Offset,
				Problem: fmt.Sprintf("the index %s does not list it in this shard", f.path)}
		}
		t.src = m
		f.byName[t.Name] = len(f.tensors)
		f.tensors = append(f.tensors, t)
	}
	f.size += shard.size
	return nil
}

// parseIndex returns the weight_map and the shards it names, sorted.
func parseIndex(path string, text []byte) (weightMap map[string]string, shards []string, err error) {
	r, err := newJSONReader(path, 0, text)
	if err != nil {
		return nil, nil, err
	}
	weightMap = make(map[string]string)
	seen := make(map[string]bool)
	err = r.object(func(key string) error {
		if key != "weight_map" {
			return r.skip()
		}
		return r.object(func(tensor string) error {
			shard, err := r.text()
			if err != nil {
				return err
			}
			if !plainName(shard) {
				return r.fail("tensor %s lies in %s, which is not the name of a .safetensors file beside the index", quoteShort(tensor), quoteShort(shard))
			}
			weightMap[tensor] = shard
			if !seen[shard] {
				seen[shard] = true
				shards = append(shards, shard)
			}
			return nil
		})
	})
	if err == nil {
		err = r.end()
	}
	if err == nil && len(weightMap) == 0 {
		err = r.fail("the index has no weight_map, or an empty one")
	}
	sort.Strings(shards)
	return weightMap, shards, err
}

// plainName reports whether a shard's name stays in the index's directory on every system.
func plainName(name string) bool {
	return strings.HasSuffix(name, ".safetensors") && !strings.ContainsAny(name, "/\\:\x00") && filepath.IsLocal(name)
}

// readLimited reads a whole file of at most limit bytes.
func readLimited(path string, limit int64) ([]byte, error) {
	file, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("%s: more than %d bytes, too large for an index", path, limit)
	}
	return text, nil
}
