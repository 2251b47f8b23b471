/* What the plugin uses of QEMU's interface for TCG plugins, version 4 (QEMU 10), and of glib's arrays. Declared
 * here because Debian packages no header for it; the symbols are QEMU's own when it loads the plugin. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;
struct qemu_plugin_register;

typedef struct {
    const char *target_name;
    struct {
        int min;
        int cur;
    } version;
    bool system_emulation;
    struct {
        int smp_vcpus;
        int max_vcpus;
    } system;
} qemu_info_t;

typedef struct {
    struct qemu_plugin_register *handle;
    const char *name;
    const char *feature;
} qemu_plugin_reg_descriptor;

typedef struct {
    char *data;
    unsigned int len;
} GArray;

typedef struct {
    uint8_t *data;
    unsigned int len;
} GByteArray;

GByteArray *g_byte_array_new(void);
GByteArray *g_byte_array_set_size(GByteArray *array, unsigned int length);

enum { NO_REGISTERS = 0, READ_REGISTERS = 1 };
enum { MEMORY_WRITES = 2 };

typedef void (*vcpu_callback)(qemu_plugin_id_t id, unsigned int vcpu);
typedef void (*block_callback)(qemu_plugin_id_t id, struct qemu_plugin_tb *block);
typedef void (*exit_callback)(qemu_plugin_id_t id, void *data);
typedef void (*instruction_callback)(unsigned int vcpu, void *data);
typedef void (*memory_callback)(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data);

void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t id, vcpu_callback callback);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, block_callback callback);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, exit_callback callback, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *instruction, instruction_callback callback,
                                            int registers, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *instruction, memory_callback callback,
                                      int registers, int accesses, void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *instruction, void *into, size_t bytes);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *instruction);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *instruction);
unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info);
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t address);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *address);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *address);
GArray *qemu_plugin_get_registers(void);
int qemu_plugin_read_register(struct qemu_plugin_register *handle, GByteArray *into);
