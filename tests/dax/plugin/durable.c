/* What a power failure leaves of an emulated NVDIMM, kept while a guest runs.
 *
 * QEMU stores straight into the NVDIMM's file, as if every store were durable at once. This plugin keeps a second
 * image of it, `durable`, that a line reaches only by a flush instruction (or a store past the caches) and a fence
 * after it, whoever executes them, program or kernel:
 *
 *   store       file                     seen by comparing, not by watching
 *   clwb        file -> pending          what the line held then
 *   sfence      pending -> durable       the crash points are right before it
 *
 * At chosen fences it writes an image that a power failure there may leave: `durable`, and a seeded choice of what
 * is pending and of lines that were stored and never flushed, since caches evict when they like. Lines that
 * programs flush are chosen one by one, and at times word by word; pages of the file system alone as a whole,
 * since a block device promises that.
 *
 * Locked instructions of programs do not count as fences, although x86-64 orders with them: what holds only by the
 * grace of a lock nearby is a bug that waits for its removal, or for another processor.
 *
 * Crash points are counted in fences that have something pending, from the guest's begin mark, so with one
 * processor and counted instructions (-icount) they repeat.
 *
 * Arguments: nvdimm (file), base (physical address), out (directory), seed, first, every (fences), images.
 * Memory: two further images of the NVDIMM at most. */
#include "instructions.h"
#include "qemu_interface.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE = 64, PAGE = 4096, WORDS = LINE / 8 };

EXPORTED int qemu_plugin_version = 4;

struct pending {
    uint64_t line;
    uint8_t bytes[LINE];
};

static struct {
    const char *file;
    const char *out;
    uint64_t base, seed, first, every, images;
} options = {.first = 1, .every = 1, .images = 1};

/* The guest's memories, as this process has them mapped. */
static uint8_t *memory, *nvdimm;
static uint64_t memory_bytes, nvdimm_bytes;

static uint8_t *durable;
static struct pending *pending;
static size_t pending_count, pending_capacity;
/* By line: its place in `pending`, from 1. */
static uint32_t *pending_at;
/* By page: whether a program flushed in it. */
static uint8_t *of_program;

static bool armed;
static uint64_t fences, flushes, streams, images, acknowledged, next_crash;

static struct qemu_plugin_register *general[16], *control3;
static GByteArray *value;

static void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "durable: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    _exit(70);
}

/* splitmix64 */
static uint64_t random_number(uint64_t *state)
{
    uint64_t mixed = *state += 0x9E3779B97F4A7C15u;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBu;
    return mixed ^ mixed >> 31;
}

/* ---- where a virtual address is in the NVDIMM ---- */

static uint64_t read_register(struct qemu_plugin_register *which)
{
    uint64_t number = 0;
    g_byte_array_set_size(value, 0);
    if (qemu_plugin_read_register(which, value) < 8) {
        die("a register cannot be read");
    }
    memcpy(&number, value->data, 8);
    return number;
}

/* The physical address, by the page tables of the moment; 0 where nothing is mapped. */
static uint64_t physical(uint64_t address)
{
    const uint64_t frame = 0x000FFFFFFFFFF000u;
    uint64_t table = read_register(control3) & frame;
    for (int shift = 39; shift >= 12; shift -= 9) {
        uint64_t entry, at = table + (address >> shift & 511) * 8;
        if (at + 8 > memory_bytes) {
            return 0;
        }
        memcpy(&entry, memory + at, 8);
        if (!(entry & 1)) {
            return 0;
        }
        if (shift == 12 || (shift < 39 && entry & 0x80)) {
            uint64_t inside = (1ull << shift) - 1;
            return (entry & frame & ~inside) | (address & inside);
        }
        table = entry & frame;
    }
    return 0;
}

/* ---- the rule ---- */

static void capture(uint64_t physical_address, bool by_program)
{
    uint64_t offset = (physical_address & ~(uint64_t)(LINE - 1)) - options.base;
    if (physical_address < options.base || offset >= nvdimm_bytes) {
        return;
    }
    uint64_t line = offset / LINE;
    if (!pending_at[line]) {
        if (pending_count == pending_capacity) {
            pending_capacity = pending_capacity ? pending_capacity * 2 : 1024;
            pending = realloc(pending, pending_capacity * sizeof *pending);
        }
        pending[pending_count++].line = line;
        pending_at[line] = (uint32_t)pending_count;
    }
    memcpy(pending[pending_at[line] - 1].bytes, nvdimm + offset, LINE);
    of_program[offset / PAGE] |= by_program;
}

static void drain(void)
{
    for (size_t i = 0; i < pending_count; i++) {
        memcpy(durable + pending[i].line * LINE, pending[i].bytes, LINE);
        pending_at[pending[i].line] = 0;
    }
    pending_count = 0;
}

/* ---- crash images ---- */

/* How much survives, in eighths, of what is pending and of what is dirty, and whether lines tear into words. */
struct survival {
    unsigned flushed, evicted;
    bool torn;
};

static struct survival survival_of(uint64_t image, uint64_t *random)
{
    switch (image % 4) {
    case 0:
        return (struct survival){.flushed = 0, .evicted = 0};
    case 1:
        return (struct survival){.flushed = random_number(random) % 9, .evicted = 0};
    case 2:
        return (struct survival){.flushed = random_number(random) % 9, .evicted = random_number(random) % 9};
    default:
        return (struct survival){
            .flushed = random_number(random) % 9, .evicted = random_number(random) % 9, .torn = true};
    }
}

/* Puts what survives of `bytes` at an offset into the page. */
static void survive(uint8_t *page, size_t at, const struct survival *how, uint64_t line, uint64_t *random,
                    bool flushed, bool evicted)
{
    const uint8_t *was = pending_at[line] ? pending[pending_at[line] - 1].bytes : NULL;
    size_t step = how->torn && random ? 8 : LINE;
    for (size_t word = 0; word < LINE; word += step) {
        if (random) {
            flushed = random_number(random) % 8 < how->flushed;
            evicted = random_number(random) % 8 < how->evicted;
        }
        if (evicted) {
            memcpy(page + at + word, nvdimm + line * LINE + word, step);
        } else if (was && flushed) {
            memcpy(page + at + word, was + word, step);
        }
    }
}

/* Writes the image; returns how many lines were not durable. */
static uint64_t write_image(int file, const struct survival *how, uint64_t *random)
{
    uint64_t open_lines = 0;
    uint8_t page[PAGE];
    if (write(file, durable, nvdimm_bytes) != (ssize_t)nvdimm_bytes) {
        die("cannot write an image to %s", options.out);
    }
    for (uint64_t start = 0; start < nvdimm_bytes; start += PAGE) {
        uint64_t before = open_lines;
        bool flushed = false, evicted = false, whole = !of_program[start / PAGE];
        for (size_t at = 0; at < PAGE; at += LINE) {
            uint64_t line = (start + at) / LINE;
            bool dirty = memcmp(durable + start + at, nvdimm + start + at, LINE) != 0;
            if (!dirty && !pending_at[line]) {
                continue;
            }
            if (open_lines++ == before) {
                memcpy(page, durable + start, PAGE);
                flushed = random_number(random) % 8 < how->flushed;
                evicted = random_number(random) % 8 < how->evicted;
            }
            survive(page, at, how, line, whole ? NULL : random, flushed, evicted);
        }
        if (open_lines > before && pwrite(file, page, PAGE, (off_t)start) != PAGE) {
            die("cannot write an image to %s", options.out);
        }
    }
    return open_lines;
}

static void crash_image(void)
{
    char path[4096];
    uint64_t random = options.seed ^ fences << 20;
    struct survival how = survival_of(images, &random);
    snprintf(path, sizeof path, "%s/crash-%llu.img", options.out, (unsigned long long)images);
    int file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (file < 0) {
        die("cannot create %s", path);
    }
    uint64_t open_lines = write_image(file, &how, &random);
    close(file);
    snprintf(path, sizeof path, "%s/crashes.txt", options.out);
    FILE *list = fopen(path, "a");
    if (!list) {
        die("cannot write %s", path);
    }
    fprintf(list, "image=%llu fence=%llu acknowledged=%llu pending=%zu open=%llu flushed=%u/8 evicted=%u/8 torn=%d\n",
            (unsigned long long)images, (unsigned long long)fences, (unsigned long long)acknowledged,
            pending_count, (unsigned long long)open_lines, how.flushed, how.evicted, how.torn);
    fclose(list);
    images++;
    next_crash = fences + 1 + random_number(&random) % (2 * options.every - 1);
}

static void summary(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/summary.txt", options.out);
    FILE *file = fopen(path, "w");
    if (!file) {
        die("cannot write %s", path);
    }
    fprintf(file, "fences=%llu flushes=%llu streams=%llu images=%llu acknowledged=%llu\n",
            (unsigned long long)fences, (unsigned long long)flushes, (unsigned long long)streams,
            (unsigned long long)images, (unsigned long long)acknowledged);
    fclose(file);
}

/* ---- what QEMU calls ---- */

static void on_flush(unsigned int vcpu, void *data)
{
    (void)vcpu;
    if (!armed) {
        return;
    }
    const struct instruction *flush = data;
    uint64_t address = (uint64_t)flush->displacement;
    if (flush->base >= 0) {
        address += read_register(general[flush->base]);
    }
    if (flush->index >= 0) {
        address += read_register(general[flush->index]) * (uint64_t)flush->scale;
    }
    flushes++;
    capture(physical(address), address >> 47 == 0);
}

static void on_stream(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
    (void)vcpu, (void)data;
    struct qemu_plugin_hwaddr *hardware = armed ? qemu_plugin_get_hwaddr(info, address) : NULL;
    if (!hardware || qemu_plugin_hwaddr_is_io(hardware)) {
        return;
    }
    streams++;
    uint64_t first = qemu_plugin_hwaddr_phys_addr(hardware);
    uint64_t last = first + (1u << qemu_plugin_mem_size_shift(info)) - 1;
    capture(first, address >> 47 == 0);
    if (first / LINE != last / LINE) {
        capture(last, address >> 47 == 0);
    }
}

static void on_fence(unsigned int vcpu, void *data)
{
    (void)vcpu, (void)data;
    if (!armed || !pending_count) {
        return;
    }
    fences++;
    if (fences == next_crash && images < options.images) {
        crash_image();
        if (images == options.images) {
            summary();
            _exit(0);
        }
    }
    drain();
}

/* The memory that a line of /proc/self/maps with this text shows. */
static uint8_t *mapped(const char *text, uint64_t *bytes)
{
    char line[8192];
    uint8_t *found = NULL;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        if (strstr(line, text) && sscanf(line, "%lx-%lx", &start, &end) == 2) {
            found = (uint8_t *)start;
            *bytes = end - start;
            break;
        }
    }
    if (maps) {
        fclose(maps);
    }
    if (!found) {
        die("%s is not mapped", text);
    }
    return found;
}

static void begin(void)
{
    memory = mapped("memory-backend-memfd", &memory_bytes);
    nvdimm = mapped(options.file, &nvdimm_bytes);
    durable = malloc(nvdimm_bytes);
    pending_at = calloc(nvdimm_bytes / LINE, sizeof *pending_at);
    of_program = calloc(nvdimm_bytes / PAGE, 1);
    if (!durable || !pending_at || !of_program || !control3) {
        die("no memory for the durable image, or no register cr3");
    }
    memcpy(durable, nvdimm, nvdimm_bytes);
    next_crash = options.first;
    armed = true;
}

static void on_mark(unsigned int vcpu, void *data)
{
    (void)vcpu;
    switch ((intptr_t)data) {
    case 0:
        begin();
        break;
    case 1:
        acknowledged = read_register(general[0]);
        break;
    default:
        summary();
        armed = false;
    }
}

static void on_block(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        uint8_t bytes[16];
        size_t length = qemu_plugin_insn_data(instruction, bytes, sizeof bytes);
        struct instruction found = decode(bytes, length, qemu_plugin_insn_vaddr(instruction));
        if (found.unknown) {
            die("a flush with an operand that the plugin cannot take apart");
        }
        switch (found.kind) {
        case FLUSH: {
            /* Lives as long as the block, whose end nobody tells; a few kilobytes in all. */
            struct instruction *kept = malloc(sizeof *kept);
            *kept = found;
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_flush, READ_REGISTERS, kept);
            break;
        }
        case STREAM:
            qemu_plugin_register_vcpu_mem_cb(instruction, on_stream, NO_REGISTERS, MEMORY_WRITES, NULL);
            break;
        case FENCE:
            if (found.locked && qemu_plugin_insn_vaddr(instruction) >> 47 == 0) {
                break;
            }
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_fence, NO_REGISTERS, NULL);
            break;
        case MARK:
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_mark, READ_REGISTERS,
                                                   (void *)(intptr_t)found.marker);
            break;
        case OTHER:
            break;
        }
    }
}

static void on_processor(qemu_plugin_id_t id, unsigned int vcpu)
{
    static const char *const names[16] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                          "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};
    (void)id;
    if (vcpu != 0) {
        die("one processor only: fences of several would have to be told apart");
    }
    value = g_byte_array_new();
    GArray *registers = qemu_plugin_get_registers();
    const qemu_plugin_reg_descriptor *all = (const void *)registers->data;
    for (unsigned int i = 0; i < registers->len; i++) {
        for (int number = 0; number < 16; number++) {
            if (strcmp(all[i].name, names[number]) == 0) {
                general[number] = all[i].handle;
            }
        }
        if (strcmp(all[i].name, "cr3") == 0) {
            control3 = all[i].handle;
        }
    }
}

static bool option(const char *text)
{
    static const struct {
        const char *name;
        uint64_t *number;
        const char **text;
    } known[] = {
        {"nvdimm=", NULL, &options.file},   {"out=", NULL, &options.out},
        {"base=", &options.base, NULL},     {"seed=", &options.seed, NULL},
        {"first=", &options.first, NULL},   {"every=", &options.every, NULL},
        {"images=", &options.images, NULL},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t length = strlen(known[i].name);
        if (strncmp(text, known[i].name, length) == 0) {
            if (known[i].number) {
                *known[i].number = strtoull(text + length, NULL, 0);
            } else {
                *known[i].text = strdup(text + length);
            }
            return true;
        }
    }
    return false;
}

EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int count, char **arguments)
{
    for (int i = 0; i < count; i++) {
        if (!option(arguments[i])) {
            die("unknown argument %s", arguments[i]);
        }
    }
    if (!options.file || !options.out || !options.base || !options.every) {
        die("arguments needed: nvdimm, base, out; every must not be 0");
    }
    if (!info->system_emulation || strcmp(info->target_name, "x86_64") != 0) {
        die("for whole machines of x86_64");
    }
    qemu_plugin_register_vcpu_init_cb(id, on_processor);
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_block);
    return 0;
}
