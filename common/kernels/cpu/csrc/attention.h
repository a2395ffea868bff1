// Attention over a paged cache: one pass over the keys with a running maximum and sum (Milakov and Gimelshein, 2018;
// the merge of parts as in Flash-Decoding). The cache's blocks are [num_kv_heads, block_size, head_dim] with strides.
#pragma once

#include "abi.h"
#include "isa.h"
#include "team.h"

namespace ISA {

constexpr int MAX_HEAD_DIM = 256;
constexpr int MAX_GROUP = 8;     // query heads that share one pass over their keys
constexpr int SPLIT_TOKENS = 512;  // keys of one piece of work: fixed, so that results don't depend on the threads
constexpr float NO_SCORE = -1e30f;

static inline int64_t num_splits(int64_t position) { return position / SPLIT_TOKENS + 1; }

// What the rows of one call or step share. The counters and partial results lie in scratch.
struct RowsPlan {
    const int32_t *block_tables;
    int64_t table_stride;
    AttentionRows rows;
    int64_t *first_split;  // [count + 1]: pieces of the rows before, per key head
    float *partials;       // [first_split[count], num_q_heads, head_dim + 2]
    HeadShape heads;
    float scale;
};

static inline int64_t batch_row(const RowsPlan &plan, int64_t index) {
    return plan.rows.rows ? plan.rows.rows[index] : index;
}

static inline int64_t partial_size(const HeadShape &heads) { return heads.head_dim + 2; }

static inline void count_splits(const RowsPlan &plan) {
    plan.first_split[0] = 0;
    for (int64_t i = 0; i < plan.rows.count; i++)
        plan.first_split[i + 1] = plan.first_split[i] + num_splits(plan.rows.positions[batch_row(plan, i)]);
}

// Walks the slots of a request's tokens in order, without a division per token.
struct SlotWalk {
    const int32_t *table;
    int64_t block_size, block_stride, token_stride;
    int64_t block, offset;

    SlotWalk(const KvCache &cache, const int32_t *block_table, int64_t token)
        : table(block_table), block_size(cache.block_size), block_stride(cache.block_stride),
          token_stride(cache.token_stride), block(token / cache.block_size), offset(token % cache.block_size) {}

    int64_t next() {
        const int64_t at = table[block] * block_stride + offset * token_stride;
        if (++offset == block_size) offset = 0, block++;
        return at;
    }
};

// Keys begin to end - 1 of one request and key head, for GROUP query heads.
template <typename T, int GROUP> struct SplitAttention {
    using Chunk = RowChunk<T>;

    alignas(64) Operand<T> query[GROUP][MAX_HEAD_DIM];
    alignas(64) float sums[GROUP][MAX_HEAD_DIM];
    alignas(64) Operand<T> weights[GROUP][LANES];
    Vec maximum[GROUP];  // the same in every lane
    Vec totals[GROUP];   // of the weights so far, lane by lane
    int64_t head_dim, padded_dim;

    template <typename Query> void start(const Query *heads, int64_t size) {
        head_dim = size, padded_dim = round_up(size, Chunk::SIZE);
        for (int head = 0; head < GROUP; head++) {
            convert_row(heads + head * head_dim, head_dim, padded_dim, query[head]);
            for (int64_t d = 0; d < padded_dim; d += LANES) store(sums[head] + d, splat(0.0f));
            maximum[head] = splat(NO_SCORE), totals[head] = splat(0.0f);
        }
    }

    // Always whole groups of LANES tokens from a multiple of LANES on, so that a window changes no order of sums.
    void run(const T *keys, const T *values, const KvCache &cache, const int32_t *table, int64_t begin, int64_t end,
             float scale) {
        const int64_t first = begin / LANES * LANES;
        // offsets of this group and of the next two, which are prefetched
        int64_t offsets[3][LANES];
        SlotWalk walk(cache, table, first);
        int64_t walked = first;
        auto look_ahead = [&](int64_t *into) {
            int64_t last = walked < end ? 0 : -1;
            for (int lane = 0; lane < LANES; lane++, walked++) {
                if (walked < end) last = walk.next();
                into[lane] = last;
            }
        };
        look_ahead(offsets[0]), look_ahead(offsets[1]);
        int slot = 0;
        for (int64_t token = first; token < end; token += LANES) {
            int64_t *ahead = offsets[(slot + 2) % 3];
            look_ahead(ahead);
            const int64_t *later = ahead[0] < 0 ? offsets[slot] : ahead;
            add_group(keys, values, offsets[slot], later, begin - token, end - token, scale);
            slot = (slot + 1) % 3;
        }
    }

    void add_group(const T *keys, const T *values, const int64_t *offsets, const int64_t *ahead, int64_t from,
                   int64_t to, float scale) {
        const T *rows[LANES], *later[LANES];
        for (int lane = 0; lane < LANES; lane++) rows[lane] = keys + offsets[lane], later[lane] = keys + ahead[lane];
        const bool partial = from > 0 || to < LANES;
        Vec score[GROUP];
        for (int head = 0; head < GROUP; head++) {
            score[head] = mul(head ? scores<false>(head, rows, later) : scores<true>(0, rows, later), splat(scale));
            if (partial) score[head] = select_range(score[head], from, to, splat(NO_SCORE));
        }
        for (int head = 0; head < GROUP; head++)
            if (any_greater(score[head], maximum[head])) raise_maximum(head, largest(score[head]));
        for (int head = 0; head < GROUP; head++) {
            Vec weight = exp(sub(score[head], maximum[head]));
            if (partial) weight = select_range(weight, from, to, splat(0.0f));
            totals[head] = add(totals[head], weight);
            store(weights[head], weight);
        }
        for (int lane = 0; lane < LANES; lane++)
            rows[lane] = values + offsets[lane], later[lane] = values + ahead[lane];
        for (int64_t d = 0; d < head_dim; d += Chunk::SIZE) {
            Vec chunk[GROUP][Chunk::VECTORS];
            const int count = (int)smaller(head_dim - d, Chunk::SIZE);
            for (int head = 0; head < GROUP; head++)
                for (int i = 0; i < Chunk::VECTORS; i++) chunk[head][i] = load(sums[head] + d + i * LANES);
#pragma GCC unroll 16
            for (int lane = 0; lane < LANES; lane += Chunk::TOKENS) {
                for (int token = lane; token < lane + Chunk::TOKENS; token++) prefetch(later[token], d);
                Chunk::template accumulate<GROUP>(rows + lane, d, count, weights[0] + lane, chunk);
            }
            for (int head = 0; head < GROUP; head++)
                for (int i = 0; i < Chunk::VECTORS; i++) store(sums[head] + d + i * LANES, chunk[head][i]);
        }
    }

    // Prefetches lie between the products: all at once they would fill what the core can have under way, and stall it.
    template <bool PREFETCHES> Vec scores(int head, const T *const *rows, const T *const *later) const {
        Vec dots[LANES];
#pragma GCC unroll 16
        for (int lane = 0; lane < LANES; lane++) dots[lane] = splat(0.0f);
        for (int64_t d = 0; d < head_dim; d += Chunk::SIZE) {
            const int count = (int)smaller(head_dim - d, Chunk::SIZE);
#pragma GCC unroll 16
            for (int lane = 0; lane < LANES; lane++) {
                if (PREFETCHES) prefetch(later[lane], d);
                dots[lane] = Chunk::dot(dots[lane], query[head] + d, rows[lane] + d, count);
            }
        }
        return sum_rows(dots);
    }

    void raise_maximum(int head, float highest) {
        const Vec shrink = exp(sub(maximum[head], splat(highest)));
        for (int64_t d = 0; d < padded_dim; d += LANES) store(sums[head] + d, mul(load(sums[head] + d), shrink));
        totals[head] = mul(totals[head], shrink), maximum[head] = splat(highest);
    }

    static void prefetch(const T *row, int64_t d) {
        if (d * (int64_t)sizeof(T) % 64 == 0) _mm_prefetch((const char *)(row + d), _MM_HINT_T0);
    }

    template <typename Out> void write(Out *output) {
        for (int head = 0; head < GROUP; head++) {
            order(head);
            const float scale = 1.0f / sum(totals[head]);
            for (int64_t d = 0; d < head_dim; d += LANES) {
                const Vec scaled = mul(load(sums[head] + d), splat(scale));
                store_first(output + head * head_dim + d, scaled, (int)smaller(head_dim - d, LANES));
            }
        }
    }

    void write_partial(float *partial, int64_t stride) {
        for (int head = 0; head < GROUP; head++) {
            order(head);
            memcpy(partial + head * stride, sums[head], (size_t)head_dim * sizeof(float));
            partial[head * stride + head_dim] = largest(maximum[head]);
            partial[head * stride + head_dim + 1] = sum(totals[head]);
        }
    }

    void order(int head) {
        for (int64_t d = 0; d < padded_dim; d += Chunk::SIZE) Chunk::restore_order(sums[head] + d, sums[head] + d);
    }
};

// One piece of work: some query heads of one row over one split.
template <typename T, int GROUP, typename Query, typename Out>
static void attend_split(
    const RowsPlan &plan, const KvCache &cache, int64_t window, int64_t index, int64_t split, int64_t first_head,
    const Query *query, int64_t query_stride, Out *output, int64_t output_stride
) {
    const int64_t row = batch_row(plan, index), end = plan.rows.positions[row] + 1, head_dim = plan.heads.head_dim;
    const int64_t kv_head = first_head / (plan.heads.num_q_heads / plan.heads.num_kv_heads);
    const int64_t visible = window ? larger(0, end - window) : 0;
    const int64_t from = larger(visible, split * SPLIT_TOKENS), to = smaller(end, (split + 1) * SPLIT_TOKENS);
    SplitAttention<T, GROUP> part;
    part.start(query + row * query_stride + first_head * head_dim, head_dim);
    const int64_t offset = kv_head * cache.head_stride;
    const int32_t *table = plan.block_tables + plan.rows.requests[index] * plan.table_stride;
    if (from < to)
        part.run((const T *)cache.key + offset, (const T *)cache.value + offset, cache, table, from, to, plan.scale);
    if (num_splits(end - 1) == 1) {
        part.write(output + row * output_stride + first_head * head_dim);
        return;
    }
    const int64_t size = partial_size(plan.heads);
    const int64_t place = (plan.first_split[index] + split) * plan.heads.num_q_heads + first_head;
    part.write_partial(plan.partials + place * size, size);
}

template <typename T, typename Query, typename Out>
static void attend_heads(
    int group, const RowsPlan &plan, const KvCache &cache, int64_t window, int64_t index, int64_t split,
    int64_t first_head, const Query *query, int64_t query_stride, Out *output, int64_t output_stride
) {
    switch (group) {
#define GROUP_CASE(SIZE)                                                                                              \
    case SIZE:                                                                                                        \
        return attend_split<T, SIZE>(plan, cache, window, index, split, first_head, query, query_stride, output,      \
                                     output_stride);
        GROUP_CASE(1) GROUP_CASE(2) GROUP_CASE(3) GROUP_CASE(4) GROUP_CASE(5) GROUP_CASE(6) GROUP_CASE(7) GROUP_CASE(8)
#undef GROUP_CASE
    }
}

// All rows' attention. `counter` starts at 0 and belongs to this call. The caller waits before it reads `output`.
template <typename T, typename Query, typename Out>
static void attend_rows(
    const Team &team, const RowsPlan &plan, const KvCache &cache, int64_t window, int64_t *counter, const Query *query,
    int64_t query_stride, Out *output, int64_t output_stride
) {
    const int64_t num_kv_heads = plan.heads.num_kv_heads, shared = plan.heads.num_q_heads / num_kv_heads;
    const int64_t num_pieces = plan.first_split[plan.rows.count] * num_kv_heads;
    int64_t index = 0;
    for (int64_t piece = take_next(counter); piece < num_pieces; piece = take_next(counter)) {
        const int64_t split = piece / num_kv_heads, kv_head = piece % num_kv_heads;
        while (plan.first_split[index + 1] <= split) index++;
        for (int64_t head = 0; head < shared; head += MAX_GROUP)
            attend_heads<T>((int)smaller(MAX_GROUP, shared - head), plan, cache, window, index,
                            split - plan.first_split[index], kv_head * shared + head, query, query_stride, output,
                            output_stride);
    }
}

// Merges the parts of long rows. Call after a wait; the caller waits again before it reads `output`.
template <typename Out>
static void merge_splits(const Team &team, const RowsPlan &plan, Out *output, int64_t output_stride) {
    const int64_t num_heads = plan.heads.num_q_heads, head_dim = plan.heads.head_dim, size = partial_size(plan.heads);
    for (int64_t item = team.first_of(plan.rows.count * num_heads); item < team.end_of(plan.rows.count * num_heads);
         item++) {
        const int64_t index = item / num_heads, head = item % num_heads;
        const int64_t begin = plan.first_split[index], end = plan.first_split[index + 1];
        if (end - begin == 1) continue;
        float highest = NO_SCORE, total = 0.0f;
        for (int64_t split = begin; split < end; split++)
            highest = fmaxf(highest, plan.partials[(split * num_heads + head) * size + head_dim]);
        alignas(64) float sums[MAX_HEAD_DIM] = {};
        for (int64_t split = begin; split < end; split++) {
            const float *partial = plan.partials + (split * num_heads + head) * size;
            const float share = expf(partial[head_dim] - highest);
            total += share * partial[head_dim + 1];
            for (int64_t d = 0; d < head_dim; d++) sums[d] += share * partial[d];
        }
        Out *to = output + batch_row(plan, index) * output_stride + head * head_dim;
        for (int64_t d = 0; d < head_dim; d++) put(to + d, sums[d] / total);
    }
}

static inline bool has_splits(const RowsPlan &plan) { return plan.first_split[plan.rows.count] > plan.rows.count; }

// Writes keys and values of all tokens to their slots; rows are split among the threads.
template <typename T>
static inline void write_heads(
    const KvCache &cache, const HeadShape &heads, int64_t slot, const T *key, const T *value
) {
    const int64_t at = slot / cache.block_size * cache.block_stride + slot % cache.block_size * cache.token_stride;
    const size_t bytes = (size_t)heads.head_dim * sizeof(T);
    for (int64_t head = 0; head < heads.num_kv_heads; head++) {
        memcpy((T *)cache.key + at + head * cache.head_stride, key + head * heads.head_dim, bytes);
        memcpy((T *)cache.value + at + head * cache.head_stride, value + head * heads.head_dim, bytes);
    }
}

}  // namespace ISA
