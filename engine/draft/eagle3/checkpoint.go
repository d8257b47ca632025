package eagle3

import (
	"errors"
	"fmt"

	"draftlab/engine/weights"
)

// Checkpoint is a drafter's checkpoint, open and checked as Load checks it, for those who write it in another format.
type Checkpoint struct {
	Config    Config
	TargetIDs []int32 // [DraftVocab] target id of each draft id, strictly ascending

	file    *weights.File
	tensors map[string]weights.Tensor
}

// OpenCheckpoint opens the drafter in dir, config.json and safetensors. Every key and tensor is checked; errors name
// the file and the key or tensor.
func OpenCheckpoint(dir string) (_ *Checkpoint, err error) {
	cfg, err := ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	f, err := open(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil { // the file would stay mapped
			err = errors.Join(fmt.Errorf("%s: %w", f.Path(), err), f.Close())
		}
	}()
	b := &builder{d: &Drafter{cfg: cfg}, release: f.Release}
	if err := b.index(f.Tensors()); err != nil {
		return nil, err
	}
	if err := f.Guard(b.readMap); err != nil {
		return nil, err
	}
	return &Checkpoint{Config: cfg, TargetIDs: b.d.ids, file: f, tensors: b.tensors}, nil
}

// Tensor returns a tensor by SpecForge's name ("midlayer.self_attn.q_proj.weight"), whatever the file calls it.
func (c *Checkpoint) Tensor(name string) (weights.Tensor, bool) {
	t, ok := c.tensors[name]
	return t, ok
}

// File returns the file of the tensors; it belongs to the checkpoint.
func (c *Checkpoint) File() *weights.File { return c.file }

// Close closes the file. No tensor's Data may be touched afterwards.
func (c *Checkpoint) Close() error { return c.file.Close() }
