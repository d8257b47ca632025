package target

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"draftlab/lab/runner"
	"draftlab/lab/trial"
)

// python is a host on which Python tells a version of SGLang.
type python struct {
	runner.Local
	version string
}

func (p python) Output(context.Context, ...string) ([]byte, error) {
	if p.version == "" {
		return nil, os.ErrNotExist
	}
	return []byte(p.version + "\n"), nil
}

// arm is an arm with flags given as name=value, and NAME=value for variables.
func arm(name string, k trial.Knobs, settings ...string) trial.Arm {
	a := trial.Arm{Name: name, Knobs: k}
	a.Flags, a.Env = map[string]string{}, map[string]string{}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		if strings.ToUpper(key) == key {
			a.Env[key] = value
		} else {
			a.Flags[key] = value
		}
	}
	return a
}

// codes are findings in short.
func codes(found []Finding) (out []string) {
	for _, f := range found {
		out = append(out, f.Code+":"+strings.Join(f.Arms, ","))
	}
	return out
}

// weighed are the codes of findings with their arms, fatal ones with a mark, and holds each finding to have a text.
func weighed(t *testing.T, found []Finding) (out []string) {
	t.Helper()
	out = codes(found)
	for i, f := range found {
		if f.Fatal {
			out[i] = strings.Replace(out[i], ":", "!:", 1)
		}
		if f.Text == "" || strings.Contains(f.Text, "%!") {
			t.Errorf("%+v", f)
		}
	}
	return out
}

// TestSGLangPair: a drafter made for another target, or for shorter texts than the target's, is told before either is loaded.
func TestSGLangPair(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		place := filepath.Join(dir, name)
		if err := os.MkdirAll(place, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(place, "config.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return place
	}
	head := write("head", `{"architectures":["LlamaForCausalLMEagle3"],"hidden_size":4096,"vocab_size":128256,"draft_vocab_size":32000,"max_position_embeddings":2048}`)
	narrow := write("narrow", `{"architectures":["LlamaForCausalLMEagle3"],"hidden_size":1024,"target_hidden_size":4096,"vocab_size":128256}`)
	small := write("small", `{"architectures":["Qwen2ForCausalLM"],"hidden_size":896,"vocab_size":151936,"max_position_embeddings":131072}`)
	target := write("target", `{"architectures":["LlamaForCausalLM"],"hidden_size":4096,"vocab_size":128256,"max_position_embeddings":131072}`)
	sees := write("sees", `{"architectures":["Seeing"],"text_config":{"hidden_size":7168,"vocab_size":128256,"max_position_embeddings":1024}}`)
	odd := write("odd", `{"hidden_size":"wide"}`)
	chain, lookup, alone := knobs("eagle3", 3, 1, 4), knobs("ngram", 3, 1, 4), knobs("standalone", 3, 1, 4)
	for name, c := range map[string]struct {
		target, drafter string
		arms            []trial.Arm
		want            []string
	}{
		"longer texts":       {target, head, []trial.Arm{arm("c", chain), arm("k", chain, "context-length=2048"), arm("l", lookup)}, []string{"short_context:c"}},
		"a flag alone":       {"org/target", head, []trial.Arm{arm("c", chain), arm("k", chain, "context-length=8192")}, []string{"short_context:k"}},
		"quantized":          {target, narrow, []trial.Arm{arm("c", chain, "quantization=awq"), arm("u", chain, "quantization=awq", "speculative-draft-model-quantization=unquant")}, []string{"drafter_quantized:c"}},
		"a width of its own": {target, narrow, []trial.Arm{arm("c", chain)}, nil},
		"another target":     {sees, head, []trial.Arm{arm("c", chain)}, []string{"hidden_size!:c"}},
		"other words":        {target, small, []trial.Arm{arm("s", alone)}, []string{"vocab_size:s"}},
		"nothing to read":    {odd, head, []trial.Arm{arm("c", chain)}, nil},
		"no such target":     {filepath.Join(dir, "none"), head, []trial.Arm{arm("c", chain)}, nil},
	} {
		e := newEngine(Config{Kind: "sglang", Model: c.target, Drafter: c.drafter, Environ: []string{"PATH=/bin"}}, sglangKind{}, python{version: "0.5.18"})
		if got := weighed(t, e.Check(c.arms)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestSGLangCheck: each of the things that SGLang does silently or refuses late is told of the arms that it concerns.
func TestSGLangCheck(t *testing.T) {
	plain, chain, tree := trial.Knobs{Drafter: "none"}, knobs("eagle3", 3, 1, 4), knobs("eagle3", 3, 4, 16)
	lookup, flash, spark := knobs("ngram", 3, 1, 4), knobs("dflash", 7, 1, 8), knobs("dspark", 7, 1, 8)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"architectures":["LlamaForCausalLMEagle3"],"vocab_size":128256,"draft_vocab_size":32000}`), 0o644); err != nil {
		t.Fatal(err)
	}
	pinned := []string{"max-running-requests=8", "attention-backend=fa3", "disable-overlap-schedule"}
	for name, c := range map[string]struct {
		version, drafter string
		arms             []trial.Arm
		want             []string // code:arm, with ! behind a fatal one's code
	}{
		"nothing":                      {"0.5.18", "org/d", []trial.Arm{arm("p", plain, pinned...), arm("c", chain, pinned...), arm("t", tree, pinned...)}, nil},
		"limits":                       {"0.5.18", "org/d", []trial.Arm{arm("p", plain), arm("c", chain), arm("t", tree)}, []string{"unequal_running_requests:c,t", "unequal_attention_backend:t"}},
		"only drafts":                  {"0.5.18", "org/d", []trial.Arm{arm("c", chain)}, nil},
		"overlap":                      {"0.5.10", "org/d", []trial.Arm{arm("p", plain, "max-running-requests=8"), arm("c", chain, "max-running-requests=8")}, []string{"unequal_overlap:c", "no_ledger:"}},
		"overlap, V2":                  {"0.5.10", "org/d", []trial.Arm{arm("p", plain, pinned[:2]...), arm("c", chain, append(pinned[:2:2], "SGLANG_ENABLE_SPEC_V2=1")...)}, []string{"no_ledger:"}},
		"rewritten":                    {"0.5.18", "org/d", []trial.Arm{arm("c", knobs("eagle3", 2, 1, 2))}, []string{"draft_tokens_rewritten:c"}},
		"too large a tree":             {"0.5.18", "org/d", []trial.Arm{arm("t", knobs("eagle3", 2, 2, 8))}, []string{"impossible_draft!:t"}},
		"no topk":                      {"0.5.18", "org/d", []trial.Arm{arm("t", knobs("eagle3", 2, 0, 8))}, []string{"impossible_draft!:t"}},
		"no drafter":                   {"0.5.18", "", []trial.Arm{arm("c", chain), arm("n", lookup)}, []string{"no_drafter!:c"}},
		"missing drafter":              {"0.5.18", "/nowhere/d", []trial.Arm{arm("p", plain, pinned...), arm("c", chain, pinned...)}, []string{"missing_drafter!:c"}},
		"EAGLE with a head of EAGLE-3": {"0.5.18", dir, []trial.Arm{arm("e", knobs("eagle", 3, 1, 4)), arm("c", chain)}, []string{"wrong_algorithm!:e"}},
		"rejection":                    {"0.5.18", dir, []trial.Arm{arm("c", chain, "speculative-use-rejection-sampling")}, []string{"impossible_flags!:c"}},
		"backend":                      {"0.5.18", "org/d", []trial.Arm{arm("t", tree, "attention-backend=trtllm_mha"), arm("u", tree, "attention-backend=torch_native", "page-size=16")}, []string{"impossible_flags!:t", "impossible_flags!:u"}},
		"pipeline":                     {"0.5.18", "org/d", []trial.Arm{arm("c", chain, "pp-size=2")}, []string{"impossible_flags!:c"}},
		"adaptive":                     {"0.5.18", "org/d", []trial.Arm{arm("t", tree, "speculative-adaptive"), arm("c", chain, "speculative-adaptive-config=1:3", "attention-backend=fa3")}, []string{"flag_without_effect!:c", "flag_rewritten:t", "unequal_attention_backend:t"}},
		"adaptive, early":              {"0.5.10", "org/d", []trial.Arm{arm("c", chain, "speculative-adaptive")}, []string{"unknown_flag!:c", "no_ledger:"}},
		"variables":                    {"0.5.18", "org/d", []trial.Arm{arm("c", chain, "SGLANG_ENABLE_SPEC_V2=1", "SIMULATE_ACC_LEN=3")}, []string{"variable_ignored:c", "variable_ignored:c", "simulated_acceptance:c"}},
		"old variables":                {"0.4.6.post1", "org/d", []trial.Arm{arm("c", chain, "SGLANG_SIMULATE_ACC_LEN=3")}, []string{"variable_ignored:c", "no_ledger:", "simulated_acceptance:c"}},
		"lossy":                        {"0.5.18", "org/d", []trial.Arm{arm("c", chain, "speculative-accept-threshold-acc=0.9")}, []string{"lossy:c"}},
		"graphs":                       {"0.5.18", "org/d", []trial.Arm{arm("c", chain, "cuda-graph-max-bs=2"), arm("d", chain, "cuda-graph-max-bs=8"), arm("o", chain, "disable-cuda-graph", "cuda-graph-max-bs=8")}, []string{"without_graphs:c,o", "unequal_memory:c,d,o"}},
		"memory":                       {"0.5.18", "org/d", []trial.Arm{arm("c", chain, "mem-fraction-static=0.8"), arm("d", chain)}, []string{"unequal_memory:c,d"}},
		"NCCL": {"0.5.18", "org/d", []trial.Arm{arm("c", chain, "NCCL_PROTO=LL"), arm("d", chain, "NCCL_PROTO=LL", "NCCL_DEBUG=info"), arm("f", chain, "NCCL_DEBUG=INFO", "NCCL_ALGO=Ring", "NCCL_DEBUG_FILE=/tmp/n"), arm("o", chain)},
			[]string{"nccl_silent:c"}},
		"other drafters": {"0.4.10", "", []trial.Arm{arm("e", knobs("eagle", 3, 1, 4)), arm("n", knobs("nextn", 3, 1, 4)), arm("s", knobs("standalone", 3, 1, 4)), arm("l", lookup), arm("x", knobs("draft-mtp", 3, 1, 4))},
			[]string{"impossible_draft!:x", "no_drafter!:e,s", "no_ledger:", "unknown_flag!:l", "unknown_flag!:s"}},
		"block drafters": {"0.5.18", "org/d", []trial.Arm{arm("p", plain, pinned...), arm("f", flash, pinned...), arm("s", spark, pinned...), arm("t", knobs("dflash", 3, 2, 8), pinned...), arm("u", knobs("dspark", 3, 1, 9), pinned...)},
			[]string{"impossible_draft!:t", "impossible_draft!:u"}},
		"block drafters, early":    {"0.5.11", "org/d", []trial.Arm{arm("p", plain, pinned[:2]...), arm("f", flash, pinned[:2]...), arm("s", spark, pinned[:2]...)}, []string{"unequal_overlap:f", "unknown_flag!:s"}},
		"block drafters, earlier":  {"0.5.10", "org/d", []trial.Arm{arm("f", flash)}, []string{"no_ledger:", "unknown_flag!:f"}},
		"no block drafter":         {"0.5.18", "", []trial.Arm{arm("f", flash), arm("s", spark)}, []string{"no_drafter!:f"}},
		"EAGLE-3 for a block":      {"0.5.18", dir, []trial.Arm{arm("f", flash), arm("c", chain)}, []string{"wrong_algorithm!:f"}},
		"a block and DP attention": {"0.5.18", "org/d", []trial.Arm{arm("f", flash, "enable-dp-attention")}, []string{"impossible_flags!:f"}},
		"wired wrong":              {"0.5.18", dir, []trial.Arm{arm("n", knobs("nextn", 3, 1, 4)), arm("c", chain)}, []string{"wrong_algorithm!:n"}},
		"no version":               {"", "org/d", []trial.Arm{arm("c", chain)}, []string{"version_unknown:"}},
		"reserved":                 {"0.5.18", "org/d", []trial.Arm{arm("c", chain, "speculative-num-steps=5")}, []string{"reserved_flag!:c"}},
	} {
		e := newEngine(Config{Kind: "sglang", Model: "org/m", Drafter: c.drafter, AtOnce: 4, Environ: []string{"PATH=/bin"}}, sglangKind{}, python{version: c.version})
		if got := weighed(t, e.Check(c.arms)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]version{"0.5.18": {0, 5, 18}, "0.4.6.post1\n": {0, 4, 6}, "0.5.11rc2": {0, 5, 11}, "0.5": {0, 5, 0}, "nightly": {}, "": {}, "1..2": {}} {
		if got := parseVersion(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func FuzzParseVersion(f *testing.F) {
	f.Add("0.5.3.post2+gabcdef")
	f.Fuzz(func(t *testing.T, text string) {
		if v := parseVersion(text); slices.Min(v[:]) < 0 {
			t.Errorf("%q: %v", text, v)
		}
	})
}

// TestSGLangCommand: the command is one that any version takes, and what is secret is not in it.
func TestSGLangCommand(t *testing.T) {
	e, err := New(Config{Kind: "sglang", Model: "org/m", Drafter: "org/d", Key: "s3cret", Port: 30000, Flags: map[string]string{"tp-size": "8", "cuda-graph-bs": "1 2 4"}})
	if err != nil {
		t.Fatal(err)
	}
	chain := arm("c", knobs("eagle3", 2, 1, 3), "NCCL_PROTO=LL", "disable-radix-cache")
	boot, request := e.Split(chain.Knobs)
	want := "NCCL_PROTO=LL SGLANG_ENABLE_METRICS_DEVICE_TIMER=1 SPT_NOENV=1 python3 -m sglang.launch_server --model-path=org/m --host=127.0.0.1 --port=30000 --enable-metrics '--api-key=…' " +
		"--speculative-algorithm=EAGLE3 --speculative-draft-model-path=org/d --speculative-num-steps=2 --speculative-eagle-topk=1 --speculative-num-draft-tokens=3 --cuda-graph-bs 1 2 4 --disable-radix-cache --tp-size=8"
	if got, err := e.Command(boot); got != want || err != nil || request != nil {
		t.Errorf("%v %v\n%s, want\n%s", err, request, got, want)
	}
	boot, _ = e.Split(knobs("ngram", 3, 1, 12))
	if got, _ := e.Command(boot); !strings.Contains(got, "--speculative-algorithm=NGRAM --speculative-num-draft-tokens=12 ") || strings.Contains(got, "num-steps") {
		t.Error(got)
	}
	for drafter, want := range map[string]string{
		"dflash": "--speculative-algorithm=DFLASH --speculative-draft-model-path=org/d --speculative-num-draft-tokens=8 --cuda-graph-bs",
		"dspark": "--speculative-algorithm=DSPARK --speculative-draft-model-path=org/d --speculative-num-draft-tokens=8 --speculative-dspark-block-size=7 --cuda-graph-bs",
	} {
		boot, _ = e.Split(knobs(drafter, 7, 1, 8))
		if got, _ := e.Command(boot); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	plain, _ := e.Split(trial.Knobs{Drafter: "none"})
	other, _ := e.Split(trial.Knobs{Drafter: "eagle3"})
	if got, _ := e.Command(plain); strings.Contains(got, "speculative") || plain.Drafter != other.Drafter {
		t.Error(got)
	}
}

// TestInheritedNCCL: NCCL tells what it does also if the campaign's own environment has asked it to.
func TestInheritedNCCL(t *testing.T) {
	for environ, want := range map[string][]string{"NCCL_DEBUG=info": nil, "NCCL_DEBUG=WARN": {"nccl_silent:a"}} {
		c := Config{Environ: []string{environ}}
		if got := codes(checkNCCL(&c, []trial.Arm{arm("a", trial.Knobs{}, "NCCL_ALGO=Ring")})); !slices.Equal(got, want) {
			t.Errorf("%s: %v", environ, got)
		}
		c.Host = "elsewhere"
		if got := codes(checkNCCL(&c, []trial.Arm{arm("a", trial.Knobs{}, "NCCL_ALGO=Ring")})); len(got) != 1 {
			t.Errorf("elsewhere, %s: %v", environ, got)
		}
	}
}

// TestProxy: a proxy is told of only where it would come between a server and itself.
func TestProxy(t *testing.T) {
	for name, c := range map[string]struct {
		environ []string
		found   int
	}{
		"none": {[]string{"PATH=/bin"}, 0}, "one": {[]string{"http_proxy=http://p:3128"}, 1}, "empty": {[]string{"http_proxy="}, 0},
		"not here": {[]string{"HTTP_PROXY=http://p:3128", "NO_PROXY=localhost,127.0.0.1"}, 0},
	} {
		e := newEngine(Config{Kind: "sglang", Model: "m", Environ: c.environ}, sglangKind{}, python{version: "0.5.18"})
		if found := e.Check([]trial.Arm{arm("p", trial.Knobs{})}); len(found) != c.found {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
