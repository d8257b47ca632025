package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"draftlab/internal/ui"
	"draftlab/lab/selfcheck"
)

func newBenchMock(env *Env) *cobra.Command {
	var host, out string
	var port, tokens int
	var first, gap time.Duration
	cmd := &cobra.Command{
		Use:   "mock",
		Short: "Serve answers whose times are known, to measure load generators with",
		Long: `Mock listens as a server with OpenAI's API and streams answers that say nothing: the first token of each comes
--first after the request, the others at intervals of --gap, as many as the request wants (max_tokens,
max_completion_tokens). It runs no model. Any load generator can be held to it: what the generator reports of
such a server is known, and so, from when requests arrived, is how well it keeps its own schedule.

With --out it writes a line of JSON for each answer: "arrived_unix_ns" is when the last byte of the request
came, by the kernel's account where there is one, "first_ns" and "last_ns" when its first and last token were
really written, counted from there, "tokens" how many. It prints its address (JSON: "url") and runs until it is
interrupted, which is its regular end.` + exitHelp,
		Example: `  draftlab bench mock --port 8000 --first 50ms --gap 20ms --out arrivals.jsonl`,
		Args:    atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if first < 0 || gap < 0 || tokens < 1 {
				return usage(cmd, "--first %v, --gap %v, --output-len %d: want times of at least 0 and at least 1 token", first, gap, tokens)
			}
			fineTime(env)
			addr := net.JoinHostPort(host, strconv.Itoa(port))
			return serveMock(env, cmd, addr, selfcheck.Timing{First: first, Gap: gap, Tokens: tokens}, out)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&host, "host", "127.0.0.1", "listen on this `ADDRESS`")
	fl.IntVar(&port, "port", 0, "listen on this `PORT`; 0 is any free one, which is printed")
	fl.DurationVar(&first, "first", 50*time.Millisecond, "`TIME` from a request to its first token")
	fl.DurationVar(&gap, "gap", 20*time.Millisecond, "`TIME` between tokens")
	fl.IntVar(&tokens, "output-len", 128, "an output has `N` tokens unless the request says how many")
	fl.StringVar(&out, "out", "", "write a line of JSON for each answer to `FILE`")
	return cmd
}

// serveMock runs a mock until it is interrupted.
func serveMock(env *Env, cmd *cobra.Command, addr string, t selfcheck.Timing, out string) (err error) {
	told := func(selfcheck.Answer) {}
	if out != "" {
		f, openErr := os.Create(out)
		if openErr != nil {
			return openErr
		}
		w := &answerFile{w: bufio.NewWriter(f)}
		defer func() { err = errors.Join(err, w.err, w.w.Flush(), f.Close()) }()
		told = w.add
	}
	m, err := selfcheck.NewMock(addr, t, told)
	if err != nil {
		return withHint(err.Error(), "--port 0 takes any free port")
	}
	defer m.Close()
	if wantsJSON(cmd) {
		err = ui.JSON(env.Stdout, map[string]string{"url": m.URL})
	} else {
		_, err = fmt.Fprintln(env.Stdout, m.URL)
	}
	if err != nil {
		return err
	}
	<-cmd.Context().Done()
	return nil
}

// answerFile writes a line for each answer of a mock and keeps the first error. It is buffered, since one goroutine writes both.
type answerFile struct {
	w   *bufio.Writer
	n   int64
	err error
}

func (f *answerFile) add(a selfcheck.Answer) {
	if f.err != nil {
		return
	}
	line, err := json.Marshal(struct {
		N       int64 `json:"n"` // in the order in which answers ended
		Arrived int64 `json:"arrived_unix_ns"`
		First   int64 `json:"first_ns"`
		Last    int64 `json:"last_ns"`
		Tokens  int   `json:"tokens"`
	}{f.n, a.Arrived.UnixNano(), a.First.Nanoseconds(), a.Last.Nanoseconds(), a.Tokens})
	if err == nil {
		_, err = f.w.Write(append(line, '\n'))
	}
	f.n++
	f.err = err
}
