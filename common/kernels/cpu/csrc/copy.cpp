// Copies for memory that nobody reads soon. Plain x86-64: wider stores are no faster here.
#include <emmintrin.h>
#include <stdint.h>
#include <string.h>

extern "C" __attribute__((visibility("default"))) void slipstream_copy_past_cache(char *to, const char *from,
                                                                                  int64_t num_bytes) {
    constexpr int64_t LINE = 64;
    const int64_t unaligned = (int64_t)(-(uintptr_t)to & (LINE - 1));
    const int64_t first = unaligned < num_bytes ? unaligned : num_bytes;
    memcpy(to, from, (size_t)first);
    int64_t at = first;
    for (; at + LINE <= num_bytes; at += LINE) {
        const __m128i *source = (const __m128i *)(from + at);
        __m128i *target = (__m128i *)(to + at);
        const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
        const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
        _mm_stream_si128(target, a);
        _mm_stream_si128(target + 1, b);
        _mm_stream_si128(target + 2, c);
        _mm_stream_si128(target + 3, d);
    }
    memcpy(to + at, from + at, (size_t)(num_bytes - at));
    _mm_sfence();  // other cores see the streamed lines before whatever is said of them
}
