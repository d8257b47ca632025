package enginelog

// Report is what a log shows. Times are in seconds or milliseconds as the names say; rates in tokens a second.
type Report struct {
	Engine   string     `json:"engine"` // "draftlab", "sglang", "vllm", "llama.cpp", or "" if no line shows it
	Lines    Lines      `json:"lines"`
	First    string     `json:"first,omitempty"` // the first time in the log, as written; vLLM writes no year
	Last     string     `json:"last,omitempty"`
	Decode   []Group    `json:"decode"`
	Prefill  *Prompts   `json:"prefill,omitempty"`
	Pressure Pressure   `json:"pressure"`
	Boots    []Boot     `json:"boots"`
	Faults   []Message  `json:"faults"`
	Notices  []Message  `json:"notices"`
	Requests []Requests `json:"requests"`
	Warnings []string   `json:"warnings"`
}

// DecodeLines says, for people, which lines have figures about decoding.
const DecodeLines = `SGLang's "Decode batch, …", vLLM's "Engine …: Avg prompt throughput: …" and "SpecDecoding metrics: …", llama.cpp's "eval time = …"`

// Lines counts the lines of a log.
type Lines struct {
	Total   int64 `json:"total"`
	Read    int64 `json:"read"`    // of a known kind
	Other   int64 `json:"other"`   // of none
	Damaged int64 `json:"damaged"` // of a known kind, but unreadable: cut off, or mixed with another
	Cut     int64 `json:"cut"`     // longer than what is kept of a line
}

// Group is what the decode or statistics lines of one rank show.
type Group struct {
	Ranks        string  `json:"ranks"` // "" if the lines name none
	Lines        int64   `json:"lines"`
	AfterRest    int64   `json:"after_rest"`    // lines left out of Throughput and Cycle: their interval holds a pause
	AcceptLength *Dist   `json:"accept_length"` // tokens of a sequence in a cycle, the target's own included; null without speculation
	Throughput   *Dist   `json:"throughput_tok_s"`
	Running      *Dist   `json:"running"`
	Cycle        *Dist   `json:"cycle_ms"`      // accept length × running / throughput
	Plain        *Dist   `json:"plain_step_ms"` // the same of lines without speculation, whose accept length is 1
	Iteration    *Dist   `json:"iteration_ms"`  // vLLM's own times of steps that only decode
	ByContext    []Reach `json:"by_context"`    // accept lengths by the length of requests, where the log tells it (SGLang's does)
	GraphStated  int64   `json:"graph_stated"`  // lines that say whether a CUDA graph ran
	WithoutGraph int64   `json:"without_graph"`
}

// Prompts is what the prefill lines show.
type Prompts struct {
	Lines      int64   `json:"lines"`
	New        float64 `json:"new_tokens"`
	Cached     float64 `json:"cached_tokens"`
	HitRate    float64 `json:"cache_hit_rate"` // cached / all
	Throughput *Dist   `json:"throughput_tok_s"`
}

// Pressure is how full the server was.
type Pressure struct {
	Queue     *Dist `json:"queue"` // waiting requests
	WithQueue int64 `json:"lines_with_queue"`
	Usage     *Dist `json:"usage"` // share of the key/value memory, of the fullest pool
	Retracted int64 `json:"retractions"`
	Preempted int64 `json:"preemptions"`
}

// Boot is one start of the server.
type Boot struct {
	Milestones []Step   `json:"milestones"`
	Ready      *float64 `json:"ready_s"` // from the first time in the log of this boot until it answered; null if it did not
}

// Step is a milestone of a boot. Ranks reach it one by one.
type Step struct {
	Name  string   `json:"name"`
	Count int64    `json:"count"` // lines, over all ranks
	At    *float64 `json:"at_s"`  // of the last rank, since the boot began; null if the log has no times
	Since *float64 `json:"since_previous_s"`
	Took  *float64 `json:"reported_s"` // the longest that a line itself states
	Line  int64    `json:"line"`
}

// Message is a fault or a notice, with the first line that has it.
type Message struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
	Line  int64  `json:"line"`
	Text  string `json:"text"`
}

// Requests counts answered HTTP requests.
type Requests struct {
	Request string `json:"request"`
	Status  int    `json:"status"`
	Count   int64  `json:"count"`
}
