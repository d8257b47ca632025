package export

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"draftlab/engine/model"
	"draftlab/engine/quant"
	"draftlab/engine/tokenizer"
	"draftlab/engine/weights"
)

// TestCheckpointComputes: the checkpoint computes what the GGUF computes, to the bit, for every family, for sources
// in formats of blocks, and whether or not there is a head of its own.
func TestCheckpointComputes(t *testing.T) {
	t.Parallel()
	for _, shape := range []string{
		"tiny-q4_1", "tiny-q4_k", "tiny-q6_k", "tiny-bf16", "tiny-qwen2-q4_0", "tiny-qwen2-q5_k", "tiny-qwen3-q8_0", "tiny-qwen3-q5_1",
	} {
		t.Run(shape, func(t *testing.T) {
			t.Parallel()
			s := randomSource(t, shape)
			path, dir := s.write(t), filepath.Join(t.TempDir(), "out")
			res, err := Checkpoint(t.Context(), path, dir, CheckpointOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if res.Parameters != s.cfg.ParamCount() || res.Tokenizer {
				t.Errorf("result %+v", res)
			}
			f := open(t, dir)
			if _, ok := f.Tensor("lm_head.weight"); ok == s.cfg.TiedHead {
				t.Errorf("a head of its own: %v", ok)
			}
			got, err := model.ReadConfig(f)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, s.cfg) {
				t.Errorf("configuration\n got %+v\nwant %+v", got, s.cfg)
			}
			if !sameBits(logits(t, dir), logits(t, path)) {
				t.Error("the logits differ")
			}
		})
	}
}

// TestCheckpointOfCheckpoint: a checkpoint that transformers made, laid out as llama.cpp's converter does and exported,
// is itself again, tensor for tensor.
func TestCheckpointOfCheckpoint(t *testing.T) {
	t.Parallel()
	for _, family := range []string{"llama", "llama-tied", "mistral", "qwen2", "qwen3"} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			original := open(t, filepath.Join("../model/testdata/tiny", family))
			cfg, err := model.ReadConfig(original)
			if err != nil {
				t.Fatal(err)
			}
			s := &source{cfg: cfg, keys: metadata(cfg)}
			var names []string
			for _, x := range original.Tensors() {
				names = append(names, x.Name)
				s.takeHF(t, x)
			}
			if cfg.Rope.Scaling.Kind == model.RopeLlama3 {
				s.addRopeFreqs(t, cfg.Rope.Scaling)
			}
			dir := filepath.Join(t.TempDir(), "out")
			if _, err := Checkpoint(t.Context(), s.write(t), dir, CheckpointOptions{}); err != nil {
				t.Fatal(err)
			}
			f := open(t, dir)
			if len(f.Tensors()) != len(names) {
				t.Errorf("%d tensors, want %d", len(f.Tensors()), len(names))
			}
			for _, name := range names {
				if !sameBits(floats(t, f, name), floats(t, original, name)) {
					t.Errorf("%s differs", name)
				}
			}
			back, err := model.ReadConfig(f)
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range cfg.Rope.InvFreq(cfg.HeadDim) {
				if got := back.Rope.InvFreq(cfg.HeadDim)[i]; math.Abs(got-want) > 1e-6*want {
					t.Errorf("rotary frequency %d is %v, want %v", i, got, want)
				}
			}
		})
	}
}

// takeHF adds a checkpoint's tensor as llama.cpp's converter would: under its name, q and k of Llama with the two
// halves of each head interleaved.
func (s *source) takeHF(t *testing.T, x weights.Tensor) {
	t.Helper()
	v, err := x.Floats()
	if err != nil {
		t.Fatal(err)
	}
	for part, hf := range ggufParts {
		if !strings.HasSuffix(x.Name, hf) {
			continue
		}
		name := part
		if rest, ok := strings.CutPrefix(x.Name, "model.layers."); ok {
			layer, _, _ := strings.Cut(rest, ".")
			name = "blk." + layer + "." + part
		}
		if s.cfg.Arch == model.Llama && (part == "attn_q.weight" || part == "attn_k.weight") {
			v = interleave(v, x.Shape[0], s.cfg.HeadDim)
		}
		s.add(t, name, quant.F32, v, x.Shape...)
		return
	}
	t.Fatalf("no GGUF name for %s", x.Name)
}

// interleave is the converter's reshape(heads, 2, half, …) with the middle axes swapped.
func interleave(v []float32, rows, headDim int) (out []float32) {
	cols, half := len(v)/rows, headDim/2
	for h := 0; h < rows; h += headDim {
		for i := range half {
			for _, r := range []int{h + i, h + half + i} {
				out = append(out, v[r*cols:(r+1)*cols]...)
			}
		}
	}
	return out
}

// TestCheckpointTypes: BF16 and F16 round each weight to nearest, and config.json says what they are.
func TestCheckpointTypes(t *testing.T) {
	t.Parallel()
	s := randomSource(t, "tiny-qwen2-q4_1")
	path := s.write(t)
	src := open(t, path)
	for typ, name := range map[quant.Type]string{quant.BF16: "bfloat16", quant.F16: "float16"} {
		dir := filepath.Join(t.TempDir(), "out")
		if _, err := Checkpoint(t.Context(), path, dir, CheckpointOptions{Type: typ}); err != nil {
			t.Fatal(err)
		}
		f := open(t, dir)
		for _, x := range src.Tensors() {
			want := floats(t, src, x.Name)
			raw := make([]byte, 2*len(want))
			quant.Encode(typ, raw, want)
			quant.Decode(typ, want, raw)
			got, ok := f.Tensor(ggufToHF(x.Name))
			if !ok || got.Type != typ || !sameBits(floats(t, f, got.Name), want) {
				t.Errorf("%s: %s is not the rounded source", typ, ggufToHF(x.Name))
			}
		}
		config, err := os.ReadFile(filepath.Join(dir, "config.json"))
		if err != nil || !strings.Contains(string(config), `"torch_dtype": "`+name+`"`) {
			t.Errorf("%s: %s, %v", typ, config, err)
		}
	}
}

// TestCheckpointTokenizer: the tokenizer files tokenise as the GGUF does, tokens that are half a character included,
// and name its special tokens; padding entries of the vocabulary are none.
func TestCheckpointTokenizer(t *testing.T) {
	t.Parallel()
	for _, pre := range []string{"gpt-2", "smollm", "llama-bpe", "qwen2"} {
		s := randomSource(t, "tiny-f32")
		s.addVocabulary(pre)
		path, dir := s.write(t), filepath.Join(t.TempDir(), "out")
		res, err := Checkpoint(t.Context(), path, dir, CheckpointOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want, err := tokenizer.FromGGUF(open(t, path).Meta())
		if err != nil {
			t.Fatal(err)
		}
		got := readTokenizer(t, dir)
		for _, text := range []string{"", "abc ab  abab\n", "é 😀 \U0001f9d1\u200d\U0001f680", "12345 don't", "<|im_end|>abc<|begin|>", "[PAD300]", "e\u0301"} {
			o := tokenizer.EncodeOptions{ParseSpecial: true, AddSpecial: true}
			a, err1 := got.Encode(text, o)
			b, err2 := want.Encode(text, o)
			if err1 != nil || err2 != nil || !slices.Equal(a, b) {
				t.Errorf("%s: %q: got %v, want %v (%v, %v)", pre, text, a, b, err1, err2)
			}
		}
		if got.Vocab() != 264 || got.ChatTemplate() != want.ChatTemplate() {
			t.Errorf("%s: %d tokens, template %q", pre, got.Vocab(), got.ChatTemplate())
		}
		var gen struct {
			BOS, PAD int32
			EOS      []int32
		}
		var raw map[string]json.RawMessage
		readJSON(t, filepath.Join(dir, "generation_config.json"), &raw)
		for key, v := range map[string]any{"bos_token_id": &gen.BOS, "pad_token_id": &gen.PAD, "eos_token_id": &gen.EOS} {
			if err := json.Unmarshal(raw[key], v); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		}
		if gen.BOS != 261 || gen.PAD != 263 || !slices.Equal(gen.EOS, []int32{262, 263}) || !res.Tokenizer {
			t.Errorf("%s: generation_config.json has %+v", pre, gen)
		}
	}
}

func readTokenizer(t *testing.T, dir string) *tokenizer.Tokenizer {
	t.Helper()
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	tok, err := tokenizer.FromJSON(read("tokenizer.json"), read("tokenizer_config.json"), string(read("chat_template.jinja")))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestCheckpointShards: weights are cut between tensors, no shard is larger than asked for but one of a single tensor, and the
// model is the same.
func TestCheckpointShards(t *testing.T) {
	t.Parallel()
	path := randomSource(t, "tiny-q4_0").write(t)
	whole, cut := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "cut")
	if _, err := Checkpoint(t.Context(), path, whole, CheckpointOptions{}); err != nil {
		t.Fatal(err)
	}
	const limit = 400_000
	last := int64(-1)
	res, err := Checkpoint(t.Context(), path, cut, CheckpointOptions{ShardBytes: limit, Progress: func(done, total int64) {
		if done < last || done > total {
			t.Errorf("progress %d of %d after %d", done, total, last)
		}
		last = done
	}})
	if err != nil {
		t.Fatal(err)
	}
	one, many := open(t, whole), open(t, cut)
	if many.Path() != filepath.Join(cut, "model.safetensors.index.json") || last != res.Parameters*4 {
		t.Errorf("%s, %d bytes of progress", many.Path(), last)
	}
	for _, x := range one.Tensors() {
		if !sameBits(floats(t, one, x.Name), floats(t, many, x.Name)) {
			t.Errorf("%s differs", x.Name)
		}
	}
	shards := 0
	for _, name := range list(t, cut) {
		if !strings.HasPrefix(name, "model-") {
			continue
		}
		shards++
		if f := open(t, filepath.Join(cut, name)); len(f.Tensors()) > 1 && f.Size() > limit+10_000 {
			t.Errorf("%s has %d bytes in %d tensors", name, f.Size(), len(f.Tensors()))
		}
	}
	if shards < 5 {
		t.Errorf("%d shards", shards)
	}
	// Fewer files replace more: nothing of the earlier checkpoint stays.
	if _, err := Checkpoint(t.Context(), path, cut, CheckpointOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if got := list(t, cut); !slices.Equal(got, list(t, whole)) {
		t.Errorf("left over: %v", got)
	}
}

// TestCheckpointPlace: what is at the place stays unless it is an earlier checkpoint and force is given, and no attempt
// leaves anything beside it.
func TestCheckpointPlace(t *testing.T) {
	t.Parallel()
	path := randomSource(t, "tiny-q4_0").write(t)
	parent := t.TempDir()
	dir := filepath.Join(parent, "out")
	export := func(force bool) error {
		_, err := Checkpoint(t.Context(), path, dir, CheckpointOptions{Force: force})
		if names := list(t, parent); len(names) > 1 {
			t.Errorf("beside the place lies %v", names)
		}
		return err
	}
	want := func(err error, text string) {
		t.Helper()
		if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
			t.Errorf("error %v, want %q", err, text)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	want(export(false), "") // an empty directory is no loss
	want(export(false), "exists already")
	want(export(true), "")
	stranger := filepath.Join(dir, "thesis.txt")
	if err := os.WriteFile(stranger, []byte("years of work"), 0o644); err != nil {
		t.Fatal(err)
	}
	want(export(true), `holds "thesis.txt"`)
	if _, err := os.Stat(stranger); err != nil {
		t.Error(err)
	}
	os.RemoveAll(dir)
	if err := os.WriteFile(dir, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	want(export(true), "not a directory")
	os.Remove(dir)
	if _, err := Checkpoint(t.Context(), path, filepath.Join(dir, "deeper"), CheckpointOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no parent: %v", err)
	}
}

// TestCheckpointLink: a link to a directory stays a link.
func TestCheckpointLink(t *testing.T) {
	t.Parallel()
	path := randomSource(t, "tiny-q4_0").write(t)
	parent := t.TempDir()
	target, link := filepath.Join(parent, "target"), filepath.Join(parent, "link")
	if err := os.Mkdir(target, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Skip(err)
	}
	if _, err := Checkpoint(t.Context(), path, link, CheckpointOptions{}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("%v, %v", info, err)
	}
	open(t, target)
}

// TestCheckpointInterrupted: the end of the context leaves the place and its neighbours as they were.
func TestCheckpointInterrupted(t *testing.T) {
	t.Parallel()
	path := randomSource(t, "tiny-q4_0").write(t)
	parent := t.TempDir()
	dir := filepath.Join(parent, "out")
	if _, err := Checkpoint(t.Context(), path, dir, CheckpointOptions{}); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = Checkpoint(ctx, path, dir, CheckpointOptions{Force: true, Type: quant.BF16, Progress: func(done, total int64) {
		if done > total/2 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	after, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	if err != nil || !slices.Equal(before, after) || len(list(t, parent)) != 1 {
		t.Errorf("the place changed: %v, %v", list(t, parent), err)
	}
}

// TestCheckpointRefuses: what has no form as a checkpoint is refused by name before anything is written.
func TestCheckpointRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*source)
		want   string
	}{
		"rope_freqs of another rule": {func(s *source) {
			d := slices.Repeat([]float32{1, 3}, s.cfg.HeadDim/4)
			s.add(t, "rope_freqs.weight", quant.F32, d, len(d))
		}, "rope_freqs.weight"},
		"another tokenizer": {func(s *source) {
			s.keys = append(s.keys, weights.KeyValue{Key: "tokenizer.ggml.model", Value: "llama"})
		}, `tokenizer.ggml.model is "llama"`},
		"unknown pre-tokenizer": {func(s *source) { s.addVocabulary("dbrx") }, `unknown pre-tokenizer "dbrx"`},
		"no merges": {func(s *source) {
			s.addVocabulary("gpt-2")
			s.keys = slices.DeleteFunc(s.keys, func(kv weights.KeyValue) bool { return kv.Key == "tokenizer.ggml.merges" })
		}, "tokenizer.ggml.merges is missing"},
		"a tensor too many": {func(s *source) { s.add(t, "blk.0.attn_sinks", quant.F32, []float32{1}, 1) }, "blk.0.attn_sinks"},
		"a tensor too few":  {func(s *source) { s.tensors = s.tensors[:len(s.tensors)-1] }, "blk.2.ffn_down.weight is missing"},
		"not a number": {func(s *source) {
			i := slices.IndexFunc(s.tensors, func(x weights.Tensor) bool { return x.Name == "blk.1.ffn_up.weight" })
			copy(s.tensors[i].Data[len(s.tensors[i].Data)-4:], []byte{0, 0, 0xc0, 0x7f})
		}, "tensor blk.1.ffn_up.weight: row 511, column 255 is NaN, not a finite number"},
	} {
		s := randomSource(t, "tiny-f32")
		c.change(s)
		parent := t.TempDir()
		_, err := Checkpoint(t.Context(), s.write(t), filepath.Join(parent, "out"), CheckpointOptions{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
		if names := list(t, parent); len(names) > 0 {
			t.Errorf("%s: left behind %v", name, names)
		}
	}
	if _, err := Checkpoint(t.Context(), "../model/testdata/tiny/llama", filepath.Join(t.TempDir(), "out"), CheckpointOptions{}); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a checkpoint: %v", err)
	}
	if _, err := Checkpoint(t.Context(), "", "", CheckpointOptions{Type: quant.Q4_0}); err == nil || !strings.Contains(err.Error(), "Q4_0") {
		t.Errorf("a type: %v", err)
	}
}

// TestCheckpointRange: a weight beyond the range of F16 is refused; the largest is not.
func TestCheckpointRange(t *testing.T) {
	t.Parallel()
	for value, ok := range map[float32]bool{65519: true, -65519: true, 65520: false, -70000: false} {
		s := randomSource(t, "tiny-f32")
		s.tensors[0].Data = slices.Clone(s.tensors[0].Data)
		quant.Encode(quant.F32, s.tensors[0].Data[:4], []float32{value})
		_, err := Checkpoint(t.Context(), s.write(t), filepath.Join(t.TempDir(), "out"), CheckpointOptions{Type: quant.F16})
		if ok && err != nil || !ok && (err == nil || !strings.Contains(err.Error(), "too large for F16")) {
			t.Errorf("%v: %v", value, err)
		}
	}
}

// TestExplain: a full disk comes with its remedy, anything else as it is.
func TestExplain(t *testing.T) {
	t.Parallel()
	full := &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	var e *Error
	if err := explain(full, "out"); !errors.As(err, &e) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(e.Remedy(), "bf16") {
		t.Errorf("%v", err)
	}
	if err := explain(os.ErrClosed, "out"); err != os.ErrClosed {
		t.Errorf("%v", err)
	}
}
