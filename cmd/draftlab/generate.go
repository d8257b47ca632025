package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"draftlab/engine"
	"draftlab/engine/sample"
	"draftlab/engine/tokenizer"
	"draftlab/internal/shell"
	"draftlab/internal/ui"
)

// maxPrompt bounds what is read from standard input, in bytes: above the longest text that fits the longest context
// in use, and little enough to be cut into tokens in some seconds.
const maxPrompt = 16 << 20

// generation is the JSON document of generate.
type generation struct {
	Model          string             `json:"model"`
	RandomWeights  bool               `json:"random_weights"`
	Text           string             `json:"text"`
	PromptTokenIDs []int32            `json:"prompt_token_ids"`
	TokenIDs       []int32            `json:"token_ids"`
	FinishReason   string             `json:"finish_reason"`
	Usage          generationUsage    `json:"usage"`
	Timing         generationTiming   `json:"timing"`
	Spec           *generationSpec    `json:"spec,omitempty"` // if it speculated
	Config         generationSettings `json:"settings"`
}

// generationSpec is what drafts were worth. The accept length is 1 + accepted/cycles: the target's own token of each cycle
// counts, the one that the prompt gave does not.
type generationSpec struct {
	Drafter         string  `json:"drafter"`
	Steps           int     `json:"steps"`
	TopK            int     `json:"topk"`
	DraftTokens     int     `json:"draft_tokens"`
	Rule            string  `json:"rule"`
	Cycles          int64   `json:"cycles"`
	Drafted         int64   `json:"drafted"`
	Accepted        int64   `json:"accepted"`
	AcceptLength    float64 `json:"accept_length"`
	AcceptHistogram []int64 `json:"accept_histogram"` // cycles that accepted 0, 1, 2, … drafted tokens
	// Simulated is the accept length that was simulated: then the text means nothing. It is left out where acceptance is real.
	Simulated float64 `json:"simulated_accept_length,omitempty"`
}

type generationUsage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

type generationTiming struct {
	LoadMS      float64 `json:"load_ms"`       // fetching apart
	TTFTMS      float64 `json:"ttft_ms"`       // from the request to the first token
	DecodeTokS  float64 `json:"decode_tok_s"`  // after the first token; 0 if there is no second
	PrefillTokS float64 `json:"prefill_tok_s"` // prompt tokens
}

type generationSettings struct {
	Threads     int     `json:"threads"`
	ISA         string  `json:"isa"`
	MaxTokens   int     `json:"max_tokens"`
	Temperature float64 `json:"temperature"`
	Seed        uint64  `json:"seed"`
	Raw         bool    `json:"raw"`
	Context     int     `json:"context"`
}

// generateFlags are the command line of generate.
type generateFlags struct {
	modelFlags
	draftFlags
	maxTokens, context int
	raw                bool
	sampling           sample.Params
}

func newGenerate(env *Env) *cobra.Command {
	f := generateFlags{sampling: sample.Defaults()}
	cmd := &cobra.Command{
		Use:   "generate PROMPT | -",
		Short: "Write text with a model",
		Long: `Generate continues a prompt and streams the text to standard output; speed goes to standard error.

The prompt is put into the model's chat template as the user's turn, or taken as it is with --raw. In a chat, text
that spells one of the model's control tokens is that token, as with other programs. "-" reads the prompt from
standard input; a line end at its end is dropped unless --raw is given. Decoding is greedy unless --temperature is
above 0; then the text depends on --seed alone, not on threads or machine load.

A random model has no tokenizer: PROMPT is the number of prompt tokens, and the output is token ids.

The JSON document is {"model", "text", "prompt_token_ids", "token_ids", "finish_reason", "usage", "timing", …}, with
"finish_reason" "stop" if the model ended its text and "length" if --max-tokens or the context did.` + randomHelp + draftHelp + exitHelp,
		Example: `  draftlab generate "Why is the sky blue?"
  draftlab generate --raw --max-tokens 40 "def fibonacci(n):"
  draftlab generate --temperature 0.8 --top-p 0.95 --seed 7 "Write a haiku about rain."
  git diff | draftlab generate - --json
  draftlab generate --model random:llama-3.2-1b-q4_0 --max-tokens 32 512`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(cmd, "generate takes one PROMPT, not %d arguments (quote a prompt of several words; - reads standard input)", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runGenerate(env, cmd, &f, args[0]) },
	}
	f.modelFlags.register(env, cmd)
	f.draftFlags.register(cmd)
	fl := cmd.Flags()
	fl.IntVar(&f.maxTokens, "max-tokens", 256, "stop after `N` tokens")
	fl.IntVar(&f.context, "context", 0, "reserve memory for `N` tokens of prompt and output; 0 is the model's limit")
	fl.BoolVar(&f.raw, "raw", false, "continue the prompt as it is, without the chat template")
	fl.Float64Var(&f.sampling.Temperature, "temperature", f.sampling.Temperature, "divide logits by `T` and sample; 0 takes the best token")
	fl.Uint64Var(&f.sampling.Seed, "seed", 0, "sample with this `SEED`; it also seeds a random model's weights")
	fl.IntVar(&f.sampling.TopK, "top-k", 0, "sample from the `K` best tokens; 0 is all")
	fl.Float64Var(&f.sampling.TopP, "top-p", f.sampling.TopP, "sample from the best tokens that sum to probability `P`")
	fl.Float64Var(&f.sampling.MinP, "min-p", 0, "drop tokens less probable than `P` times the best")
	fl.Float64Var(&f.sampling.RepetitionPenalty, "repetition-penalty", f.sampling.RepetitionPenalty, "divide positive logits of tokens seen by `X`, multiply negative ones")
	fl.Float64Var(&f.sampling.PresencePenalty, "presence-penalty", 0, "subtract `X` from logits of tokens in the output")
	fl.Float64Var(&f.sampling.FrequencyPenalty, "frequency-penalty", 0, "subtract `X` from logits for each time a token is in the output")
	return cmd
}

func runGenerate(env *Env, cmd *cobra.Command, f *generateFlags, prompt string) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	text, err := readPrompt(cmd.Context(), env, f, prompt)
	if err != nil {
		return err
	}
	opt := engine.Options{Context: f.context, Seed: f.sampling.Seed}
	if err := f.apply(env, cmd, f.model, &opt); err != nil {
		return err
	}
	start := time.Now()
	e, err := f.open(cmd.Context(), env, cmd, opt)
	if err != nil {
		return err
	}
	defer e.Close()
	load := time.Since(start)
	req := engine.Request{MaxTokens: f.maxTokens, Sampling: f.sampling}
	err = interruptible(cmd.Context(), func() (err error) {
		req.Prompt, err = promptIDs(e, f, text)
		return err
	})
	if err != nil {
		return err
	}
	out := newOutput(env, e.Tokenizer(), wantsJSON(cmd))
	if tok := e.Tokenizer(); tok != nil {
		req.Stop = tok.IsEOG
	}
	res, err := e.Generate(cmd.Context(), req, func(t engine.Token) error { return out.emit(t.ID) })
	if err := cmp.Or(err, out.finish()); err != nil {
		return contextHint(err, e)
	}
	doc := newGeneration(e, f, &req, &res, load, out.text.String())
	if wantsJSON(cmd) {
		return ui.JSON(env.Stdout, doc)
	}
	doc.printSpeed(env.Stderr)
	if res.Simulated != 0 {
		fmt.Fprintln(env.Stderr, "note: "+simulationNote(res.Simulated))
	}
	return nil
}

// check refuses values that can be told to be wrong without a model.
func (f *generateFlags) check(cmd *cobra.Command) error {
	if f.maxTokens < 1 {
		return usage(cmd, "--max-tokens %d: at least 1 is needed", f.maxTokens)
	}
	if f.context < 0 {
		return usage(cmd, "--context %d: want 1 or more, or 0 for the model's limit", f.context)
	}
	if err := f.sampling.Validate(); err != nil {
		field, problem, _ := strings.Cut(err.Error(), " ")
		return usage(cmd, "--%s %s", strings.ReplaceAll(field, "_", "-"), problem)
	}
	if f.rule == string(engine.RuleB) && f.sampling.Temperature == 0 {
		return usage(cmd, "--rule b: greedy decoding is the same under both rules; give a --temperature above 0")
	}
	return nil
}

// printSpeed writes the line of figures for people.
func (g *generation) printSpeed(w io.Writer) {
	fmt.Fprintf(w, "prompt tokens: %d at %.0f tok/s, first token after %.0f ms; output tokens: %d",
		g.Usage.PromptTokens, g.Timing.PrefillTokS, g.Timing.TTFTMS, g.Usage.CompletionTokens)
	if g.Timing.DecodeTokS > 0 {
		fmt.Fprintf(w, " at %.1f tok/s", g.Timing.DecodeTokS)
	}
	fmt.Fprintf(w, " (%s)\n", g.FinishReason)
}

// readPrompt returns the prompt's text, from standard input if it is "-".
func readPrompt(ctx context.Context, env *Env, f *generateFlags, prompt string) (string, error) {
	if prompt == "-" {
		var data []byte
		err := interruptible(ctx, func() (err error) { // a terminal may never end
			data, err = io.ReadAll(io.LimitReader(env.Stdin, maxPrompt+1))
			return err
		})
		if err != nil {
			return "", fmt.Errorf("reading the prompt from standard input: %w", err)
		}
		if len(data) > maxPrompt {
			return "", fmt.Errorf("the prompt on standard input is longer than %s", ui.Bytes(maxPrompt))
		}
		prompt = string(data)
		if !f.raw {
			prompt = strings.TrimSuffix(strings.TrimSuffix(prompt, "\n"), "\r")
		}
	}
	if !utf8.ValidString(prompt) {
		return "", withHint("the prompt is not valid UTF-8", "convert it first, for example with iconv")
	}
	if prompt == "" {
		return "", withHint("the prompt is empty", `say something: draftlab generate "Why is the sky blue?"`)
	}
	return prompt, nil
}

// promptIDs turns the prompt into token ids: through the chat template, as it is, or (for a random model) by its length.
func promptIDs(e *engine.Engine, f *generateFlags, text string) ([]int32, error) {
	tok := e.Tokenizer()
	if tok == nil {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > e.Context() {
			return nil, withHint(fmt.Sprintf("prompt %q: a random model takes the number of prompt tokens, 1 to %d", ui.Clean(text), e.Context()),
				"for example draftlab generate --model "+shell.Quote(f.model)+" 512")
		}
		return randomPrompt(n, e.Model().Config().Vocab), nil
	}
	if f.raw {
		return tok.Encode(text, tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: true})
	}
	ids, err := tok.EncodeChat([]tokenizer.Message{{Role: "user", Content: text}}, tokenizer.ChatOptions{AddGenerationPrompt: true})
	if errors.Is(err, tokenizer.ErrNoChatTemplate) {
		return nil, withHint("the model has no chat template", "use --raw to continue the prompt as it is")
	}
	return ids, err
}

// randomPrompt spreads n ids over a vocabulary.
func randomPrompt(n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((i*7919 + 1) % vocab)
	}
	return ids
}

// contextHint adds the remedy to an error about the context.
func contextHint(err error, e *engine.Engine) error {
	if errors.Is(err, engine.ErrContext) {
		limit := e.Model().Config().MaxContext
		if e.Context() < limit {
			return withHint(err.Error(), fmt.Sprintf("raise --context; the model's limit is %d", limit))
		}
		return withHint(err.Error(), "the context is the model's limit: shorten the prompt")
	}
	return err
}

// output streams tokens as text (or as ids) and keeps the whole text.
type output struct {
	w      io.Writer // nil: keep only
	clean  bool      // the reader is a terminal
	stream *tokenizer.Stream
	text   strings.Builder
	count  int
}

func newOutput(env *Env, tok *tokenizer.Tokenizer, quiet bool) *output {
	o := &output{}
	if tok != nil {
		o.stream = tok.NewStream(true)
	}
	if !quiet {
		o.w, o.clean = env.Stdout, env.IsTerminal(env.Stdout)
	}
	return o
}

// emit takes one token.
func (o *output) emit(id int32) error {
	o.count++
	if o.stream == nil {
		sep := " "
		if o.count == 1 {
			sep = ""
		}
		return o.write(sep + strconv.Itoa(int(id)))
	}
	return o.write(o.stream.Push(id))
}

func (o *output) write(s string) error {
	if o.stream != nil {
		o.text.WriteString(s)
	}
	if o.w == nil || s == "" {
		return nil
	}
	if o.clean {
		s = strings.Map(func(r rune) rune {
			if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
				return utf8.RuneError // a model must not steer the terminal
			}
			return r
		}, s)
	}
	_, err := io.WriteString(o.w, s)
	return err
}

// finish writes what the detokenizer still holds, and a line end for people.
func (o *output) finish() error {
	if o.stream != nil {
		if err := o.write(o.stream.Flush()); err != nil {
			return err
		}
	}
	if o.w == nil || o.count == 0 {
		return nil
	}
	_, err := io.WriteString(o.w, "\n")
	return err
}

// newGeneration makes the JSON document.
func newGeneration(e *engine.Engine, f *generateFlags, req *engine.Request, res *engine.Result, load time.Duration, text string) *generation {
	info := e.Device().Info()
	g := &generation{
		Model: f.model, RandomWeights: e.Tokenizer() == nil, Text: text,
		PromptTokenIDs: req.Prompt, TokenIDs: res.IDs(), FinishReason: string(res.Finish),
		Usage: generationUsage{len(req.Prompt), len(res.Tokens), len(req.Prompt) + len(res.Tokens)},
		Timing: generationTiming{
			LoadMS: ms(load), TTFTMS: ms(res.First), PrefillTokS: perSecond(len(req.Prompt), res.Prefill), DecodeTokS: perSecond(len(res.Tokens)-1, res.Decode),
		},
		Config: generationSettings{
			Threads: info.Threads, ISA: info.ISA, MaxTokens: f.maxTokens, Temperature: f.sampling.Temperature,
			Seed: f.sampling.Seed, Raw: f.raw, Context: e.Context(),
		},
	}
	if g.TokenIDs == nil {
		g.TokenIDs = []int32{}
	}
	if spec := e.Options().Spec; spec.Drafter != engine.DraftNone {
		d := &res.Draft
		g.Spec = &generationSpec{
			Drafter: string(spec.Drafter), Steps: spec.Shape.Steps, TopK: spec.Shape.TopK, DraftTokens: spec.Shape.DraftTokens,
			Rule: string(spec.Rule), Cycles: d.Cycles, Drafted: d.Drafted, Accepted: d.Accepted, AcceptLength: d.AcceptLength(),
			AcceptHistogram: d.AppendHistogram([]int64{}), Simulated: res.Simulated,
		}
	}
	return g
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

// perSecond is n over d, 0 if nothing was done.
func perSecond(n int, d time.Duration) float64 {
	if n <= 0 || d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
