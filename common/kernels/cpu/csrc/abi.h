// What Python passes to the library: plain C structs, mirrored by ctypes in ../abi.py. Strides are elements.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SLIPSTREAM_ABI_VERSION 3

enum Isa { ISA_NONE = 0, ISA_AVX2 = 1, ISA_AVX512_BF16 = 2 };
enum DType { DTYPE_FLOAT32 = 0, DTYPE_BFLOAT16 = 1 };

// A weight in panels (panels.h). `bias`, if any, is float32 in the panels' column order, padded with zeros.
struct Matrix {
    const void *panels;
    const float *bias;
    int64_t num_outputs;
    int64_t depth;
};

struct KvCache {
    void *key;  // [num_blocks, num_kv_heads, block_size, head_dim]
    void *value;
    int64_t block_stride;
    int64_t head_stride;
    int64_t token_stride;
    int64_t block_size;
};

struct HeadShape {
    int64_t num_q_heads;
    int64_t num_kv_heads;
    int64_t head_dim;
};

struct LinearCall {
    const void *input;  // [num_rows, depth] in the weight's dtype
    int64_t input_stride;
    int64_t num_rows;
    struct Matrix weight;
    void *output;  // [num_rows, num_outputs]: float32 where `float_output`, else the weight's dtype
    int64_t output_stride;
    int32_t float_output;
    int32_t silu_gate;  // gate and up share the panels, and the output is silu(gate) * up, num_outputs columns
    void *scratch;      // linear_scratch_bytes
};

// Rows with one query each. A row sees the keys of its request up to its own position.
struct AttentionRows {
    int64_t count;
    const int32_t *rows;        // [count]: rows of query, output and positions; null: all of them in order
    const int32_t *requests;    // [count]: rows of block_tables
    const int64_t *positions;   // by row of the batch
};

// Rows of one request that lie together: positions seq_len - num_queries to seq_len - 1.
struct AttentionChunk {
    int64_t first_row;
    int64_t num_queries;
    int64_t seq_len;
    int64_t request;  // row of block_tables
};

struct AttentionCall {
    const void *query;  // [num_tokens, num_q_heads, head_dim], heads together
    const void *key;    // [num_tokens, num_kv_heads, head_dim]: written to the cache first
    const void *value;
    int64_t query_stride;
    int64_t key_stride;
    int64_t value_stride;
    int64_t num_tokens;
    const int64_t *slots;  // [num_tokens]
    struct KvCache cache;
    struct HeadShape heads;
    const int32_t *block_tables;  // [num_requests, table_stride]
    int64_t table_stride;
    struct AttentionRows rows;
    const struct AttentionChunk *chunks;
    int64_t num_chunks;
    int64_t window;  // tokens; 0: none
    float scale;
    void *output;  // [num_tokens, num_q_heads * head_dim], dense
    void *scratch;  // attention_scratch_bytes
};

struct DecoderLayer {
    const float *attention_norm;
    struct Matrix qkv;
    const float *qk_norm;  // [num_q_heads + num_kv_heads, head_dim], or null
    struct Matrix output;
    const float *mlp_norm;
    struct Matrix gate_up;  // silu panels; num_outputs is the intermediate size
    struct Matrix down;
    struct KvCache cache;
    int64_t window;  // tokens; 0: none
};

struct Decoder {
    int64_t num_layers;
    int64_t hidden_size;
    int64_t intermediate_size;
    struct HeadShape heads;
    float epsilon;
    float scale;
    const void *embedding;  // [vocab_size, hidden_size]
    const void *rotary;     // [max_positions, 2, head_dim]: cosine, sine with its first half negated
    const float *norm;
    const struct DecoderLayer *layers;
};

struct StepCall {
    const struct Decoder *decoder;
    int64_t num_rows;
    const int64_t *token_ids;
    const int64_t *slots;
    const int32_t *block_tables;
    int64_t table_stride;
    struct AttentionRows rows;
    const struct AttentionChunk *chunks;
    int64_t num_chunks;
    void *hidden;   // [num_rows, hidden_size], normalised, in the model's dtype
    void *scratch;  // step_scratch_bytes
};

// One token to draw; see draw_tokens in common/engine/random_draw.py.
struct DrawRow {
    int64_t logits_row;
    double temperature;
    double min_p;
    double top_p;
    int64_t top_k;  // 0: all
    uint64_t seed;
    uint64_t choice;
    uint64_t position;
};

struct DrawCall {
    const float *logits;
    int64_t logits_stride;
    int64_t vocab_size;
    const struct DrawRow *rows;
    int64_t num_rows;
    int64_t *token_ids;  // [num_rows]; -1 where no weight is a number
    void *scratch;       // draw_scratch_bytes
};
