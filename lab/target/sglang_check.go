package target

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"draftlab/lab/trial"
)

// sglangRules are what SGLang does silently, refuses only after its model has loaded, or does to some arms and not to others. The sources
// of all of them are its server_args.py and arg_groups/speculative_hook.py, 0.4.6 to 0.5.18.
func (sglangKind) check(e *engine, arms []trial.Arm) []Finding {
	c := &sglangCheck{c: &e.c, arms: arms}
	c.version = e.sglangVersion()
	c.shapes()
	c.drafters(e)
	c.refused()
	c.graphs()
	c.unequal()
	c.versions()
	c.simulated()
	c.add("timers_off", false, func(a trial.Arm) bool {
		value, given := c.variable(a, deviceTimer)
		return given && value != "1" && value != "true"
	}, "%s is off: cycles of these arms cannot be taken apart, and where arms differ in it, its cost does too", deviceTimer)
	return slices.Concat(c.found, checkNCCL(&e.c, arms), checkProxy(e, arms))
}

// sglangCheck collects findings.
type sglangCheck struct {
	c       *Config
	arms    []trial.Arm
	version version // zero if it is not known
	found   []Finding
}

// add adds a finding about the arms for which something holds, if there are any.
func (c *sglangCheck) add(code string, fatal bool, holds func(trial.Arm) bool, text string, args ...any) {
	if of := names(c.arms, holds); len(of) > 0 {
		c.found = append(c.found, Finding{code, fmt.Sprintf(text, args...), fatal, of})
	}
}

// flag is what an arm's server is given for a flag.
func (c *sglangCheck) flag(a trial.Arm, name string) (value string, given bool) {
	if value, given = a.Flags[name]; !given {
		value, given = c.c.Flags[name]
	}
	return value, given
}

// variable is likewise an environment variable.
func (c *sglangCheck) variable(a trial.Arm, name string) (value string, given bool) {
	if value, given = a.Env[name]; !given {
		value, given = c.c.Env[name]
	}
	return value, given
}

// number is a flag's number, or another one if it is not given.
func (c *sglangCheck) number(a trial.Arm, name string, otherwise float64) float64 {
	if value, given := c.flag(a, name); given {
		if x, err := strconv.ParseFloat(value, 64); err == nil {
			return x
		}
	}
	return otherwise
}

func spec(a trial.Arm) bool { return !a.Plain() }

// shapes: the first is silent, the second ends the server when it captures its graphs.
func (c *sglangCheck) shapes() {
	for _, a := range c.arms {
		k, own := a.Knobs, func(b trial.Arm) bool { return b.Name == a.Name }
		how, known := algorithms[algorithm(k.Drafter)]
		switch {
		case !k.Plain() && !known:
			c.add("impossible_draft", true, own, "there is no drafter %q for SGLang: want eagle3, ngram, eagle, nextn, standalone, dflash or dspark", k.Drafter)
		case k.Plain() || algorithm(k.Drafter) == ngram:
		case how.block && k.TopK != 1:
			c.add("impossible_draft", true, own, "%s drafts a block of tokens at once, which is a chain: topk must be 1", strings.ToLower(k.Drafter))
		case !how.tokens && k.TopK == 1 && k.DraftTokens != k.Steps+1 && k.Steps > 0:
			c.add("draft_tokens_rewritten", false, own, "SGLang would make %d draft tokens %d, steps + 1, because topk is 1, and only warn in its log: ask for that", k.DraftTokens, k.Steps+1)
		default:
			if words := shape(k); words != "" && how.block {
				c.add("impossible_draft", true, own, "%s", words)
			} else if words != "" {
				c.add("impossible_draft", true, own, "%s; SGLang says so only when it captures its graphs, as \"selected index k out of range\"", words)
			}
		}
	}
}

// refused are combinations with which no server comes up, or not as it was meant.
func (c *sglangCheck) refused() {
	tree := func(a trial.Arm) bool { return spec(a) && a.TopK > 1 }
	backend := func(a trial.Arm) string { b, _ := c.flag(a, "attention-backend"); return b }
	c.add("impossible_flags", true, func(a trial.Arm) bool { return tree(a) && backend(a) == "trtllm_mha" }, "the attention backend trtllm_mha supports topk 1 only")
	c.add("impossible_flags", true, func(a trial.Arm) bool {
		return tree(a) && c.number(a, "page-size", 1) > 1 && backend(a) != "" && !slices.Contains([]string{"flashinfer", "fa3", "triton"}, backend(a))
	}, "trees with pages of more than one token need the attention backend flashinfer, fa3 or (from 0.5.11) triton; 0.4.6 silently makes topk 1")
	c.add("impossible_flags", true, func(a trial.Arm) bool { return spec(a) && max(c.number(a, "pp-size", 1), c.number(a, "pp", 1)) > 1 },
		"SGLang does not speculate with pipeline parallelism")
	c.add("impossible_flags", true, func(a trial.Arm) bool {
		_, on := c.flag(a, "enable-dp-attention")
		return spec(a) && on && slices.Contains([]string{standalone, ngram, dflash}, algorithm(a.Drafter))
	}, "this drafter does not work with data-parallel attention")
	c.add("impossible_flags", true, func(a trial.Arm) bool {
		_, on := c.flag(a, "lora-paths")
		return spec(a) && on && algorithm(a.Drafter) != ngram
	}, "LoRA works with the drafter ngram only")
	c.add("flag_without_effect", true, func(a trial.Arm) bool {
		_, on := c.flag(a, adaptive)
		_, given := c.flag(a, adaptiveConfig)
		return given && !on
	}, "--%s does nothing without --%s", adaptiveConfig, adaptive)
	c.add("flag_rewritten", false, func(a trial.Arm) bool {
		_, on := c.flag(a, adaptive)
		return tree(a) && on
	}, "adaptive steps need topk 1: SGLang switches them off and only warns")
	c.add("flag_rewritten", false, func(a trial.Arm) bool {
		_, on := c.flag(a, "enable-mixed-chunk")
		return spec(a) && on
	}, "SGLang switches mixed chunks off when it speculates, and not when it decodes plainly")
	c.add("lossy", false, func(a trial.Arm) bool {
		return spec(a) && (c.number(a, "speculative-accept-threshold-single", 1) < 1 || c.number(a, "speculative-accept-threshold-acc", 1) < 1)
	}, "an acceptance threshold below 1 changes the output: a speed-up of this arm is not one of the same text")
}

// graphs are missing where an arm's batches are larger than those that were captured, or nothing was.
func (c *sglangCheck) graphs() {
	c.add("without_graphs", false, func(a trial.Arm) bool {
		_, off := c.flag(a, "disable-cuda-graph")
		most := min(c.number(a, "cuda-graph-max-bs", math.Inf(1)), c.number(a, "cuda-graph-max-bs-decode", math.Inf(1)))
		return spec(a) && (off || most < float64(c.c.AtOnce))
	}, "these servers decode %d requests at once without CUDA graphs (disable-cuda-graph, or a cuda-graph-max-bs below that): a cycle of speculation has several passes, and loses more by it than plain decoding", max(1, c.c.AtOnce))
}

// unequal is what SGLang decides differently for plain decoding and for speculation, or for chains and trees.
func (c *sglangCheck) unequal() {
	mixed := len(names(c.arms, spec)) > 0 && len(names(c.arms, trial.Arm.Plain)) > 0
	without := func(flag string) func(trial.Arm) bool {
		return func(a trial.Arm) bool { _, given := c.flag(a, flag); return !given }
	}
	if mixed {
		c.add("unequal_running_requests", false, func(a trial.Arm) bool { return spec(a) && without("max-running-requests")(a) },
			"SGLang limits running requests to 48 when it speculates, and to far more when it decodes plainly: set max-running-requests for all arms")
	}
	chains := len(names(c.arms, func(a trial.Arm) bool { return a.Plain() || a.TopK == 1 })) > 0
	if chains {
		c.add("unequal_attention_backend", false, func(a trial.Arm) bool { return spec(a) && a.TopK > 1 && without("attention-backend")(a) },
			"on Hopper and Blackwell SGLang chooses another attention backend for trees than for chains and plain decoding: set attention-backend for all arms")
	}
	if mixed && (c.version == version{} || c.version.before(0, 5, 11)) {
		c.add("unequal_overlap", false, func(a trial.Arm) bool {
			on, _ := c.variable(a, "SGLANG_ENABLE_SPEC_V2")
			return spec(a) && on != "1" && on != "true" && without("disable-overlap-schedule")(a)
		}, "before 0.5.11 SGLang schedules without overlap when it speculates, and with it when it decodes plainly: set disable-overlap-schedule for all arms, or SGLANG_ENABLE_SPEC_V2=1, to see speculation alone")
	}
	if mixed && !c.version.before(0, 5, 11) && c.version.before(0, 5, 14) {
		c.add("unequal_overlap", false, func(a trial.Arm) bool {
			return spec(a) && algorithm(a.Drafter) == dflash && without("disable-overlap-schedule")(a)
		}, "before 0.5.14 SGLang schedules without overlap when it drafts with DFLASH, and with it when it decodes plainly: set disable-overlap-schedule for all arms to see speculation alone")
	}
	for _, flag := range []string{"mem-fraction-static", "cuda-graph-max-bs"} {
		if values := c.values(flag); len(values) > 1 {
			c.add("unequal_memory", false, nil, "arms differ in %s (%s): so do the sizes of their key/value caches and graphs", flag, strings.Join(values, ", "))
		}
	}
}

// values are the different ones that arms have for a flag.
func (c *sglangCheck) values(flag string) (list []string) {
	for _, a := range c.arms {
		value, given := c.flag(a, flag)
		if !given {
			value = "unset"
		}
		if !slices.Contains(list, value) {
			list = append(list, value)
		}
	}
	return list
}

// versions are names that one version knows and another does not.
func (c *sglangCheck) versions() {
	has := func(name string) func(trial.Arm) bool {
		return func(a trial.Arm) bool { _, given := c.variable(a, name); return given }
	}
	hasFlag := func(name string) func(trial.Arm) bool {
		return func(a trial.Arm) bool { _, given := c.flag(a, name); return given }
	}
	if (c.version == version{}) {
		c.found = append(c.found, Finding{"version_unknown", "SGLang's version could not be found out beforehand: what depends on it is read back after the start", false, []string{}})
		return
	}
	if !c.version.before(0, 5, 14) {
		c.add("variable_ignored", false, has("SGLANG_ENABLE_SPEC_V2"), "SGLang %s does not read SGLANG_ENABLE_SPEC_V2 any more: it was removed in 0.5.14", c.version)
	}
	if c.version.before(0, 5, 0) {
		c.add("variable_ignored", false, has("SGLANG_SIMULATE_ACC_LEN"), "SGLang %s calls it SIMULATE_ACC_LEN", c.version)
	} else {
		c.add("variable_ignored", false, has("SIMULATE_ACC_LEN"), "SGLang %s calls it SGLANG_SIMULATE_ACC_LEN", c.version)
	}
	for _, f := range []struct {
		flag         string
		major, minor int
		patch        int
	}{
		{adaptive, 0, 5, 11}, {adaptiveConfig, 0, 5, 11}, {"speculative-use-rejection-sampling", 0, 5, 15},
		{"enable-forward-pass-metrics", 0, 5, 12}, {"cuda-graph-max-bs-decode", 0, 5, 14}, {"cuda-graph-bs-decode", 0, 5, 14},
	} {
		if c.version.before(f.major, f.minor, f.patch) {
			c.add("unknown_flag", true, hasFlag(f.flag), "SGLang %s does not know --%s: it came with %d.%d.%d", c.version, f.flag, f.major, f.minor, f.patch)
		}
	}
	if c.version.before(0, 5, 11) {
		c.found = append(c.found, Finding{"no_ledger", fmt.Sprintf("SGLang %s has no device timer by phase: cycles cannot be taken apart (0.5.11 can)", c.version), false, []string{}})
	}
	for _, name := range slices.Sorted(maps.Keys(algorithms)) {
		if came := algorithms[name].came; c.version.before(came[0], came[1], came[2]) {
			c.add("unknown_flag", true, func(a trial.Arm) bool { return spec(a) && algorithm(a.Drafter) == name },
				"SGLang %s does not know the drafter %s: it came with %s", c.version, strings.ToLower(name), came)
		}
	}
}

// simulated names arms whose text is none.
func (c *sglangCheck) simulated() {
	c.add("simulated_acceptance", false, func(a trial.Arm) bool {
		for _, name := range []string{"SGLANG_SIMULATE_ACC_LEN", "SIMULATE_ACC_LEN"} {
			if value, given := c.variable(a, name); given && value != "-1" && spec(a) {
				return true
			}
		}
		return false
	}, "acceptance is simulated: the cost of cycles is real, the text is not, and the speed-up is what it would be at that acceptance")
}

// checkProxy warns of a proxy for all addresses: SGLang sends its warm-up request to itself through it, and ends with "warmup error".
func checkProxy(e *engine, arms []trial.Arm) []Finding {
	if e.host.Name() != "" {
		return nil // a login elsewhere has an environment of its own
	}
	env := e.c.Environ
	if env == nil {
		env = os.Environ()
	}
	proxy, direct := false, false
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		switch strings.ToLower(name) {
		case "http_proxy", "all_proxy":
			proxy = proxy || value != ""
		case "no_proxy":
			direct = direct || value == "*" || strings.Contains(value, "127.0.0.1")
		}
	}
	if !proxy || direct || e.c.Env["no_proxy"] != "" {
		return nil
	}
	return []Finding{{"proxy", "the environment has a proxy for 127.0.0.1, too: SGLang would send its warm-up request through it and end; set no_proxy=127.0.0.1,localhost", false, names(arms, nil)}}
}

// checkNCCL says what is needed for NCCL to tell which of its variables it goes by.
func checkNCCL(c *Config, arms []trial.Arm) (found []Finding) {
	varied := func(a trial.Arm) bool {
		for name := range a.Env {
			if strings.HasPrefix(name, "NCCL_") && !strings.HasPrefix(name, "NCCL_DEBUG") {
				return true
			}
		}
		return false
	}
	value := func(a trial.Arm, name string) string {
		if v, given := a.Env[name]; given {
			return v
		}
		if v, given := c.Env[name]; given {
			return v
		}
		return c.inherited(name)
	}
	if of := names(arms, func(a trial.Arm) bool {
		return varied(a) && !slices.Contains([]string{"INFO", "TRACE"}, strings.ToUpper(value(a, "NCCL_DEBUG")))
	}); len(of) > 0 {
		found = append(found, Finding{"nccl_silent", "whether NCCL goes by these variables can be read from its log only: set NCCL_DEBUG=INFO for all arms, which costs time at the start alone", false, of})
	}
	return found
}

// version is three numbers, as in 0.5.11.
type version [3]int

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

func (v version) before(major, minor, patch int) bool {
	return slices.Compare(v[:], []int{major, minor, patch}) < 0
}

// parseVersion reads a version such as 0.5.3.post2 or 0.4.6rc1; zero if it is none.
func parseVersion(text string) (v version) {
	parts := strings.SplitN(strings.TrimSpace(text), ".", 4)
	for i := range min(len(parts), 3) {
		digits := strings.TrimLeft(parts[i], "0123456789")
		n, err := strconv.Atoi(strings.TrimSuffix(parts[i], digits))
		if err != nil {
			return version{}
		}
		v[i] = n
	}
	return v
}

// sglangVersion asks the Python that will run SGLang, which takes a tenth of a second, where importing SGLang would take ten.
func (e *engine) sglangVersion() version {
	python := e.c.Command[0]
	if !strings.HasPrefix(path.Base(python), "python") {
		return version{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	out, err := e.host.Output(ctx, python, "-c", "import importlib.metadata as m; print(m.version('sglang'))")
	if err != nil {
		return version{} // the start will say why
	}
	return parseVersion(string(out))
}
