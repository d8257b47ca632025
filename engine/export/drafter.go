package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"draftlab/engine/draft/eagle3"
	"draftlab/engine/model"
	"draftlab/engine/quant"
	"draftlab/engine/weights"
)

// DrafterOptions say how a drafter's GGUF is written.
type DrafterOptions struct {
	// Type is what matrices become: F32 (the zero value), BF16, F16 or Q8_0. Norms are F32 always, as llama.cpp wants them.
	Type quant.Type
	// LayerIDs says what the layer ids of the drafter's config.json count, if it has any.
	LayerIDs eagle3.LayerIDs
	// Force allows an earlier file at the place to be replaced.
	Force bool
	// Progress, if not nil, is told of every piece that is written.
	Progress Progress
}

// DrafterGGUF writes the EAGLE-3 drafter in dir, a checkpoint as SGLang and vLLM load it, as the file out for
// llama.cpp (general.architecture "eagle3"). target is the GGUF that it drafts for: its depth gives the taps that
// config.json leaves out, and its tokenizer section is copied, since llama.cpp compares the two.
//
// llama.cpp rotates neighbours, so the rows of q and k are permuted; d2t becomes the target's ids instead of offsets
// to them; t2d, which no engine reads, is checked and left out. Errors name the file, key or tensor; after any of
// them, and after the end of ctx, out is as it was.
func DrafterGGUF(ctx context.Context, dir, target, out string, o DrafterOptions) (res Result, err error) {
	if err := checkType(o.Type, quant.F32, quant.F16, quant.BF16, quant.Q8_0); err != nil {
		return Result{}, err
	}
	d, err := eagle3.OpenCheckpoint(dir)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	t, err := weights.Open(target)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	if t.Format() != "gguf" {
		return Result{}, &Error{
			Msg:  fmt.Sprintf("the target %s is no GGUF, and its tokenizer section is needed", t.Path()),
			Hint: "give --target the GGUF that llama.cpp will run beside the drafter",
		}
	}
	err = d.File().Guard(func() error {
		return t.Guard(func() error {
			res, err = writeDrafter(ctx, d, t, out, o)
			return err
		})
	})
	if err != nil {
		return Result{}, explain(err, out)
	}
	return res, nil
}

func writeDrafter(ctx context.Context, d *eagle3.Checkpoint, target *weights.File, path string, o DrafterOptions) (Result, error) {
	meta, err := drafterKeys(d, target, o)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", d.File().Dir(), err)
	}
	tensors, err := drafterTensors(d, o.Type)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", d.File().Path(), err)
	}
	if err := replaceable(path, o.Force, d.File().Path(), target.Path()); err != nil {
		return Result{}, err
	}
	file, err := writeGGUF(ctx, path, meta, tensors, o)
	if err != nil {
		return Result{}, err
	}
	return Result{
		Path: path, Format: "gguf", Type: o.Type.String(), Tensors: len(tensors), Parameters: parametersOf(tensors),
		Bytes: file.Bytes, Tokenizer: true, Files: []File{file},
	}, nil
}

// writeGGUF writes the file under another name beside its place and renames it.
func writeGGUF(ctx context.Context, path string, meta []weights.KeyValue, tensors []weights.Lazy, o DrafterOptions) (_ File, err error) {
	tmp, err := os.MkdirTemp(filepath.Dir(path), "."+filepath.Base(path)+".partial-")
	if err != nil {
		return File{}, err
	}
	defer os.RemoveAll(tmp) // an early return leaves nothing behind
	part := filepath.Join(tmp, "new")
	total := bytesOf(tensors)
	var done int64
	out, err := create(ctx, part, func(n int) {
		done += int64(n)
		if o.Progress != nil {
			o.Progress(min(done, total), total) // the keys are none of it
		}
	})
	if err != nil {
		return File{}, err
	}
	if err := out.close(weights.StreamGGUF(out, meta, tensors)); err != nil {
		return File{}, err
	}
	if err := flush(part); err != nil {
		return File{}, err
	}
	if err := replaceable(path, o.Force); err != nil {
		return File{}, err
	}
	return File{filepath.Base(path), out.n}, os.Rename(part, path)
}

// replaceable reports an error if a file must not be put at path: something is there and force is not set, or it
// is not a regular file, or it is one of the sources.
func replaceable(path string, force bool, sources ...string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &Error{Msg: path + " is not a regular file", Hint: "name a new file"}
	}
	for _, s := range sources {
		if other, err := os.Stat(s); err == nil && os.SameFile(info, other) {
			return &Error{Msg: path + " is one of the sources", Hint: "name a new file"}
		}
	}
	if !force {
		return &Error{Msg: path + " exists already", Hint: "give --force to replace it, or name another file"}
	}
	return nil
}

// drafterNames are llama.cpp's names of a drafter's tensors, by SpecForge's.
var drafterNames = map[string]string{
	"fc.weight":                                "fc.weight",
	"input_norm.weight":                        "enc.output_norm.weight",
	"embed_tokens.weight":                      "token_embd.weight",
	"midlayer.input_layernorm.weight":          "blk.0.attn_norm.weight",
	"midlayer.hidden_norm.weight":              "blk.0.attn_norm_2.weight",
	"midlayer.self_attn.q_proj.weight":         "blk.0.attn_q.weight",
	"midlayer.self_attn.k_proj.weight":         "blk.0.attn_k.weight",
	"midlayer.self_attn.v_proj.weight":         "blk.0.attn_v.weight",
	"midlayer.self_attn.o_proj.weight":         "blk.0.attn_output.weight",
	"midlayer.post_attention_layernorm.weight": "blk.0.ffn_norm.weight",
	"midlayer.mlp.gate_proj.weight":            "blk.0.ffn_gate.weight",
	"midlayer.mlp.up_proj.weight":              "blk.0.ffn_up.weight",
	"midlayer.mlp.down_proj.weight":            "blk.0.ffn_down.weight",
	"norm.weight":                              "output_norm.weight",
	"lm_head.weight":                           "output.weight",
}

// drafterTensors returns the tensors in llama.cpp's names and rotary layout.
func drafterTensors(d *eagle3.Checkpoint, typ quant.Type) ([]weights.Lazy, error) {
	c := &d.Config
	order := map[string][]int32{
		"midlayer.self_attn.q_proj.weight": neighbours(c.Heads, c.HeadDim),
		"midlayer.self_attn.k_proj.weight": neighbours(c.KVHeads, c.HeadDim),
	}
	var out []weights.Lazy
	for plain, name := range drafterNames {
		src, ok := d.Tensor(plain)
		if !ok {
			continue // OpenCheckpoint has seen all that must be there
		}
		t := typ
		if len(src.Shape) == 1 {
			t = quant.F32
		}
		if _, err := quant.RowBytes(t, src.Shape[len(src.Shape)-1]); err != nil {
			return nil, fmt.Errorf("tensor %s: %w; choose a type without blocks: f16, bf16 or f32", src.Name, err)
		}
		out = append(out, convert(src, name, t, order[plain], d.File().Release))
	}
	slices.SortFunc(out, func(a, b weights.Lazy) int { return cmp.Compare(a.Name, b.Name) })
	if _, ok := d.Tensor("d2t"); ok {
		ids := make([]int64, len(d.TargetIDs))
		for i, id := range d.TargetIDs {
			ids[i] = int64(id)
		}
		out = append(out, inMemory(weights.FromInts("d2t", ids, len(ids))))
	}
	if c.Rope.Scaling.Kind == model.RopeLlama3 {
		t, err := weights.FromFloats("rope_freqs.weight", quant.F32, c.Rope.FreqDivisors(c.HeadDim), c.HeadDim/2)
		if err != nil {
			return nil, err
		}
		out = append(out, inMemory(t))
	}
	return out, nil
}

// inMemory makes a tensor with its data lazy.
func inMemory(t weights.Tensor) weights.Lazy {
	return weights.Lazy{Tensor: t, Write: func(w io.Writer) error {
		_, err := w.Write(t.Data)
		return err
	}}
}

// neighbours returns the row order that llama.cpp's rotation of neighbours asks for: rows of each head become the
// pairs (x₀, x_half), (x₁, x_half+1) …
func neighbours(heads, headDim int) []int32 {
	half := headDim / 2
	order := make([]int32, heads*headDim)
	for r := range order {
		h, in := r/headDim, r%headDim
		order[r] = int32(h*headDim + in%2*half + in/2)
	}
	return order
}
