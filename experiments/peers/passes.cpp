// passes MODEL THREADS ROUNDS: times llama.cpp's passes as speculative decoding would use them, on
// libllama's C interface alone. llama-bench has no such test: its rows are prompt rows, with the
// logits of the last one only, and llama-batched-bench's rows are sequences with a context each.
//
// A round is: one prompt of 512 tokens (logits of the last row); then, behind those 512 positions and in
// random order, passes of 1, 2, 3, 4, 6 and 8 rows of one sequence with the logits of every row, each
// taken back afterwards; then 16 single-token steps. One JSON document goes to standard output:
//   {"system_info": "...", "rounds": [{"prefill_ms": t, "decode_ms": t per token, "pass_ms": {"1": t, ...}}, ...]}

#include "llama.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

static const int context_tokens = 512;
static const int decode_tokens  = 16;
static const int pass_repeats   = 5; // timed passes of one width in a round, after an untimed one

static double now_ms() {
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

static void fail(const char * what) {
    fprintf(stderr, "passes: %s\n", what);
    exit(1);
}

struct bench {
    llama_context * ctx;
    llama_batch     batch;
    int             vocab;
    std::mt19937    rng{42};

    // pass runs n random tokens from a position on, with logits of the last or of all rows, and returns the time.
    double pass(int pos, int n, bool all) {
        batch.n_tokens = n;
        for (int i = 0; i < n; i++) {
            batch.token[i]     = (llama_token) (rng() % vocab);
            batch.pos[i]       = pos + i;
            batch.n_seq_id[i]  = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i]    = all || i == n - 1;
        }
        const double start = now_ms();
        if (llama_decode(ctx, batch) != 0) {
            fail("llama_decode failed");
        }
        llama_synchronize(ctx);
        return now_ms() - start;
    }

    // rewind drops the positions behind the context.
    void rewind() {
        if (!llama_memory_seq_rm(llama_get_memory(ctx), 0, context_tokens, -1)) {
            fail("llama_memory_seq_rm refused to take rows back");
        }
    }
};

static double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v.size() % 2 ? v[v.size() / 2] : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
}

// round prints one round as a JSON object.
static void round_of(bench & b) {
    llama_memory_clear(llama_get_memory(b.ctx), true);
    const double prefill = b.pass(0, context_tokens, false);

    std::vector<int> widths = { 1, 2, 3, 4, 6, 8 };
    std::shuffle(widths.begin(), widths.end(), b.rng);
    std::string passes;
    for (int rows : widths) {
        std::vector<double> times;
        for (int i = 0; i <= pass_repeats; i++) {
            const double t = b.pass(context_tokens, rows, true);
            b.rewind();
            if (i > 0) { // the first pass of a width builds its graph
                times.push_back(t);
            }
        }
        char text[64];
        snprintf(text, sizeof text, "%s\"%d\": %.4f", passes.empty() ? "" : ", ", rows, median(times));
        passes += text;
    }

    double decode = 0;
    for (int i = 0; i < decode_tokens; i++) {
        decode += b.pass(context_tokens + i, 1, true);
    }
    b.rewind();
    printf("{\"prefill_ms\": %.4f, \"decode_ms\": %.4f, \"pass_ms\": {%s}}", prefill, decode / decode_tokens, passes.c_str());
}

int main(int argc, char ** argv) {
    const int threads = argc == 4 ? atoi(argv[2]) : 0;
    const int rounds  = argc == 4 ? atoi(argv[3]) : 0;
    if (threads < 1 || rounds < 1) {
        fprintf(stderr, "usage: passes MODEL THREADS ROUNDS\n");
        return 2;
    }
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) {
            fputs(text, stderr);
        }
    }, nullptr);
    llama_backend_init();
    llama_model * model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!model) {
        fail("the model cannot be loaded");
    }
    llama_context_params params = llama_context_default_params();
    params.n_ctx           = 1024;
    params.n_batch         = context_tokens;
    params.n_ubatch        = context_tokens;
    params.n_threads       = threads;
    params.n_threads_batch = threads;
    bench b;
    b.ctx = llama_init_from_model(model, params);
    if (!b.ctx) {
        fail("the context cannot be made");
    }
    b.batch = llama_batch_init(context_tokens, 0, 1);
    b.vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));

    b.pass(0, 16, false); // first touch of the weights
    printf("{\"system_info\": \"%s\", \"rounds\": [", llama_print_system_info());
    for (int i = 0; i < rounds; i++) {
        printf(i > 0 ? ",\n" : "\n");
        round_of(b);
    }
    printf("]}\n");
    llama_batch_free(b.batch);
    llama_free(b.ctx);
    llama_model_free(model);
}
