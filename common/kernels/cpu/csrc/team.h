// Threads that compute one call together. All of them run the same function; work is split by `index`, and `wait`
// stands between what one writes and another reads.
//
// The barrier spins for some microseconds, then sleeps: a decode step has two hundred barriers, so that sleeping at
// each would cost more than the work, and endless spinning would hold a core that another process wants.
#pragma once

#include <stdint.h>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Nearly every wait is shorter. Who waits longer waits for a thread that lost its core, and does best to sleep at once:
// a thread that wakes has the scheduler's favour over one that has spun. Beside a busy process 8 us leave 0.5 of the
// throughput, 25 us 0.36, 60 us 0.22; alone, 4 us cost a step of one request 15 %, and more than 8 us gain nothing.
constexpr int64_t SPIN_NS = 8000;
constexpr int SPINS_PER_LOOK = 16;  // at the clock

inline int64_t clock_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

struct Barrier {
    alignas(64) int arrived = 0;
    alignas(64) int phase = 0;
    int sleepers = 0;
};

struct Team {
    int index;
    int size;
    Barrier *barrier;

    void wait() const {
        if (size == 1) return;
        const int phase = __atomic_load_n(&barrier->phase, __ATOMIC_RELAXED);
        if (__atomic_add_fetch(&barrier->arrived, 1, __ATOMIC_ACQ_REL) == size) {
            __atomic_store_n(&barrier->arrived, 0, __ATOMIC_RELAXED);
            __atomic_add_fetch(&barrier->phase, 1, __ATOMIC_SEQ_CST);
            if (__atomic_load_n(&barrier->sleepers, __ATOMIC_SEQ_CST))
                syscall(SYS_futex, &barrier->phase, FUTEX_WAKE_PRIVATE, size, nullptr, nullptr, 0);
            return;
        }
        const int64_t end_ns = clock_ns() + SPIN_NS;
        do {
            for (int spin = 0; spin < SPINS_PER_LOOK; spin++) {
                if (__atomic_load_n(&barrier->phase, __ATOMIC_ACQUIRE) != phase) return;
                __builtin_ia32_pause();
            }
        } while (clock_ns() < end_ns);
        __atomic_add_fetch(&barrier->sleepers, 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&barrier->phase, __ATOMIC_SEQ_CST) == phase)
            syscall(SYS_futex, &barrier->phase, FUTEX_WAIT_PRIVATE, phase, nullptr, nullptr, 0);
        __atomic_sub_fetch(&barrier->sleepers, 1, __ATOMIC_SEQ_CST);
    }

    // This thread's part of `count` equal pieces of work.
    int64_t first_of(int64_t count) const { return count * index / size; }
    int64_t end_of(int64_t count) const { return count * (index + 1) / size; }
};

// Pieces of work of unequal size, each taken by the first free thread.
inline int64_t take_next(int64_t *counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }
