package server

import (
	"maps"
	"net/http"

	"draftlab/engine"
)

// handleServerInfo answers /server_info: the resolved configuration under SGLang's names and ours, and the state in SGLang's
// internal_states.
func (s *Server) handleServerInfo(w http.ResponseWriter, _ *http.Request) {
	e := s.engine.Load()
	if e == nil {
		s.fail(w, unavailable("loading", "the model is loading"))
		return
	}
	info, st := (*e).Info(), (*e).Stats()
	state := map[string]any{
		"last_gen_throughput": s.report.throughput(), "num_running_reqs": st.Running, "num_queue_reqs": st.Waiting,
		"effective_max_running_requests_per_dp": info.MaxRunning,
	}
	if n, ok := s.report.acceptSinceFlush(st); ok {
		state["avg_spec_accept_length"] = n
	}
	doc := map[string]any{}
	maps.Copy(doc, s.cfg.Settings)
	maps.Copy(doc, map[string]any{
		"version": s.cfg.Version, "served_model_name": s.cfg.Model, "context_length": info.Context, "max_running_requests": info.MaxRunning,
		"max_queued_requests": info.MaxWaiting, "max_total_num_tokens": st.Blocks * blockSlots, "device": info.Device,
		"speculative_algorithm": algorithm(info.Spec), "speculative_num_steps": info.Spec.Shape.Steps,
		"speculative_eagle_topk": info.Spec.Shape.TopK, "speculative_num_draft_tokens": info.Spec.Shape.DraftTokens,
		"speculative_limit": info.Limit.String(), "internal_states": []any{state},
	})
	s.writeJSON(w, http.StatusOK, doc)
}

// algorithm is SGLang's name of a way of drafting, nil for plain decoding.
func algorithm(spec engine.Spec) any {
	switch spec.Drafter {
	case engine.DraftModel:
		return "EAGLE3"
	case engine.DraftNgram:
		return "NGRAM"
	}
	return nil
}

// handleModelInfo answers /model_info.
func (s *Server) handleModelInfo(w http.ResponseWriter, _ *http.Request) {
	e := s.engine.Load()
	if e == nil {
		s.fail(w, unavailable("loading", "the model is loading"))
		return
	}
	info := (*e).Info()
	s.writeJSON(w, http.StatusOK, map[string]any{
		"model_path": s.cfg.Settings["model_path"], "tokenizer_path": s.cfg.Settings["model_path"], "served_model_name": s.cfg.Model,
		"is_generation": true, "model_type": info.Arch, "vocab_size": info.Vocab, "context_length": info.Context,
		"weight_bytes": info.WeightBytes, "has_tokenizer": (*e).Tokenizer() != nil,
	})
}
