#include "instructions.h"

#include <string.h>

struct prefixes {
    bool lock;
    bool operand_size;
    bool repeat;
    bool segment;
    uint8_t rex;
    size_t length;
};

static struct prefixes prefixes_of(const uint8_t *bytes, size_t length)
{
    struct prefixes found = {0};
    while (found.length < length) {
        uint8_t byte = bytes[found.length];
        if (byte == 0xF0) {
            found.lock = true;
        } else if (byte == 0x66) {
            found.operand_size = true;
        } else if (byte == 0xF2 || byte == 0xF3) {
            found.repeat = true;
        } else if (byte == 0x64 || byte == 0x65) {
            found.segment = true;
        } else if (byte != 0x2E && byte != 0x36 && byte != 0x3E && byte != 0x26) {
            break;
        }
        found.length++;
    }
    if (found.length < length && (bytes[found.length] & 0xF0) == 0x40) {
        found.rex = bytes[found.length++];
    }
    return found;
}

/* Takes the memory operand apart; `at` points to the ModRM byte. */
static void operand(struct instruction *into, const uint8_t *at, const uint8_t *end, uint8_t rex, uint64_t next)
{
    if (at >= end) {
        into->unknown = true;
        return;
    }
    int mode = *at >> 6, low = *at & 7;
    into->base = low | (rex & 1) << 3;
    at++;
    if (low == 4 && at < end) {
        uint8_t sib = *at++;
        into->base = (sib & 7) | (rex & 1) << 3;
        into->index = (sib >> 3 & 7) | (rex & 2) << 2;
        into->scale = 1 << (sib >> 6);
        if (into->index == 4) {
            into->index = -1;
        }
        if ((sib & 7) == 5 && mode == 0) {
            into->base = -1;
            mode = 2;
        }
    } else if (low == 5 && mode == 0) {
        into->base = -1;
        into->displacement = (int64_t)next;
        mode = 2;
    }
    if (mode == 1 && at < end) {
        into->displacement += (int8_t)*at;
    } else if (mode == 2 && at + 4 <= end) {
        int32_t displacement;
        memcpy(&displacement, at, 4);
        into->displacement += displacement;
    } else if (mode != 0) {
        into->unknown = true;
    }
}

static bool is_stream(uint8_t opcode)
{
    return opcode == 0x2B || opcode == 0xC3 || opcode == 0xE7;
}

struct instruction decode(const uint8_t *bytes, size_t length, uint64_t address)
{
    struct instruction found = {.kind = OTHER, .base = -1, .index = -1, .scale = 1};
    struct prefixes prefixes = prefixes_of(bytes, length);
    const uint8_t *at = bytes + prefixes.length, *end = bytes + length;
    size_t left = (size_t)(end - at);
    bool exchanges = left >= 2 && (at[0] == 0x86 || at[0] == 0x87) && at[1] >> 6 != 3;
    if (prefixes.lock || exchanges) {
        found.kind = FENCE;
        found.locked = true;
    } else if (left >= 3 && at[0] == 0xC5 && (at[2] == 0x2B || at[2] == 0xE7)) {
        found.kind = STREAM;
    } else if (left >= 4 && at[0] == 0xC4 && (at[1] & 31) == 1 && (at[3] == 0x2B || at[3] == 0xE7)) {
        found.kind = STREAM;
    } else if (left >= 3 && at[0] == 0x0F && is_stream(at[1])) {
        found.kind = STREAM;
    } else if (left >= 7 && at[0] == 0x0F && at[1] == 0x1F && at[2] == 0x80) {
        uint32_t displacement;
        memcpy(&displacement, at + 3, 4);
        if ((displacement & ~0xFFu) == MARKER) {
            found.kind = MARK;
            found.marker = displacement & 0xFF;
        }
    } else if (left >= 3 && at[0] == 0x0F && at[1] == 0xAE && !prefixes.repeat) {
        int mode = at[2] >> 6, which = at[2] >> 3 & 7;
        if (mode == 3 && !prefixes.operand_size && (which == 6 || which == 7)) {
            found.kind = FENCE;
        } else if (mode != 3 && (which == 7 || (which == 6 && prefixes.operand_size))) {
            found.kind = FLUSH;
            found.unknown = prefixes.segment;
            operand(&found, at + 2, end, prefixes.rex, address + length);
        }
    }
    return found;
}
