// A whole step of a Llama-like decoder in one call. What lies between its matrices costs a small step more in separate
// calls than the matrices do, and a large one several passes over memory. The residual stream stays float32 from the
// embedding to the last norm.
#include "attention.h"
#include "chunk_attention.h"
#include "entry_points.h"
#include "linear.h"
#include "rows.h"

namespace ISA {

static int64_t qkv_size(const HeadShape &heads) {
    return (heads.num_q_heads + 2 * heads.num_kv_heads) * heads.head_dim;
}

struct StepScratch {
    // byte offsets
    int64_t counters, first_split, partials, panels, rooms, hidden, qkv, normed, attended, activated, total;

    template <typename T> static StepScratch of(const StepCall &call, int num_threads) {
        const Decoder &decoder = *call.decoder;
        const int64_t rows = call.num_rows, item = sizeof(Operand<T>);
        const int64_t attended_size = decoder.heads.num_q_heads * decoder.heads.head_dim;
        int64_t num_parts = 0, panels = 0;
        for (int64_t i = 0; i < call.rows.count; i++) num_parts += num_splits(call.rows.positions[call.rows.rows[i]]);
        for (int64_t i = 0; i < call.num_chunks; i++)
            panels = larger(panels, chunk_panel_elements(call.chunks[i], decoder.heads, 0));
        const int64_t partial_bytes = num_parts * decoder.heads.num_q_heads * partial_size(decoder.heads) * 4;
        StepScratch at = {};
        int64_t end = 0;
        auto place = [&](int64_t bytes) {
            const int64_t begin = end;
            end += round_up(bytes, 64);
            return begin;
        };
        at.counters = place(decoder.num_layers * (1 + call.num_chunks) * 8);
        at.first_split = place((call.rows.count + 1) * 8);
        at.partials = place(num_parts > call.rows.count ? partial_bytes : 0);
        at.panels = place(panels * (int64_t)sizeof(T) + 2 * PREFETCH_BYTES);
        at.rooms = place((call.num_chunks ? num_threads : 0) * (int64_t)sizeof(ChunkRoom<T>));
        at.hidden = place(rows * decoder.hidden_size * 4);
        at.qkv = place(rows * qkv_size(decoder.heads) * 4);
        at.normed = place(rows * round_up(decoder.hidden_size, DEPTH_UNIT) * item);
        at.attended = place(rows * round_up(attended_size, DEPTH_UNIT) * item);
        at.activated = place(rows * round_up(decoder.intermediate_size, DEPTH_UNIT) * item);
        at.total = end + 64;
        return at;
    }
};

template <typename T> struct Step {
    const Team &team;
    const StepCall &call;
    const Decoder &decoder;
    int64_t first_row, end_row, hidden_depth, attended_depth, activated_depth, qkv_stride;
    int64_t *counters;
    RowsPlan plan;
    T *panels;
    ChunkRoom<T> *rooms;
    float *hidden, *qkv;  // [num_rows, hidden_size], [num_rows, qkv_stride]
    Operand<T> *normed, *attended, *activated;

    Step(const Team &threads, const StepCall &step) : team(threads), call(step), decoder(*step.decoder) {
        const StepScratch at = StepScratch::of<T>(call, team.size);
        char *scratch = (char *)round_up((int64_t)call.scratch, 64);
        first_row = team.first_of(call.num_rows), end_row = team.end_of(call.num_rows);
        hidden_depth = round_up(decoder.hidden_size, DEPTH_UNIT);
        attended_depth = round_up(decoder.heads.num_q_heads * decoder.heads.head_dim, DEPTH_UNIT);
        activated_depth = round_up(decoder.intermediate_size, DEPTH_UNIT);
        qkv_stride = qkv_size(decoder.heads);
        counters = (int64_t *)(scratch + at.counters);
        plan = {call.block_tables, call.table_stride, call.rows, (int64_t *)(scratch + at.first_split),
                (float *)(scratch + at.partials), decoder.heads, decoder.scale};
        panels = (T *)(scratch + at.panels), rooms = (ChunkRoom<T> *)(scratch + at.rooms);
        hidden = (float *)(scratch + at.hidden), qkv = (float *)(scratch + at.qkv);
        normed = (Operand<T> *)(scratch + at.normed), attended = (Operand<T> *)(scratch + at.attended);
        activated = (Operand<T> *)(scratch + at.activated);
    }

    void run() {
        if (team.index == 0) {
            memset(counters, 0, (size_t)(decoder.num_layers * (1 + call.num_chunks)) * sizeof(int64_t));
            count_splits(plan);
        }
        for (int64_t row = first_row; row < end_row; row++) {
            const T *token = (const T *)decoder.embedding + call.token_ids[row] * decoder.hidden_size;
            convert_row(token, decoder.hidden_size, decoder.hidden_size, hidden + row * decoder.hidden_size);
            for (int64_t i = decoder.intermediate_size; i < activated_depth; i++)
                put(activated + row * activated_depth + i, 0.0f);
        }
        for (int64_t layer = 0; layer < decoder.num_layers; layer++) {
            attend(decoder.layers[layer], counters + layer * (1 + call.num_chunks));
            feed_forward(decoder.layers[layer]);
        }
        for (int64_t row = first_row; row < end_row; row++)
            rms_norm(hidden + row * decoder.hidden_size, decoder.norm, decoder.hidden_size, decoder.hidden_size,
                     decoder.epsilon, (T *)call.hidden + row * decoder.hidden_size);
    }

    void attend(const DecoderLayer &layer, int64_t *layer_counters) {
        normalise(layer.attention_norm);
        linear<T>(team, normed, hidden_depth, call.num_rows, layer.qkv, qkv, qkv_stride);
        team.wait();
        place_heads(layer);
        team.wait();
        attend_rows<T>(team, plan, layer.cache, layer.window, layer_counters, qkv, qkv_stride, attended,
                       attended_depth);
        const ChunkInputs<T, float, Operand<T>> inputs = {
            layer.cache, decoder.heads, call.block_tables, call.table_stride, layer.window, decoder.scale, qkv,
            qkv_stride, attended, attended_depth, panels, rooms,
        };
        attend_chunks(team, inputs, call.chunks, call.num_chunks, layer_counters + 1);
        team.wait();
        if (has_splits(plan)) {
            merge_splits(team, plan, attended, attended_depth);
            team.wait();
        }
        linear_add<T>(team, attended, attended_depth, call.num_rows, layer.output, hidden, decoder.hidden_size);
        team.wait();
    }

    void feed_forward(const DecoderLayer &layer) {
        normalise(layer.mlp_norm);
        linear_silu<T>(team, normed, hidden_depth, call.num_rows, layer.gate_up, activated, activated_depth);
        team.wait();
        linear_add<T>(team, activated, activated_depth, call.num_rows, layer.down, hidden, decoder.hidden_size);
        team.wait();
    }

    void normalise(const float *weight) {
        for (int64_t row = first_row; row < end_row; row++)
            rms_norm(hidden + row * decoder.hidden_size, weight, decoder.hidden_size, hidden_depth, decoder.epsilon,
                     normed + row * hidden_depth);
        team.wait();
    }

    // Norms of queries and keys, positions, and the new keys and values in their slots.
    void place_heads(const DecoderLayer &layer) {
        const int64_t num_rotated = decoder.heads.num_q_heads + decoder.heads.num_kv_heads;
        const int64_t num_heads = num_rotated + decoder.heads.num_kv_heads, head_dim = decoder.heads.head_dim;
        const int64_t count = call.num_rows * num_heads;
        for (int64_t item = team.first_of(count); item < team.end_of(count); item++) {
            const int64_t row = item / num_heads, head = item % num_heads;
            float *numbers = qkv + row * qkv_stride + head * head_dim;
            if (head < num_rotated) {
                if (layer.qk_norm)
                    rms_norm(numbers, layer.qk_norm + head * head_dim, head_dim, head_dim, decoder.epsilon, numbers);
                rotate(numbers, (const T *)decoder.rotary + call.rows.positions[row] * 2 * head_dim, head_dim);
            }
            if (head < decoder.heads.num_q_heads) continue;
            const bool is_key = head < num_rotated;
            T *cache = (T *)(is_key ? layer.cache.key : layer.cache.value);
            const int64_t slot = call.slots[row], kv_head = head - (is_key ? decoder.heads.num_q_heads : num_rotated);
            T *to = cache + slot / layer.cache.block_size * layer.cache.block_stride +
                    slot % layer.cache.block_size * layer.cache.token_stride + kv_head * layer.cache.head_stride;
            convert_row(numbers, head_dim, head_dim, to);
        }
    }
};

void step_entry(const Team &team, DType dtype, const StepCall &call) {
    if (dtype == DTYPE_BFLOAT16) Step<bf16>(team, call).run();
    else Step<float>(team, call).run();
}

int64_t step_scratch_bytes(DType dtype, const StepCall &call, int num_threads) {
    if (dtype == DTYPE_BFLOAT16) return StepScratch::of<bf16>(call, num_threads).total;
    return StepScratch::of<float>(call, num_threads).total;
}

}  // namespace ISA
