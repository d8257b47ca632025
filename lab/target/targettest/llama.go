//go:build unix

package targettest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// llamaVariable makes the test's binary a server of llama.cpp's.
const llamaVariable = "DRAFTLAB_STAND_IN_LLAMA"

// Llama returns the command of a server that plays llama.cpp's: its flags, its log, its /props and its answers, with the
// text of the SGLang that [Script] plays.
func Llama(t testing.TB) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	server := filepath.Join(t.TempDir(), "llama-server")
	if err := writeProgram(server, []byte(fmt.Sprintf("#!/bin/sh\nexport %s=1\nexec '%s' \"$@\"\n", llamaVariable, self))); err != nil {
		t.Fatal(err)
	}
	return []string{server}
}

// llamaFlags are those that tests use, as llama.cpp takes them: each has a value.
var llamaFlags = map[string]bool{"--model": true, "--host": true, "--port": true, "-np": true, "-c": true, "-t": true, "--spec-draft-model": true,
	"--spec-type": true, "--spec-draft-n-max": true, "--spec-ngram-simple-size-m": true}

// playLlama is the program.
func playLlama(argv []string) int {
	args := map[string]string{"-np": "4"}
	for i := 0; i < len(argv); i += 2 {
		if !llamaFlags[argv[i]] || i+1 == len(argv) {
			fmt.Fprintf(os.Stderr, "error: invalid argument: %s\n", argv[i])
			return 1
		}
		args[argv[i]] = argv[i+1]
	}
	log := func(format string, a ...any) { fmt.Fprintf(os.Stderr, "0.00.041.855 "+format+"\n", a...) }
	log("I srv    load_model: loading model '%s'", args["--model"])
	if d := args["--spec-draft-model"]; filepath.IsAbs(d) {
		if _, err := os.Stat(d); err != nil {
			log("E gguf_init_from_file: failed to open GGUF file '%s' (No such file or directory)", d)
			log("E srv  llama_server: exiting due to model loading error")
			return 1
		}
	}
	l, err := net.Listen("tcp", net.JoinHostPort(args["--host"], args["--port"]))
	if err != nil {
		log("E srv start: couldn't bind HTTP server socket, hostname: %s, port: %s", args["--host"], args["--port"])
		return 1
	}
	s := &standIn{Script: &Script{Version: "llama.cpp", Speed: 1, Ranks: 1, Plain: time.Millisecond, Verify: time.Millisecond, Draft: 100 * time.Microsecond, Accept: 0.6}}
	s.llama(args)
	go func() { panic(http.Serve(l, s.llamaRoutes(args))) }()
	log("I srv  llama_server: model loaded")
	log("I srv  llama_server: listening on http://%s:%s", args["--host"], args["--port"])
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	<-asked
	log("I srv    operator(): operator(): cleaning up before exit...")
	return 0
}

// llama says in SGLang's flags how the server drafts.
func (s *standIn) llama(args map[string]string) {
	defer func() { s.args["api_key"] = os.Getenv("LLAMA_API_KEY") }()
	depth, _ := strconv.Atoi(args["--spec-draft-n-max"] + args["--spec-ngram-simple-size-m"]) // one of them; none is 0
	s.args = map[string]string{"speculative_algorithm": "null"}
	if args["--spec-type"] != "" {
		s.args = map[string]string{"speculative_algorithm": args["--spec-type"], "speculative_num_steps": strconv.Itoa(depth), "speculative_num_draft_tokens": strconv.Itoa(depth + 1)}
	}
}

func (s *standIn) llamaRoutes(args map[string]string) http.Handler {
	mux := http.NewServeMux()
	var asked atomic.Int64
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			reply(w, map[string]any{"error": map[string]any{"code": 503, "message": "Loading model"}})
		}
	})
	mux.HandleFunc("GET /props", func(w http.ResponseWriter, _ *http.Request) {
		slots, _ := strconv.Atoi(args["-np"])
		reply(w, map[string]any{"total_slots": slots, "model_path": args["--model"], "build_info": "b1-stand-in", "default_generation_settings": map[string]any{}})
	})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"data": []any{map[string]any{"id": args["--model"]}}})
	})
	for _, path := range []string{"/v1/completions", "/v1/chat/completions"} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, path) })
	}
	return mux
}

// timings are what llama.cpp tells of an answer.
func (o *stream) timings(depth int) json.RawMessage {
	t := map[string]any{"predicted_n": o.tokens}
	if depth > 0 {
		t["draft_n"], t["draft_n_accepted"] = depth*o.cycles, o.tokens-1-o.cycles
	}
	text, err := json.Marshal(t)
	if err != nil {
		panic(err)
	}
	return text
}

// isLlama reports a stream of llama.cpp's.
func (o *stream) isLlama() bool { return strings.HasPrefix(o.version, "llama") }
