//go:build unix

package targettest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// standIn is a server that plays.
type standIn struct {
	*Script
	args  map[string]string // flags, with underscores, in the order-free form of ServerArgs
	mu    sync.Mutex        // of the log
	ranks []*exec.Cmd
	engine
}

// play is the program: Python's -c for the version, or the launcher.
func play(script *Script, argv []string) int {
	if len(argv) == 2 && argv[0] == "-c" {
		fmt.Println(script.Version)
		return 0
	}
	if script.Fault == Wrapper {
		return wrap(argv)
	}
	if len(argv) >= 2 && argv[0] == "-m" {
		argv = argv[2:]
	}
	s := &standIn{Script: script}
	s.settle()
	if script.Fault == Deaf {
		signal.Ignore(syscall.SIGTERM)
	}
	if script.Version != Old {
		argv = readConfig(argv)
	}
	if status := s.parse(argv); status != 0 {
		return status
	}
	s.rewrite()
	s.wire()
	defer s.endRanks()
	if status, ended := s.load(); ended {
		return status
	}
	return s.serve()
}

// settle has the fault only in the first server, if it shows once, and the times those of the environment.
func (s *standIn) settle() {
	if s.Once != "" {
		f, err := os.OpenFile(s.Once, os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			s.Fault = ""
		}
		_ = f.Close() // nil if it is there
	}
	for _, e := range s.Effects {
		if name, value, _ := strings.Cut(e.Variable, "="); os.Getenv(name) == value {
			s.Plain = time.Duration(float64(s.Plain) * e.Plain)
			s.Verify, s.Row = time.Duration(float64(s.Verify)*e.Verify), time.Duration(float64(s.Row)*e.Verify)
		}
	}
}

// wire looks which layers the drafter is told to listen to.
func (s *standIn) wire() {
	text, err := os.ReadFile(filepath.Join(s.args["speculative_draft_model_path"], "config.json"))
	if err != nil || s.Layers == nil {
		return // no drafter on this machine
	}
	var config struct {
		Eagle struct {
			Layers []int `json:"eagle_aux_hidden_state_layer_ids"`
		} `json:"eagle_config"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		panic(err)
	}
	if !slices.Equal(config.Eagle.Layers, s.Layers) {
		s.Accept /= 3
	}
}

// wrap starts the launcher in a session of its own and waits for it.
func wrap(argv []string) int {
	cmd := exec.Command(os.Args[0], argv...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	text := strings.Replace(os.Getenv(variable), string(Wrapper), "", 1)
	cmd.Env = append(os.Environ(), variable+"="+text)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Run(); err != nil {
		return 1
	}
	return 0
}

// readConfig puts the flags of a file in the place of its name, as SGLang does from 0.5.3 on. The files of tests are JSON.
func readConfig(argv []string) []string {
	i := slices.Index(argv, "--config")
	if i < 0 {
		return argv
	}
	text, err := os.ReadFile(argv[i+1])
	if err != nil || filepath.Ext(argv[i+1]) != ".yaml" {
		panic(fmt.Sprintf("config file %s: %v", argv[i+1], err))
	}
	var flags map[string]string
	if err := json.Unmarshal(text, &flags); err != nil {
		panic(err)
	}
	argv = slices.Delete(slices.Clone(argv), i, i+2)
	for name, value := range flags {
		argv = append(argv, "--"+name, value)
	}
	return argv
}

// known are the flags of the versions that are replayed, as far as tests use them; with or without a value.
var known = map[string]bool{
	"model_path": true, "host": true, "port": true, "enable_metrics": false, "speculative_algorithm": true, "speculative_draft_model_path": true,
	"speculative_num_steps": true, "speculative_eagle_topk": true, "speculative_num_draft_tokens": true, "speculative_dspark_block_size": true, "attention_backend": true,
	"max_running_requests": true, "mem_fraction_static": true, "disable_overlap_schedule": false, "api_key": true, "admin_api_key": true, "tp_size": true,
	"disable_cuda_graph": false, "cuda_graph_max_bs": true, "speculative_adaptive": false, "speculative_adaptive_config": true,
}

// parse reads flags as argparse does.
func (s *standIn) parse(argv []string) int {
	s.args = map[string]string{"max_running_requests": "null", "attention_backend": "null", "speculative_algorithm": "null"}
	for i := 0; i < len(argv); i++ {
		name, value, has := strings.Cut(strings.TrimPrefix(argv[i], "--"), "=")
		key := strings.ReplaceAll(name, "-", "_")
		takes, ok := known[key]
		if !ok || !strings.HasPrefix(argv[i], "--") {
			fmt.Fprintf(os.Stderr, "usage: launch_server.py [-h] --model-path MODEL_PATH\nlaunch_server.py: error: unrecognized arguments: %s\n", argv[i])
			return 2
		}
		if takes && !has {
			if i++; i == len(argv) {
				fmt.Fprintf(os.Stderr, "launch_server.py: error: argument --%s: expected one argument\n", name)
				return 2
			}
			value = argv[i]
		}
		if !takes {
			value = "true"
		}
		s.args[key] = value
	}
	return 0
}

func (s *standIn) number(key string) int {
	n, _ := strconv.Atoi(s.args[key]) // "null" is 0
	return n
}

// say writes a line of the log, of a rank or of the launcher (-1).
func (s *standIn) say(rank int, format string, args ...any) {
	tag := ""
	if rank >= 0 && (s.Ranks > 1 || s.Version == Old) {
		tag = fmt.Sprintf(" TP%d", rank)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(os.Stderr, "[%s%s] %s\n", time.Now().Format("2006-01-02 15:04:05"), tag, fmt.Sprintf(format, args...))
}

// rewrite does silently what SGLang does.
func (s *standIn) rewrite() {
	if s.args["speculative_algorithm"] == "NEXTN" {
		s.args["speculative_algorithm"] = "EAGLE"
	}
	if algorithm := s.args["speculative_algorithm"]; algorithm != "null" {
		if algorithm == "DFLASH" || algorithm == "DSPARK" {
			s.args["speculative_num_steps"], s.args["speculative_eagle_topk"] = "1", "1" // whatever it was told
		} else if steps := s.number("speculative_num_steps"); s.number("speculative_eagle_topk") == 1 && s.number("speculative_num_draft_tokens") != steps+1 {
			s.say(-1, "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1")
			s.args["speculative_num_draft_tokens"] = strconv.Itoa(steps + 1)
		}
		if s.args["max_running_requests"] == "null" {
			s.say(-1, "Max running requests is reset to 48 for speculative decoding. You can override this by explicitly setting --max-running-requests.")
			s.args["max_running_requests"] = "48"
		}
	}
	if s.args["attention_backend"] == "null" {
		s.args["attention_backend"] = "fa3"
		if s.number("speculative_eagle_topk") > 1 {
			s.args["attention_backend"] = "flashinfer"
		}
	}
	s.say(-1, "server_args=ServerArgs(model_path='%s', port=%s, host='127.0.0.1', attention_backend='%s', api_key='%s')", s.args["model_path"], s.args["port"], s.args["attention_backend"], s.args["api_key"])
}

// rest waits for a part of the load.
func (s *standIn) rest(part float64) {
	time.Sleep(time.Duration(part * float64(s.Load) / s.Speed))
}

// await waits for the file that the script names.
func (s *standIn) await() {
	for s.Await != "" {
		if _, err := os.Stat(s.Await); err == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// missingDrafter is what the hub's library makes of a path that is not there.
const missingDrafter = `Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/sglang/srt/utils/hf_transformers_utils.py", line 131, in get_config
    config = AutoConfig.from_pretrained(model, trust_remote_code=trust_remote_code)
huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '%s'. Use ` + "`repo_type`" + ` argument if needed.

`

// load replays the start-up, which may end with a status.
func (s *standIn) load() (status int, ended bool) {
	if err := s.startRanks(); err != nil {
		panic(err)
	}
	for rank := range s.Ranks {
		s.say(rank, "Init torch distributed begin.")
	}
	s.rest(0.05)
	s.say(0, "Load weight begin. avail mem=94.00 GB")
	if d := s.args["speculative_draft_model_path"]; filepath.IsAbs(d) {
		if _, err := os.Stat(d); err != nil {
			s.say(0, "Scheduler hit an exception: "+missingDrafter, d)
			return s.sigquit(), true
		}
	}
	for shard := range 8 {
		fmt.Fprintf(os.Stderr, "\rLoading safetensors checkpoint shards:  %d%% Completed | %d/8 [00:0%d<00:01,  1.2it/s]", 100*shard/8, shard, shard)
		s.rest(0.09)
		if shard == 3 {
			if status, ended := s.fails(); ended {
				return status, true
			}
		}
	}
	s.await()
	fmt.Fprintln(os.Stderr)
	s.say(0, "Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=79.00 GB, mem usage=15.00 GB.")
	s.say(0, "KV Cache is allocated. #tokens: 445000, K size: 20.00 GB, V size: 20.00 GB")
	s.graphs()
	s.say(0, "max_total_num_tokens=445000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=%s, context_len=131072", s.args["max_running_requests"])
	return 0, false
}

// graphs captures, which ends for a tree that is too large.
func (s *standIn) graphs() {
	if s.Version == New {
		s.say(0, "Capture target decode CUDA graph begin. avail_mem=30.00 GB")
		s.rest(0.2)
		s.say(0, "Capture target decode CUDA graph end. elapsed=12.40 s, mem usage=0.31 GB")
		return
	}
	s.say(0, "Capture cuda graph begin. This can take up to several minutes. avail mem=30.00 GB")
	s.rest(0.2)
	s.say(0, "Capture cuda graph end. Time elapsed: 12.40 s. mem usage=0.31 GB. avail mem=29.69 GB.")
}

// fails plays the faults of loading.
func (s *standIn) fails() (status int, ended bool) {
	switch s.Fault {
	case CUDAMemory:
		s.say(0, "Scheduler hit an exception: Traceback (most recent call last):\n  File \"scheduler.py\", line 2216, in run_scheduler_process\n"+
			"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.20 GiB is free.\n")
		return s.sigquit(), true
	case Killed:
		_ = s.ranks[0].Process.Kill() // it lives
		_ = s.ranks[0].Wait()
		s.ranks = s.ranks[1:]
		if s.Version == New {
			s.say(-1, "Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a common cause is the OS OOM killer.")
		} else {
			s.say(-1, "Rank 0 scheduler is dead. Please check if there are relevant logs.")
			s.say(-1, "Exit code: -9")
		}
		return 1, true
	case KilledWhole:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case HangsLoading:
		hang()
	case Unnoticed:
		s.say(0, "Scheduler hit an exception: Traceback (most recent call last):\nRuntimeError: selected index k out of range\n")
		hang()
	case QuietEnd:
		return 0, true
	}
	return 0, false
}

// sigquit is how SGLang's launcher ends when a rank fails.
func (s *standIn) sigquit() int {
	s.say(-1, "Received sigquit from a child process. It usually means the child failed.")
	return 131
}

// startRanks starts a process for each rank, with the title that SGLang gives it.
func (s *standIn) startRanks() error {
	for rank := range s.Ranks {
		cmd := exec.Command(os.Args[0])
		cmd.Args = []string{fmt.Sprintf("sglang::scheduler_TP%d", rank)}
		cmd.Env = append(os.Environ(), rankVariable+"="+strconv.Itoa(rank))
		if s.Fault == Overwrites && !slices.Contains(cmd.Env, "SPT_NOENV=1") {
			cmd.Env = []string{variable + "=rank", rankVariable + "=" + strconv.Itoa(rank)}
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		s.ranks = append(s.ranks, cmd)
	}
	return nil
}

func (s *standIn) endRanks() {
	for _, r := range s.ranks {
		_ = r.Process.Kill() // if it lives
		_ = r.Wait()
	}
}

// playRank is a rank: it says what NCCL says, and waits to be ended.
func playRank(rank string) {
	if strings.EqualFold(os.Getenv("NCCL_DEBUG"), "INFO") {
		pid, log := os.Getpid(), ncclLog()
		for _, v := range os.Environ() {
			name, value, _ := strings.Cut(v, "=")
			switch {
			case name == "NCCL_PROTO" && !slices.Contains([]string{"LL", "LL128", "Simple"}, value):
				fmt.Fprintf(log, "gpu-7:%d:%d [%s] NCCL INFO NCCL_PROTO set by environment to %s\n", pid, pid, rank, value)
				fmt.Fprintf(log, "[2026-03-01 10:00:00] gpu-7:%d:%d [%s] graph/tuning.cc:109 NCCL WARN Unrecognized element token \"%s\" when parsing \"%s\"\n", pid, pid, rank, value, value)
			case slices.Contains([]string{"NCCL_PROTO", "NCCL_ALGO", "NCCL_P2P_LEVEL"}, name):
				fmt.Fprintf(log, "gpu-7:%d:%d [%s] NCCL INFO %s set by environment to %s\n", pid, pid, rank, name, value)
			case name == "NCCL_NTHREADS":
				fmt.Fprintf(log, "gpu-7:%d:%d [%s] NCCL INFO %s set by environment to %s.\n", pid, pid, rank, name, value)
			}
		}
	}
	hang()
}

// ncclLog is where NCCL writes.
func ncclLog() io.Writer {
	name := os.Getenv("NCCL_DEBUG_FILE")
	if name == "" {
		return os.Stderr
	}
	f, err := os.Create(strings.NewReplacer("%h", "gpu-7", "%p", strconv.Itoa(os.Getpid())).Replace(name))
	if err != nil {
		panic(err)
	}
	return f
}

// listen binds as uvicorn does, once the model has loaded.
func (s *standIn) listen() (net.Listener, int) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", s.args["port"]))
	if errors.Is(err, syscall.EADDRINUSE) {
		fmt.Fprintf(os.Stderr, "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', %s): address already in use\n", s.args["port"])
		return nil, 1
	}
	if err != nil {
		panic(err)
	}
	return l, 0
}

// hang never returns. A goroutine that waits for nothing at all would end a program without cgo, as a deadlock.
func hang() {
	for {
		time.Sleep(time.Hour)
	}
}
