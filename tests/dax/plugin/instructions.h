/* Which x86-64 instructions make a line durable, told from their bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kind {
    OTHER,
    /* clwb, clflushopt, clflush: writes a line back. */
    FLUSH,
    /* movnti, movntdq, movntps and the like: bypasses the caches. */
    STREAM,
    /* sfence, mfence, anything with a lock prefix, xchg with memory. */
    FENCE,
    /* The guest speaks: a no-op with MARKER in its displacement. */
    MARK,
};

/* "DAX" and a number: 0 begin, 1 the steps in rax have returned, 2 end. */
#define MARKER 0x44415800u

struct instruction {
    enum kind kind;
    /* FLUSH: the address is base + index * scale + displacement; registers by number, -1 for none. */
    int base;
    int index;
    int scale;
    int64_t displacement;
    /* FENCE: not an instruction that is there to fence. */
    bool locked;
    /* MARK: which one. */
    int marker;
    /* The bytes are of a kind above with an operand that this file cannot take apart. */
    bool unknown;
};

struct instruction decode(const uint8_t *bytes, size_t length, uint64_t address);
