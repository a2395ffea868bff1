// Attention of many queries of one request over its paged keys: tiles of queries against panels of keys.
//
// First the keys and values that any query sees are laid out as panels, once for all queries; then each piece of work
// is one tile of queries of one key head, with a running maximum and sum per query (Dao et al., 2022, on a CPU).
#pragma once

#include "abi.h"
#include "attention.h"
#include "panels.h"
#include "team.h"

namespace ISA {

constexpr int KEY_TILE = 128;
constexpr int MAX_QUERY_ROWS = 96;  // queries times the heads that share a key head: a tile's sums stay in the cache

// One thread's room for a tile.
template <typename T> struct ChunkRoom {
    alignas(64) float scores[MAX_QUERY_ROWS][KEY_TILE];
    alignas(64) float sums[MAX_QUERY_ROWS][MAX_HEAD_DIM];
    alignas(64) Operand<T> weights[MAX_QUERY_ROWS][KEY_TILE];
    alignas(64) Operand<T> queries[MAX_QUERY_ROWS][MAX_HEAD_DIM];
    float maximum[MAX_QUERY_ROWS], total[MAX_QUERY_ROWS];
};

struct ChunkSizes {
    int64_t first_tile, num_tiles;  // key tiles that any query sees
    int64_t key_elements, value_elements;  // of one tile's panels
};

static inline ChunkSizes chunk_sizes(const AttentionChunk &chunk, const HeadShape &heads, int64_t window) {
    const int64_t first_query = chunk.seq_len - chunk.num_queries;
    const int64_t first_key = window ? larger(0, first_query + 1 - window) : 0;
    const int64_t first_tile = first_key / KEY_TILE;
    return {
        first_tile,
        ceil_div(chunk.seq_len, KEY_TILE) - first_tile,
        KEY_TILE / PANEL_COLUMNS * panel_elements(heads.head_dim),
        ceil_div(heads.head_dim, PANEL_COLUMNS) * panel_elements(KEY_TILE),
    };
}

static inline int64_t chunk_panel_elements(const AttentionChunk &chunk, const HeadShape &heads, int64_t window) {
    const ChunkSizes sizes = chunk_sizes(chunk, heads, window);
    return heads.num_kv_heads * sizes.num_tiles * (sizes.key_elements + sizes.value_elements);
}

// Keys are columns: row r of the tile becomes column r.
template <typename T>
static void pack_keys(const T *const *rows, int64_t head_dim, T *panels) {
    constexpr int DEPTH = PanelStep<T>::DEPTH;
    const int64_t padded = round_up(head_dim, DEPTH_UNIT);
    for (int column = 0; column < KEY_TILE; column++) {
        T *to = panels + column / PANEL_COLUMNS * padded * PANEL_COLUMNS + column % PANEL_COLUMNS * DEPTH;
        for (int64_t d = 0; d < padded; d += DEPTH, to += PANEL_COLUMNS * DEPTH)
            memcpy(to, rows[column] + d, DEPTH * sizeof(T));
    }
}

// Dimensions are columns, keys the depth.
template <typename T>
static void pack_values(const T *const *rows, int64_t head_dim, T *panels) {
    constexpr int DEPTH = PanelStep<T>::DEPTH;
    for (int64_t column = 0; column < head_dim; column += PANEL_COLUMNS) {
        const int64_t count = smaller(PANEL_COLUMNS, head_dim - column);
        for (int key = 0; key < KEY_TILE; key += DEPTH, panels += PANEL_COLUMNS * DEPTH) {
            if (count < PANEL_COLUMNS) memset(panels, 0, PANEL_COLUMNS * DEPTH * sizeof(T));
            for (int64_t d = 0; d < count; d++)
                for (int i = 0; i < DEPTH; i++) panels[d * DEPTH + i] = rows[key + i][column + d];
        }
    }
}

// What the chunks of one layer share.
template <typename T, typename Query, typename Out> struct ChunkInputs {
    KvCache cache;
    HeadShape heads;
    const int32_t *block_tables;
    int64_t table_stride, window;
    float scale;
    const Query *query;  // by row of the batch
    int64_t query_stride;
    Out *output;
    int64_t output_stride;
    T *panels;  // room for the largest chunk's
    ChunkRoom<T> *rooms;  // one for each thread
};

template <typename T, typename Query, typename Out> struct ChunkAttention {
    const ChunkInputs<T, Query, Out> &call;
    const AttentionChunk &chunk;
    ChunkSizes sizes;
    T *key_panels, *value_panels;

    ChunkAttention(const ChunkInputs<T, Query, Out> &whole, const AttentionChunk &part)
        : call(whole), chunk(part), sizes(chunk_sizes(part, whole.heads, whole.window)), key_panels(whole.panels),
          value_panels(whole.panels + whole.heads.num_kv_heads * sizes.num_tiles * sizes.key_elements) {}

    void pack(const Team &team) const {
        const int64_t count = call.heads.num_kv_heads * sizes.num_tiles;
        for (int64_t item = team.first_of(count); item < team.end_of(count); item++) pack_tile(item);
    }

    // Unwritten slots hold anything, even NaN, and a weight of 0 would not hide it: rows past the end are zeros.
    void pack_tile(int64_t item) const {
        alignas(64) static const T zeros[MAX_HEAD_DIM] = {};
        const int64_t head = item / sizes.num_tiles, first = (sizes.first_tile + item % sizes.num_tiles) * KEY_TILE;
        const T *keys[KEY_TILE], *values[KEY_TILE];
        SlotWalk walk(call.cache, call.block_tables + chunk.request * call.table_stride, first);
        for (int i = 0; i < KEY_TILE; i++) {
            if (first + i >= chunk.seq_len) {
                keys[i] = values[i] = zeros;
                continue;
            }
            const int64_t at = walk.next() + head * call.cache.head_stride;
            keys[i] = (const T *)call.cache.key + at, values[i] = (const T *)call.cache.value + at;
        }
        pack_keys(keys, call.heads.head_dim, key_panels + item * sizes.key_elements);
        pack_values(values, call.heads.head_dim, value_panels + item * sizes.value_elements);
    }

    // The last queries see the most keys and come first, so that no thread ends late.
    void attend(int64_t *counter, ChunkRoom<T> &room) const {
        const int64_t shared = call.heads.num_q_heads / call.heads.num_kv_heads;
        const int64_t queries_per_tile = larger(1, MAX_QUERY_ROWS / shared);
        const int64_t num_query_tiles = ceil_div(chunk.num_queries, queries_per_tile);
        const int64_t count = num_query_tiles * call.heads.num_kv_heads;
        for (int64_t item = take_next(counter); item < count; item = take_next(counter)) {
            const int64_t tile = num_query_tiles - 1 - item / call.heads.num_kv_heads;
            const int64_t first = tile * queries_per_tile;
            attend_tile(item % call.heads.num_kv_heads, first, smaller(queries_per_tile, chunk.num_queries - first),
                        shared, room);
        }
    }

    void attend_tile(int64_t kv_head, int64_t first_query, int64_t num_queries, int64_t num_shared,
                     ChunkRoom<T> &room) const {
        const int64_t head_dim = call.heads.head_dim, depth = round_up(head_dim, DEPTH_UNIT);
        const int64_t first_head = kv_head * num_shared;
        const int64_t num_rows = num_queries * num_shared;
        for (int64_t row = 0; row < num_rows; row++) {
            const int64_t token = chunk.first_row + first_query + row / num_shared;
            const Query *from = call.query + token * call.query_stride + (first_head + row % num_shared) * head_dim;
            convert_row(from, head_dim, depth, room.queries[row]);
            memset(room.sums[row], 0, (size_t)round_up(head_dim, PANEL_COLUMNS) * sizeof(float));
            room.maximum[row] = NO_SCORE, room.total[row] = 0.0f;
        }
        const int64_t position = chunk.seq_len - chunk.num_queries + first_query;  // of the first query
        const int64_t first_key = call.window ? larger(0, position + 1 - call.window) : 0;
        for (int64_t tile = first_key / KEY_TILE; tile * KEY_TILE < position + num_queries; tile++)
            add_keys(kv_head, tile, position, num_queries, num_shared, room);
        for (int64_t row = 0; row < num_rows; row++) {
            const int64_t token = chunk.first_row + first_query + row / num_shared;
            Out *to = call.output + token * call.output_stride + (first_head + row % num_shared) * head_dim;
            const Vec scale = splat(1.0f / room.total[row]);
            for (int64_t d = 0; d < head_dim; d += LANES)
                store_first(to + d, mul(load(room.sums[row] + d), scale), (int)smaller(LANES, head_dim - d));
        }
    }

    void add_keys(int64_t kv_head, int64_t tile, int64_t position, int64_t num_queries, int64_t num_shared,
                  ChunkRoom<T> &room) const {
        const int64_t head_dim = call.heads.head_dim, depth = round_up(head_dim, DEPTH_UNIT);
        const int64_t num_rows = num_queries * num_shared, first_key = tile * KEY_TILE;
        const int64_t packed = kv_head * sizes.num_tiles + tile - sizes.first_tile;
        const int64_t num_keys = smaller(KEY_TILE, round_up(position + num_queries - first_key, PANEL_COLUMNS));
        const T *panel = key_panels + packed * sizes.key_elements;
        for (int64_t key = 0; key < num_keys; key += PANEL_COLUMNS, panel += depth * PANEL_COLUMNS)
            multiply_rows<T>(room.queries[0], MAX_HEAD_DIM, num_rows, panel, depth, [&](int64_t row, Vec *sums) {
                store(room.scores[row] + key, sums[0]), store(room.scores[row] + key + LANES, sums[1]);
            });
        for (int64_t row = 0; row < num_rows; row++) {
            const int64_t last = position + row / num_shared;
            const int64_t first = call.window ? last + 1 - call.window : 0;
            weigh(row, first - first_key, last + 1 - first_key, num_keys, room);
        }
        panel = value_panels + packed * sizes.value_elements;
        for (int64_t column = 0; column < head_dim; column += PANEL_COLUMNS, panel += KEY_TILE * PANEL_COLUMNS)
            multiply_rows<T>(room.weights[0], KEY_TILE, num_rows, panel, num_keys, [&](int64_t row, Vec *sums) {
                float *to = room.sums[row] + column;
                store(to, add(load(to), sums[0])), store(to + LANES, add(load(to + LANES), sums[1]));
            });
    }

    // Scores of keys `from` to `to` - 1 of the tile become weights, all others 0.
    void weigh(int64_t row, int64_t from, int64_t to, int64_t num_keys, ChunkRoom<T> &room) const {
        Vec scores[KEY_TILE / LANES], highest = splat(NO_SCORE);
        const bool partial = from > 0 || to < num_keys;
        for (int64_t key = 0; key < num_keys; key += LANES) {
            Vec score = mul(load(room.scores[row] + key), splat(call.scale));
            if (partial) score = select_range(score, from - key, to - key, splat(NO_SCORE));
            scores[key / LANES] = score, highest = max(highest, score);
        }
        const float found = largest(highest);
        if (found > room.maximum[row]) {
            const float shrink = expf(room.maximum[row] - found);
            for (int64_t d = 0; d < call.heads.head_dim; d += LANES)
                store(room.sums[row] + d, mul(load(room.sums[row] + d), splat(shrink)));
            room.total[row] *= shrink, room.maximum[row] = found;
        }
        Vec total = splat(0.0f);
        for (int64_t key = 0; key < num_keys; key += LANES) {
            Vec weight = exp(sub(scores[key / LANES], splat(room.maximum[row])));
            if (partial) weight = select_range(weight, from - key, to - key, splat(0.0f));
            total = add(total, weight);
            store(room.weights[row] + key, weight);
        }
        room.total[row] += sum(total);
    }
};

// All chunks, one after the other, each with its own counter that starts at 0. The caller waits before and after.
template <typename T, typename Query, typename Out>
static void attend_chunks(
    const Team &team, const ChunkInputs<T, Query, Out> &inputs, const AttentionChunk *chunks, int64_t num_chunks,
    int64_t *counters
) {
    for (int64_t i = 0; i < num_chunks; i++) {
        const ChunkAttention<T, Query, Out> attention(inputs, chunks[i]);
        if (i) team.wait();  // until nobody reads the panels of the one before
        attention.pack(team);
        team.wait();
        attention.attend(counters + i, inputs.rooms[team.index]);
    }
}

}  // namespace ISA
