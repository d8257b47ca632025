package export

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"

	"draftlab/engine/model"
	"draftlab/engine/quant"
	"draftlab/engine/weights"
)

// CheckpointOptions say how a checkpoint is written.
type CheckpointOptions struct {
	// Type is what weights become: F32 (the zero value) holds every dequantised value exactly, F16 and BF16 round.
	Type quant.Type
	// Force allows an earlier checkpoint at the place to be replaced.
	Force bool
	// ShardBytes is the most that a file of weights holds, one tensor at least; 0 means DefaultShardBytes.
	ShardBytes int64
	// Progress, if not nil, is told of every piece that is written.
	Progress Progress
}

// DefaultShardBytes is the size above which weights are cut into several files. Smaller files are easier to fetch
// again; the common tools cut at between 2 and 50 GB.
const DefaultShardBytes = 4e9

// torchTypes are the types of a checkpoint's weights, and their names in config.json.
var torchTypes = map[quant.Type]string{quant.F32: "float32", quant.F16: "float16", quant.BF16: "bfloat16"}

// Checkpoint writes the GGUF model at path as a Hugging Face checkpoint into dir, which must not exist or be empty
// unless Force is set: weights (model.safetensors, or shards with an index), config.json, generation_config.json and, if
// the GGUF has a vocabulary, tokenizer.json, tokenizer_config.json, special_tokens_map.json and chat_template.jinja.
//
// The rotary permutation of Llama's q and k is undone, and a head that is the embedding is not written twice. Errors
// name the file, key or tensor; after any of them, and after the end of ctx, dir is as it was.
func Checkpoint(ctx context.Context, path, dir string, o CheckpointOptions) (res Result, err error) {
	if err := checkType(o.Type, quant.F32, quant.F16, quant.BF16); err != nil {
		return Result{}, err
	}
	f, err := weights.Open(path)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if f.Format() != "gguf" {
		return Result{}, fmt.Errorf("%s is a safetensors model already; what is exported is a GGUF", f.Path())
	}
	err = f.Guard(func() error {
		res, err = writeCheckpoint(ctx, f, dir, o)
		return err
	})
	if err != nil {
		return Result{}, explain(err, dir)
	}
	return res, nil
}

func writeCheckpoint(ctx context.Context, f *weights.File, dir string, o CheckpointOptions) (Result, error) {
	cfg, err := model.ReadConfig(f)
	if err != nil {
		return Result{}, err
	}
	list, err := model.CheckpointTensors(f, cfg)
	if err != nil {
		return Result{}, err
	}
	small, hasTokenizer, err := smallFiles(f, cfg, o.Type)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", f.Path(), err)
	}
	tensors := make([]weights.Lazy, len(list))
	for i, t := range list {
		tensors[i] = convert(t.Source, t.Name, o.Type, t.RowOrder, f.Release)
	}
	d, err := newFolder(dir, o.Force, isCheckpointFile)
	if err != nil {
		return Result{}, err
	}
	defer d.discard() // an early return leaves the place as it was
	files, err := writeShards(ctx, d.part(), tensors, o)
	if err != nil {
		return Result{}, err
	}
	for _, s := range small {
		file, err := writeSmall(ctx, d.part(), s)
		if err != nil {
			return Result{}, err
		}
		files = append(files, file)
	}
	if err := d.commit(files); err != nil {
		return Result{}, err
	}
	res := Result{
		Path: d.dst, Format: "safetensors", Type: o.Type.String(), Tensors: len(tensors), Parameters: parametersOf(tensors),
		Tokenizer: hasTokenizer, Files: files,
	}
	for _, file := range files {
		res.Bytes += file.Bytes
	}
	return res, nil
}

// shardName matches the weights and their index.
var shardName = regexp.MustCompile(`^model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?$`)

// isCheckpointFile reports whether Checkpoint writes files of the name.
func isCheckpointFile(name string) bool { return smallNames[name] || shardName.MatchString(name) }

// writeShards writes the weights into the directory, and an index if they take several files.
func writeShards(ctx context.Context, dir string, tensors []weights.Lazy, o CheckpointOptions) ([]File, error) {
	limit := o.ShardBytes
	if limit == 0 {
		limit = DefaultShardBytes
	}
	shards := cutShards(tensors, limit)
	total := bytesOf(tensors)
	var done int64
	told := func(n int) {
		done += int64(n)
		if o.Progress != nil {
			o.Progress(min(done, total), total) // the headers are none of it
		}
	}
	var files []File
	where := map[string]string{}
	for i, shard := range shards {
		name := "model.safetensors"
		if len(shards) > 1 {
			name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		}
		out, err := create(ctx, filepath.Join(dir, name), told)
		if err != nil {
			return nil, err
		}
		// Python's loaders ask for the framework's name.
		if err := out.close(weights.StreamSafetensors(out, map[string]string{"format": "pt"}, shard)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files = append(files, File{name, out.n})
		for _, t := range shard {
			where[t.Name] = name
		}
	}
	if len(shards) == 1 {
		return files, nil
	}
	index := map[string]any{"metadata": map[string]int64{"total_size": total}, "weight_map": where}
	file, err := writeSmall(ctx, dir, smallFile{"model.safetensors.index.json", plainJSON(index)})
	return append(files, file), err
}

// cutShards cuts the tensors, in their order, into runs of at most limit bytes, and of one tensor at least.
func cutShards(tensors []weights.Lazy, limit int64) (shards [][]weights.Lazy) {
	var size int64
	for i, t := range tensors {
		n := lazyBytes(t)
		if i == 0 || size+n > limit {
			shards, size = append(shards, nil), 0
		}
		last := len(shards) - 1
		shards[last] = append(shards[last], t)
		size += n
	}
	return shards
}

// writeSmall writes a file that is in memory.
func writeSmall(ctx context.Context, dir string, s smallFile) (File, error) {
	out, err := create(ctx, filepath.Join(dir, s.name), nil)
	if err != nil {
		return File{}, err
	}
	_, err = out.Write(s.data)
	return File{s.name, int64(len(s.data))}, out.close(err)
}
