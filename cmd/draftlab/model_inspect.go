package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"draftlab/engine/model"
	"draftlab/engine/weights"
	"draftlab/internal/ui"
)

// inspection is the JSON document of model inspect.
type inspection struct {
	Name      string       `json:"name"`
	Path      string       `json:"path"`
	Format    string       `json:"format"`
	FileBytes int64        `json:"file_bytes"`
	Config    *modelConfig `json:"config"`            // null if the architecture is not one that draftlab runs
	Problem   string       `json:"problem,omitempty"` // then the reason
	Types     []typeUse    `json:"types"`
	Tensors   []tensorInfo `json:"tensors"`
}

// modelConfig is the architecture with its hyper-parameters.
type modelConfig struct {
	Architecture   string  `json:"architecture"`
	Parameters     int64   `json:"parameters"`
	Layers         int     `json:"layers"`
	Hidden         int     `json:"hidden"`
	FFN            int     `json:"ffn"`
	Heads          int     `json:"heads"`
	KVHeads        int     `json:"kv_heads"`
	HeadDim        int     `json:"head_dim"`
	Vocab          int     `json:"vocab"`
	MaxContext     int     `json:"max_context"`
	Window         int     `json:"window,omitempty"`
	RopeTheta      float64 `json:"rope_theta"`
	RopeScaling    string  `json:"rope_scaling,omitempty"`
	NormEps        float32 `json:"norm_eps"`
	TiedHead       bool    `json:"tied_head"`
	BOS            int32   `json:"bos"` // -1 if there is none
	EOS            []int32 `json:"eos"`
	KVBytesPerTok  int64   `json:"kv_bytes_per_token"`
	MACsPerToken   int64   `json:"matmul_macs_per_token"`
	AttentionQKV   bool    `json:"qkv_bias"`
	AttentionNorms bool    `json:"qk_norm"`
}

// typeUse sums up the tensors of one element type.
type typeUse struct {
	Type     string `json:"type"`
	Tensors  int    `json:"tensors"`
	Elements int64  `json:"elements"`
	Bytes    int64  `json:"bytes"`
}

// tensorInfo describes one tensor.
type tensorInfo struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Shape  []int  `json:"shape"` // row-major, outermost first
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
}

func newModelInspect(env *Env) *cobra.Command {
	var tensors bool
	cmd := &cobra.Command{
		Use:   "inspect [MODEL]",
		Short: "Print a model's architecture and what its file holds",
		Long: `Inspect prints a model's architecture, its hyper-parameters and how many tensors and bytes it has of
each element type; with --tensors also every tensor. Shapes are row-major, outermost dimension first.
A model that has a name is fetched if it is not here.

A file whose architecture draftlab does not run is described all the same; the exit status is then 1.
The JSON document is {"name", "path", "format", "file_bytes", "config", "types", "tensors"}; in place of
a config that cannot be read it has null and a "problem".` + exitHelp,
		Example: `  draftlab model inspect
  draftlab model inspect ./model.gguf --tensors
  draftlab model inspect smollm2 --json`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runModelInspect(env, cmd, modelArg(args), tensors)
		},
	}
	cmd.Flags().BoolVar(&tensors, "tensors", false, "list every tensor")
	return cmd
}

func runModelInspect(env *Env, cmd *cobra.Command, name string, tensors bool) error {
	path, err := env.hub().Resolve(cmd.Context(), name, env.progress())
	if err != nil {
		return err
	}
	f, err := weights.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in, problem := inspect(name, f)
	if wantsJSON(cmd) {
		err = ui.JSON(env.Stdout, in)
	} else {
		err = in.print(env.Stdout, env.width(env.Stdout), tensors)
	}
	return cmp.Or(err, problem)
}

// inspect describes an open file; the error says why its architecture cannot be read.
func inspect(name string, f *weights.File) (in inspection, problem error) {
	in = inspection{Name: name, Path: f.Path(), Format: f.Format(), FileBytes: f.Size()}
	uses := map[string]*typeUse{}
	for _, t := range f.Tensors() {
		info := tensorInfo{Name: t.Name, Type: t.Kind.String(), Shape: slices.Clone(t.Shape), Offset: t.Offset, Bytes: int64(len(t.Data))}
		if t.Kind == weights.Weights {
			info.Type = t.Type.String()
		}
		if info.Shape == nil {
			info.Shape = []int{}
		}
		in.Tensors = append(in.Tensors, info)
		u := uses[info.Type]
		if u == nil {
			u = &typeUse{Type: info.Type}
			uses[info.Type] = u
		}
		u.Tensors++
		u.Elements += elements(t.Shape)
		u.Bytes += info.Bytes
	}
	for _, u := range uses {
		in.Types = append(in.Types, *u)
	}
	slices.SortFunc(in.Types, func(a, b typeUse) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Type, b.Type)) })
	cfg, err := model.ReadConfig(f)
	if err != nil {
		in.Problem = err.Error()
		return in, err
	}
	in.Config = describe(&cfg)
	return in, nil
}

func elements(shape []int) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= int64(d)
	}
	return n
}

func describe(c *model.Config) *modelConfig {
	return &modelConfig{
		Architecture: string(c.Arch), Parameters: c.ParamCount(), Layers: c.Layers, Hidden: c.Hidden, FFN: c.FFN,
		Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Vocab: c.Vocab, MaxContext: c.MaxContext, Window: c.Window,
		RopeTheta: c.Rope.Theta, RopeScaling: string(c.Rope.Scaling.Kind), NormEps: c.NormEps, TiedHead: c.TiedHead,
		BOS: c.BOS, EOS: c.EOS, KVBytesPerTok: c.KVBytesPerToken(false), MACsPerToken: c.MatMACsPerRow(),
		AttentionQKV: c.QKVBias, AttentionNorms: c.QKNorm,
	}
}

// print writes the inspection for people.
func (in *inspection) print(w io.Writer, width int, tensors bool) error {
	facts := [][]string{{"file", in.Path}, {"format", in.Format}, {"size", ui.Bytes(in.FileBytes)}}
	if c := in.Config; c != nil {
		facts = append(facts, c.facts()...)
	}
	if err := ui.Table(w, width, []ui.Column{{Head: "MODEL"}, {Head: in.Name}}, facts); err != nil {
		return err
	}
	var types [][]string
	for _, u := range in.Types {
		types = append(types, []string{u.Type, strconv.Itoa(u.Tensors), strconv.FormatInt(u.Elements, 10), ui.Bytes(u.Bytes)})
	}
	fmt.Fprintln(w) // the tables that follow report what goes wrong
	err := ui.Table(w, width, []ui.Column{
		{Head: "TYPE"}, {Head: "TENSORS", Right: true}, {Head: "ELEMENTS", Right: true}, {Head: "SIZE", Right: true},
	}, types)
	if err != nil || !tensors {
		return err
	}
	var list [][]string
	for _, t := range in.Tensors {
		list = append(list, []string{t.Name, t.Type, fmt.Sprint(t.Shape), strconv.FormatInt(t.Offset, 10), ui.Bytes(t.Bytes)})
	}
	fmt.Fprintln(w)
	return ui.Table(w, width, []ui.Column{
		{Head: "TENSOR"}, {Head: "TYPE"}, {Head: "SHAPE"}, {Head: "OFFSET", Right: true}, {Head: "SIZE", Right: true},
	}, list)
}

// count writes a large number as people say it.
func count(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f billion", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f million", float64(n)/1e6)
	}
	return strconv.FormatInt(n, 10)
}

// facts lists the hyper-parameters for people.
func (c *modelConfig) facts() [][]string {
	rope := fmt.Sprintf("theta %g", c.RopeTheta)
	if c.RopeScaling != "" {
		rope += ", " + c.RopeScaling + " scaling"
	}
	head := "its own matrix"
	if c.TiedHead {
		head = "the embedding"
	}
	bos := strconv.Itoa(int(c.BOS))
	if c.BOS < 0 {
		bos = "none"
	}
	return [][]string{
		{"architecture", c.Architecture},
		{"parameters", count(c.Parameters)},
		{"layers", strconv.Itoa(c.Layers)},
		{"hidden, feed-forward", fmt.Sprintf("%d, %d", c.Hidden, c.FFN)},
		{"heads", fmt.Sprintf("%d for queries, %d for keys and values, %d wide", c.Heads, c.KVHeads, c.HeadDim)},
		{"vocabulary, head", fmt.Sprintf("%d, %s", c.Vocab, head)},
		{"context", fmt.Sprintf("%d positions, %s each (keys and values)", c.MaxContext, ui.Bytes(c.KVBytesPerTok))},
		{"rotary embedding", rope},
		{"norm", fmt.Sprintf("RMS, epsilon %g", c.NormEps)},
		{"begin and end of text", fmt.Sprintf("%s, %v", bos, c.EOS)},
	}
}
