package bench

import (
	"fmt"

	"draftlab/lab/client"
	"draftlab/lab/measure"
	"draftlab/lab/probe"
)

// doubt adds what the setting does to the figures and no row of them shows.
func (b *bench) doubt(s *measure.Summary) {
	add := func(format string, a ...any) { s.Warnings = append(s.Warnings, fmt.Sprintf(format, a...)) }
	if b.mark != 0 {
		add("the server did not empty its prefix cache, which may know the prompts from an earlier run: each has a mark of this run in front, so that outputs may differ from another run's (--repeat sends them as they are)")
	}
	if s.Acceptance == nil {
		if s.Output <= s.Completed {
			return // the prompts' passes gave all that there is
		}
		s.Speculation = "none seen"
		switch server := b.cfg.Server; {
		case server.Kind == probe.OpenAI:
			s.Speculation = "not told"
		case server.Kind == probe.SGLang && speculates(server.Info):
			s.Speculation = "not told"
			add("the server speculates (%v) and tells nothing of its drafts here: newer versions do in each answer, a server started with --enable-metrics in its counters, and any by --api generate, which has no chat template", server.Info[sglangAlgorithm])
		}
		return
	}
	if b.cfg.IgnoreEOS {
		add("the end of the text was ignored: what follows it is repetitive and easy to draft, so that drafts are accepted more than users' are")
	}
	if b.cfg.Turns && b.cfg.API != client.Chat {
		add("the prompts, which are turns of chats, went without the model's chat template: drafters are trained with it, so that drafts are accepted less than users' are (--api chat)")
	}
}

// sglangAlgorithm is the setting by which SGLang speculates, null if it does not.
const sglangAlgorithm = "speculative_algorithm"

func speculates(info map[string]any) bool {
	name, ok := info[sglangAlgorithm].(string)
	return ok && name != ""
}
