// Draws tokens: random_draw.py in C++, row by row, with its order of truncation, its race and its random numbers.
//
// Nearly all weights are tiny, and only their sum matters; so the exponentials of those are taken in float, many at a
// time, and the others' in double, one by one. What a row draws depends on nothing but the row.
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "entry_points.h"

namespace ISA {

constexpr double FAVOURITE_WEIGHT = 1.0 / 8192;  // FAVOURITE_WEIGHT of random_draw.py
constexpr float FAVOURITE_EXPONENT = -9.0109134f;  // its logarithm
constexpr float MARGIN = 1e-3f;                    // of float exponents: what is nearer is looked at in double
constexpr uint32_t FIELD_ITEM = 0xffffffff;
constexpr int64_t MAX_HEAP = 1024;  // a larger top_k sorts
constexpr int64_t BLOCK = 256;      // logits that are passed over together

struct Item {
    double weight;  // relative to the most likely token's
    uint32_t token;
};

// One row's distribution: the items whose weights are known one by one, by token, and the sum of all others'.
struct Weights {
    Item *items;
    int64_t count;
    double others;
};

// Philox4x32-10 as in philox.py: a number in (0, 1) with 53 random bits.
static double uniform(const DrawRow &row, uint32_t item) {
    uint32_t c0 = (uint32_t)row.position, c1 = (uint32_t)row.choice, c2 = item, c3 = 0;
    uint32_t k0 = (uint32_t)row.seed, k1 = (uint32_t)(row.seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t product0 = (uint64_t)c0 * 0xD2511F53u, product1 = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(product1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)product1;
        c2 = (uint32_t)(product0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)product0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return ((double)((c0 | (uint64_t)c1 << 32) >> 11) + 0.5) * 0x1p-53;
}

// Exponential, with the weight as rate; INFINITY where it is not before `first`. -log(u) is at least 1 - u, which
// spares nearly all of the logarithms.
static double arrival(const DrawRow &row, uint32_t item, double weight, double first) {
    const double u = uniform(row, item);
    if (1.0 - u >= first * weight) return INFINITY;
    const double time = -log(u) / weight;
    return time < first ? time : INFINITY;
}

static double weight_of(float logit, float top, double temperature) {
    return ::exp(((double)logit - (double)top) / temperature);
}

static Vec load_some(const float *from, int64_t count) {
    if (count >= LANES) return load(from);
    return select_range(load_first(from, (int)count), 0, count, splat(-INFINITY));
}

static float largest_of(const float *logits, int64_t count) {
    Vec most = splat(-INFINITY);
    for (int64_t at = 0; at < count; at += LANES) most = max(most, load_some(logits + at, count - at));
    return largest(most);
}

// Items of at least FAVOURITE_WEIGHT, and the sum of the others.
static Weights favourites(const float *logits, int64_t size, float top, double temperature, Item *room) {
    Weights found = {room, 0, 0.0};
    // Of a temperature too small for a float no more is wanted than that 0 times its inverse is 0.
    const double inverse = 1.0 / temperature;
    const Vec tops = splat(top), factor = splat(inverse < FLT_MAX ? (float)inverse : FLT_MAX);
    const Vec bound = splat(FAVOURITE_EXPONENT - MARGIN);
    for (int64_t block = 0; block < size; block += BLOCK) {
        const int64_t end = smaller(block + BLOCK, size);
        Vec total = splat(0.0f);
        for (int64_t at = block; at < end; at += LANES) {
            const Vec exponents = mul(sub(load_some(logits + at, end - at), tops), factor);
            if (!any_greater(exponents, bound)) {
                total = add(total, exp(exponents));
                continue;
            }
            float lanes[LANES];
            store(lanes, exponents);
            const int count = (int)smaller(LANES, end - at);
            for (int lane = 0; lane < count; lane++) {
                if (lanes[lane] > FAVOURITE_EXPONENT - MARGIN) {
                    const double weight = weight_of(logits[at + lane], top, temperature);
                    if (weight >= FAVOURITE_WEIGHT) found.items[found.count++] = {weight, (uint32_t)(at + lane)};
                    else found.others += weight;
                } else {
                    found.others += ::expf(lanes[lane]);
                }
            }
        }
        found.others += (double)sum(total);
    }
    return found;
}

static Weights all_of(const float *logits, int64_t size, float top, double temperature, Item *room) {
    for (int64_t token = 0; token < size; token++)
        room[token] = {weight_of(logits[token], top, temperature), (uint32_t)token};
    return {room, size, 0.0};
}

// Puts heap[at] in its place below. `first` tells which of two numbers is to be nearer to the top.
template <typename T> static void sift_down(T *heap, int64_t count, int64_t at, bool (*first)(T, T)) {
    for (;;) {
        int64_t next = at;
        for (int64_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++)
            if (first(heap[child], heap[next])) next = child;
        if (next == at) return;
        const T kept = heap[at];
        heap[at] = heap[next];
        heap[next] = kept;
        at = next;
    }
}

static bool is_less(float a, float b) { return a < b; }
static bool is_more(double a, double b) { return a > b; }

// The k-th largest, k at most MAX_HEAP and at most `size`.
static float kth_largest(const float *logits, int64_t size, int64_t k) {
    float heap[MAX_HEAP];  // of the largest so far, the least of them first
    memcpy(heap, logits, k * sizeof(float));
    for (int64_t at = k / 2 - 1; at >= 0; at--) sift_down(heap, k, at, is_less);
    for (int64_t at = k; at < size; at += LANES) {
        if (!any_greater(load_some(logits + at, size - at), splat(heap[0]))) continue;
        for (int64_t token = at; token < smaller(at + LANES, size); token++)
            if (logits[token] > heap[0]) {
                heap[0] = logits[token];
                sift_down(heap, k, 0, is_less);
            }
    }
    return heap[0];
}

// Items at least as likely as the k-th. Different logits may have one weight where the temperature is huge.
static Weights most_likely(const float *logits, int64_t size, float top, double temperature, int64_t k, Item *room) {
    Weights found = {room, 0, 0.0};
    const float kth = kth_largest(logits, size, k);
    const double least = weight_of(kth, top, temperature);
    const Vec bound = splat(nextafterf((float)((double)kth - temperature * 1e-14), -INFINITY));
    for (int64_t at = 0; at < size; at += LANES) {
        if (!any_greater(load_some(logits + at, size - at), bound)) continue;
        for (int64_t token = at; token < smaller(at + LANES, size); token++) {
            if (logits[token] < kth && (double)kth - (double)logits[token] > temperature * 1e-14) continue;
            const double weight = weight_of(logits[token], top, temperature);
            if (weight >= least) found.items[found.count++] = {weight, (uint32_t)token};
        }
    }
    return found;
}

static void drop_below(Weights &weights, double least) {
    int64_t kept = 0;
    for (int64_t at = 0; at < weights.count; at++)
        if (weights.items[at].weight >= least) weights.items[kept++] = weights.items[at];
    weights.count = kept;
}

static int descending(const void *a, const void *b) {
    const double left = *(const double *)a, right = *(const double *)b;
    return left < right ? 1 : left > right ? -1 : 0;
}

static double *sorted_weights(const Weights &weights, double *room) {
    for (int64_t at = 0; at < weights.count; at++) room[at] = weights.items[at].weight;
    qsort(room, weights.count, sizeof(double), descending);
    return room;
}

// Of the most likely items, those that fill `share` of the whole. Whether they were among those known one by one.
static bool keep_nucleus(Weights &weights, double share, double *heap) {
    double total = weights.others;
    for (int64_t at = 0; at < weights.count; at++) total += heap[at] = weights.items[at].weight;
    const double wanted = share * total;
    for (int64_t at = weights.count / 2 - 1; at >= 0; at--) sift_down(heap, weights.count, at, is_more);
    double filled = 0.0;
    for (int64_t left = weights.count; left > 0;) {
        const double next = heap[0];
        filled += next;
        if (filled >= wanted || (left == 1 && weights.others == 0.0)) {
            drop_below(weights, next);
            weights.others = 0.0;
            return true;
        }
        heap[0] = heap[--left];
        sift_down(heap, left, 0, is_more);
    }
    return false;
}

// The distribution after truncation. `others` is 0 where anything was cut off.
static Weights truncated(const DrawRow &row, const float *logits, int64_t size, float top, Item *items, double *room) {
    const bool has_top_k = row.top_k > 0 && row.top_k < size, has_top_p = row.top_p < 1.0;
    Weights weights;
    if (has_top_k && row.top_k <= MAX_HEAP) {
        weights = most_likely(logits, size, top, row.temperature, row.top_k, items);
        if (row.min_p > 0.0) drop_below(weights, row.min_p);
    } else if (!has_top_k && (row.min_p == 0.0 || row.min_p >= FAVOURITE_WEIGHT)) {
        weights = favourites(logits, size, top, row.temperature, items);
        if (row.min_p > 0.0) {
            drop_below(weights, row.min_p);
            weights.others = 0.0;
        }
        if (!has_top_p || keep_nucleus(weights, row.top_p, room)) return weights;
        weights = all_of(logits, size, top, row.temperature, items);
    } else {
        weights = all_of(logits, size, top, row.temperature, items);
        if (row.min_p > 0.0) drop_below(weights, row.min_p);
        if (has_top_k && row.top_k < weights.count) drop_below(weights, sorted_weights(weights, room)[row.top_k - 1]);
    }
    if (has_top_p) keep_nucleus(weights, row.top_p, room);
    return weights;
}

static int64_t winner_of_field(const DrawRow &row, const Weights &weights) {
    int64_t winner = -1;
    double first = INFINITY;
    for (int64_t at = 0; at < weights.count; at++) {
        const Item &item = weights.items[at];
        if (item.weight >= FAVOURITE_WEIGHT || item.weight <= 0.0) continue;
        const double time = arrival(row, item.token, item.weight, first);
        if (time < first) first = time, winner = item.token;
    }
    return winner;
}

static int64_t draw_row(const DrawRow &row, const float *logits, int64_t size, Item *items, double *room) {
    const float top = largest_of(logits, size);
    Weights weights = truncated(row, logits, size, top, items, room);
    int64_t winner = -1;
    double first = INFINITY, field = weights.others;
    for (int64_t at = 0; at < weights.count; at++) {
        const Item &item = weights.items[at];
        if (item.weight < FAVOURITE_WEIGHT) {
            field += item.weight;
            continue;
        }
        const double time = arrival(row, item.token, item.weight, first);
        if (time < first) first = time, winner = item.token;
    }
    if (field == 0.0 || arrival(row, FIELD_ITEM, field, first) == INFINITY) return winner;
    if (weights.others > 0.0) weights = all_of(logits, size, top, row.temperature, items);
    const int64_t found = winner_of_field(row, weights);
    return found < 0 ? winner : found;
}

void draw_entry(const Team &team, const DrawCall &call) {
    char *scratch = (char *)call.scratch + team.index * draw_scratch_bytes(call, 1);
    Item *items = (Item *)scratch;
    double *room = (double *)(items + call.vocab_size);
    for (int64_t row = team.index; row < call.num_rows; row += team.size) {
        const DrawRow &drawn = call.rows[row];
        const float *logits = call.logits + drawn.logits_row * call.logits_stride;
        call.token_ids[row] = draw_row(drawn, logits, call.vocab_size, items, room);
    }
}

int64_t draw_scratch_bytes(const DrawCall &call, int num_threads) {
    return num_threads * round_up(call.vocab_size * (int64_t)(sizeof(Item) + sizeof(double)), 64);
}

}  // namespace ISA
