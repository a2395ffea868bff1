#include "attention.h"

#include "chunk_attention.h"
#include "entry_points.h"

namespace ISA {

// How a call's scratch is divided, in this order.
struct AttentionScratch {
    int64_t counters, first_split, partials, panels, rooms, total;  // byte offsets

    template <typename T> static AttentionScratch of(const AttentionCall &call, int num_threads) {
        int64_t num_parts = 0, panels = 0;
        for (int64_t i = 0; i < call.rows.count; i++)
            num_parts += num_splits(call.rows.positions[call.rows.rows ? call.rows.rows[i] : i]);
        for (int64_t i = 0; i < call.num_chunks; i++)
            panels = larger(panels, chunk_panel_elements(call.chunks[i], call.heads, call.window));
        AttentionScratch at = {};
        at.first_split = round_up((1 + call.num_chunks) * (int64_t)sizeof(int64_t), 64);
        at.partials = at.first_split + round_up((call.rows.count + 1) * (int64_t)sizeof(int64_t), 64);
        const int64_t partial_bytes =
            num_parts * call.heads.num_q_heads * partial_size(call.heads) * (int64_t)sizeof(float);
        at.panels = at.partials + round_up(num_parts > call.rows.count ? partial_bytes : 0, 64);
        at.rooms = at.panels + round_up(panels * (int64_t)sizeof(T), 64) + 2 * PREFETCH_BYTES;
        at.total = at.rooms + (call.num_chunks ? num_threads : 0) * (int64_t)sizeof(ChunkRoom<T>) + 64;
        return at;
    }
};

template <typename T> static void run(const Team &team, const AttentionCall &call) {
    const AttentionScratch at = AttentionScratch::of<T>(call, team.size);
    char *scratch = (char *)round_up((int64_t)call.scratch, 64);
    int64_t *counters = (int64_t *)scratch;
    const RowsPlan plan = {
        call.block_tables, call.table_stride, call.rows, (int64_t *)(scratch + at.first_split),
        (float *)(scratch + at.partials), call.heads, call.scale,
    };
    if (team.index == 0) {
        memset(counters, 0, (size_t)(1 + call.num_chunks) * sizeof(int64_t));
        count_splits(plan);
    }
    for (int64_t token = team.first_of(call.num_tokens); token < team.end_of(call.num_tokens); token++)
        write_heads(call.cache, call.heads, call.slots[token], (const T *)call.key + token * call.key_stride,
                    (const T *)call.value + token * call.value_stride);
    team.wait();
    const int64_t output_stride = call.heads.num_q_heads * call.heads.head_dim;
    attend_rows<T>(team, plan, call.cache, call.window, counters, (const T *)call.query, call.query_stride,
                   (T *)call.output, output_stride);
    if (has_splits(plan)) {
        team.wait();
        merge_splits(team, plan, (T *)call.output, output_stride);
    }
    const ChunkInputs<T, T, T> inputs = {
        call.cache, call.heads, call.block_tables, call.table_stride, call.window, call.scale, (const T *)call.query,
        call.query_stride, (T *)call.output, output_stride, (T *)(scratch + at.panels),
        (ChunkRoom<T> *)(scratch + at.rooms),
    };
    attend_chunks(team, inputs, call.chunks, call.num_chunks, counters + 1);
}

void attention_entry(const Team &team, DType dtype, const AttentionCall &call) {
    if (dtype == DTYPE_BFLOAT16) run<bf16>(team, call);
    else run<float>(team, call);
}

int64_t attention_scratch_bytes(DType dtype, const AttentionCall &call, int num_threads) {
    if (dtype == DTYPE_BFLOAT16) return AttentionScratch::of<bf16>(call, num_threads).total;
    return AttentionScratch::of<float>(call, num_threads).total;
}

}  // namespace ISA
