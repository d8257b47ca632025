package wiring

import (
	"context"
	"fmt"

	"draftlab/engine/compute"
	"draftlab/engine/draft/eagle3"
	"draftlab/engine/model"
)

// Steps is the length of the drafted chains.
const Steps = 3

// text is a prompt and what the target wrote.
type text struct {
	tokens []int32
	prompt int     // tokens of the prompt
	blocks []int32 // key/value blocks of tokens
	spare  []int32 // of drafted rows: Steps−1 for each block of the answer
	first  int     // row of tokens[0] in the group's pass
}

// spareBlocks is how many blocks the drafted rows behind an answer of n tokens need.
func spareBlocks(n int) int { return (n/compute.BlockSlots + 2) * (Steps - 1) }

// bench runs wirings over a group of texts, whose states the target's last pass holds.
type bench struct {
	m     *model.Model
	d     *eagle3.Drafter
	texts []text
	rows  []int32 // all of the group's pass
}

// load takes the texts as the group and runs the target over them.
func (b *bench) load(texts []text) error {
	b.texts, b.rows = texts, b.rows[:0]
	batch := b.m.Batch()
	batch.Reset()
	for i := range texts {
		t := &texts[i]
		batch.Blocks[i] = t.blocks
		t.first = batch.Rows
		for slot, token := range t.tokens {
			b.rows = append(b.rows, int32(batch.Append(int32(i), token, int32(slot))))
		}
	}
	return b.m.Forward()
}

// accepted is how many drafts of a chain from each position of an answer the target agrees with: element i is the chain whose root is the
// answer's token i, so that there is one less than the answer has tokens. A chain is cut where the text ends.
type accepted []uint8

// anchor is a position from which a chain is drafted, as long as it is accepted.
type anchor struct {
	text int
	slot int32 // of the root
	row  int32 // of its last row in the drafter's last run
}

// measure drafts chains of the given length from every position under a wiring. With scrambled, rows take the states of other
// positions, mostly of other texts: what a drafter gets right even so, it does not have from the states.
func (b *bench) measure(w eagle3.Wiring, steps int, scrambled bool) ([]accepted, error) {
	if err := b.d.Rewire(w); err != nil {
		return nil, err
	}
	b.d.Features(b.rows)
	out := make([]accepted, len(b.texts))
	anchors, err := b.extend(scrambled)
	if err != nil {
		return nil, err
	}
	for i := range b.texts {
		out[i] = make(accepted, max(0, len(b.texts[i].tokens)-1-b.texts[i].prompt))
	}
	for step := 1; ; step++ {
		live := anchors[:0]
		for i, a := range anchors {
			t := &b.texts[a.text]
			if b.d.Best(i) != t.tokens[int(a.slot)+step] {
				continue
			}
			out[a.text][int(a.slot)-t.prompt]++
			if int(a.slot)+step+1 < len(t.tokens) {
				live = append(live, a)
			}
		}
		if anchors = live; step == steps || len(anchors) == 0 {
			return out, nil
		}
		if err := b.draft(anchors, step); err != nil {
			return nil, err
		}
	}
}

// extend makes the drafter's rows of the texts and wants candidates behind each token of an answer but the last.
func (b *bench) extend(scrambled bool) (anchors []anchor, err error) {
	batch := b.d.Batch()
	batch.Reset()
	for i := range b.texts {
		t := &b.texts[i]
		batch.Blocks[i] = t.blocks
		for slot := 1; slot < len(t.tokens); slot++ {
			from := t.first + slot - 1
			if scrambled {
				from = (from + len(b.rows)/2) % len(b.rows)
			}
			r := b.d.Append(int32(i), t.tokens[slot], int32(slot), int32(from))
			if slot >= t.prompt && slot+1 < len(t.tokens) {
				batch.WantLogits(r)
				anchors = append(anchors, anchor{i, int32(slot), int32(r)})
			}
		}
	}
	return anchors, b.d.Run()
}

// draft makes row step of the chains. Chains from one block share a sequence of the batch, whose table is the text's up to that block and then spare
// blocks: link i of the chain from slot s of the block lies 16·i slots behind it, and sees the text up to s and the links before it.
func (b *bench) draft(anchors []anchor, step int) error {
	batch := b.d.Batch()
	batch.Reset()
	seq, last := int32(-1), anchor{text: -1}
	for i := range anchors {
		a := &anchors[i]
		t := &b.texts[a.text]
		block := int(a.slot) / compute.BlockSlots
		if a.text != last.text || block != int(last.slot)/compute.BlockSlots {
			seq++
			at := (block - t.prompt/compute.BlockSlots) * (Steps - 1)
			batch.Blocks[seq] = append(append(make([]int32, 0, block+Steps), t.blocks[:block+1]...), t.spare[at:at+Steps-1]...)
		}
		last = *a
		r := b.d.Append(seq, t.tokens[int(a.slot)+step], a.slot+int32(step*compute.BlockSlots), ^a.row)
		batch.Pos[r] = a.slot + int32(step) - 1
		batch.Tail[r] = a.slot + 1
		for link := 1; link <= step; link++ {
			batch.Mask[r] |= 1 << (link*compute.BlockSlots - 1)
		}
		batch.WantLogits(r)
		a.row = int32(r)
	}
	return b.d.Run()
}

// write has the target answer the prompts greedily, in step, with up to n tokens each; blocks are numbered from 0.
func write(ctx context.Context, m *model.Model, prompts [][]int32, n int, stop func(int32) bool) ([]text, error) {
	texts := make([]text, len(prompts))
	batch := m.Batch()
	batch.Reset()
	next, live := int32(0), make([]bool, len(prompts))
	take := func(count int) (ids []int32) {
		for range count {
			ids = append(ids, next)
			next++
		}
		return ids
	}
	for i, p := range prompts {
		texts[i] = text{tokens: append(make([]int32, 0, len(p)+n), p...), prompt: len(p)}
		t := &texts[i]
		t.blocks, t.spare = take((len(p)+n+compute.BlockSlots-1)/compute.BlockSlots), take(spareBlocks(n))
		batch.Blocks[i], live[i] = t.blocks, true
		for slot, token := range p {
			batch.Append(int32(i), token, int32(slot))
		}
		batch.WantLogits(batch.Rows - 1)
	}
	if need := int(next); need > m.KV().Blocks() {
		return nil, fmt.Errorf("%d texts need %d blocks, there are %d", len(prompts), need, m.KV().Blocks())
	}
	for batch.Rows > 0 {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := m.Forward(); err != nil {
			return nil, err
		}
		out := 0
		for i := range texts {
			if live[i] {
				t := &texts[i]
				best := batch.Best[out]
				out++
				live[i] = !stop(best)
				if live[i] {
					t.tokens = append(t.tokens, best)
					live[i] = len(t.tokens) < t.prompt+n
				}
			}
		}
		batch.Reset()
		for i, t := range texts {
			if live[i] {
				batch.WantLogits(batch.Append(int32(i), t.tokens[len(t.tokens)-1], int32(len(t.tokens)-1)))
			}
		}
	}
	return texts, nil
}
