/* Loaded ahead of the C library (LD_PRELOAD), this makes a processor with AVX-512 one with AMX, for
 * the process and those that it starts. Each instruction on tiles raises SIGILL there; the handler
 * does what it would do and goes on behind it, and stops the process, with a line that says why,
 * where the processor would raise a fault. Linux is spoken for where it says what there is: flags
 * of /proc/cpuinfo, and the permission to use tiles, without which they are no instructions.
 *
 * Source: Intel SDM volume 2, the instructions and their exception classes AMX-E1 to AMX-E6; Linux,
 * Documentation/arch/x86/xstate.rst. A thread's tiles are its own and a forked child has a copy. Not
 * as on a processor: a signal's handler finds the tiles that it interrupted, where Linux shows none.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64, WORDS = ROW_BYTES / 4 };

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} Configuration;

static __thread __attribute__((tls_model("initial-exec"))) struct {
    Configuration configuration;
    __attribute__((aligned(64))) uint8_t data[TILES][ROWS][ROW_BYTES];
} mine;

/* What was done, in all processes that count into one file (TILE_TRAP_COUNTS). */
enum { CONFIGURED, STORED_CONFIGURATION, RELEASED, ZEROED, LOADED, STORED, BF16, BYTES, KINDS };
static uint64_t own_counts[KINDS], *counts = own_counts;

static int permitted;

/* ---- faults ----------------------------------------------------------------------------------- */

static struct sigaction wanted; /* the program's own action for SIGILL */
static __thread const char *fault; /* why the processor would stop here */

/* Those of the C library, looked up before there are threads: that takes the loader's lock. */
typedef int Open(const char *, int, ...);
static struct {
    int (*sigaction)(int, const struct sigaction *, struct sigaction *);
    long (*syscall)(long, ...);
    Open *open, *open64;
} next;

static void look_up(void) {
    if (next.open64) return;
    next.sigaction = (__typeof__(next.sigaction))dlsym(RTLD_NEXT, "sigaction");
    next.syscall = (__typeof__(next.syscall))dlsym(RTLD_NEXT, "syscall");
    next.open = (Open *)dlsym(RTLD_NEXT, "open");
    next.open64 = (Open *)dlsym(RTLD_NEXT, "open64");
}

static void pass_on(int number, siginfo_t *info, void *context) {
    if (wanted.sa_flags & SA_SIGINFO) {
        wanted.sa_sigaction(number, info, context);
    } else if (wanted.sa_handler == SIG_DFL || wanted.sa_handler == SIG_IGN) {
        struct sigaction standard = {.sa_handler = SIG_DFL};
        next.sigaction(SIGILL, &standard, NULL);
        raise(SIGILL);
    } else {
        wanted.sa_handler(number);
    }
}

/* ---- instructions ----------------------------------------------------------------------------- */

typedef struct {
    int operation, prefix, is_memory, reg, rm, third; /* opcode; 0, 66, F3, F2 as 0 to 3; operands */
    uint8_t *address;                                 /* of memory, without the index */
    int64_t index;
    const uint8_t *next;
} Instruction;

static const int NUMBERED[16] = {
    REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
    REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
};

static int32_t displacement(const uint8_t **at) {
    int32_t found;
    memcpy(&found, *at, 4);
    *at += 4;
    return found;
}

/* Memory operand of the ModRM byte before `at`. */
static void memory(Instruction *one, const uint8_t *at, int mod, const int *extend,
                   const greg_t *registers) {
    int64_t base = 0, distance = 0;
    if (one->rm == 4) {
        int sib = *at++, index = (sib >> 3 & 7) | extend[0];
        if (index != 4) one->index = (int64_t)((uint64_t)registers[NUMBERED[index]] << (sib >> 6));
        if ((sib & 7) == 5 && mod == 0) distance = displacement(&at);
        else base = registers[NUMBERED[(sib & 7) | extend[1]]];
    } else if (one->rm == 5 && mod == 0) {
        distance = displacement(&at);
        base = (int64_t)at;
    } else {
        base = registers[NUMBERED[one->rm | extend[1]]];
    }
    if (mod == 1) distance = (int8_t)*at++;
    if (mod == 2) distance = displacement(&at);
    one->address = (uint8_t *)(base + distance);
    one->next = at;
}

/* Whether there may be an instruction on tiles: a VEX prefix of three bytes, map 0F38, 128 bits. */
static int decoded(Instruction *one, const greg_t *registers) {
    const uint8_t *code = (const uint8_t *)registers[REG_RIP];
    if (code[0] != 0xC4 || (code[1] & 31) != 2 || (code[2] & 0x84)) return 0;
    int mod = code[4] >> 6;
    int extend[2] = {code[1] & 0x40 ? 0 : 8, code[1] & 0x20 ? 0 : 8}; /* of an index, of a base */
    *one = (Instruction){.operation = code[3], .prefix = code[2] & 3, .is_memory = mod != 3,
                         .reg = code[4] >> 3 & 7, .rm = code[4] & 7,
                         .third = ~(code[2] >> 3) & 15, .next = code + 5};
    if (one->is_memory) memory(one, code + 5, mod, extend, registers);
    return 1;
}

static int rows_of(int tile) { return mine.configuration.rows[tile]; }
static int bytes_of(int tile) { return mine.configuration.row_bytes[tile]; }

static const char *wrong_in(const Configuration *new) {
    if (new->palette > 1) return "ldtilecfg: no such palette";
    if (new->start_row) return "ldtilecfg: a start row, which code of ours never has";
    for (int n = 0; n < 14; n++)
        if (new->reserved[n]) return "ldtilecfg: reserved bytes are set";
    for (int n = 0; n < 16; n++) {
        if (n >= TILES && (new->row_bytes[n] || new->rows[n])) return "ldtilecfg: a ninth tile";
        if (new->row_bytes[n] > ROW_BYTES || new->rows[n] > ROWS) return "ldtilecfg: a large tile";
        if (!new->row_bytes[n] != !new->rows[n]) return "ldtilecfg: a tile of half a size";
    }
    return NULL;
}

static void configure(const uint8_t *address) {
    Configuration new;
    memcpy(&new, address, sizeof new);
    memset(&mine, 0, sizeof mine);
    if (!new.palette) return;
    fault = wrong_in(&new);
    mine.configuration = new;
}

static int done(int kind) {
    __atomic_fetch_add(&counts[kind], 1, __ATOMIC_RELAXED);
    return 1;
}

static int on_configuration(const Instruction *one) {
    uint8_t *address = one->address + one->index;
    if (one->is_memory && one->reg == 0 && one->prefix == 0) {
        configure(address);
        return done(CONFIGURED);
    }
    if (one->is_memory && one->reg == 0 && one->prefix == 1) {
        memcpy(address, &mine.configuration, sizeof mine.configuration);
        return done(STORED_CONFIGURATION);
    }
    if (!one->is_memory && one->prefix == 0 && one->reg == 0 && one->rm == 0) {
        memset(&mine, 0, sizeof mine);
        return done(RELEASED);
    }
    if (!one->is_memory && one->prefix == 3 && one->rm == 0) {
        if (!rows_of(one->reg)) fault = "tilezero: a tile that is not configured";
        memset(mine.data[one->reg], 0, sizeof mine.data[0]);
        return done(ZEROED);
    }
    return 0;
}

static int on_memory(const Instruction *one) {
    if (!one->is_memory || one->rm != 4 || one->prefix == 0) return 0;
    int rows = rows_of(one->reg), bytes = bytes_of(one->reg);
    if (!rows) fault = "tileload or tilestore: a tile that is not configured";
    if (one->prefix == 2) {
        for (int row = 0; row < rows; row++)
            memcpy(one->address + row * one->index, mine.data[one->reg][row], bytes);
        return done(STORED);
    }
    uint8_t read[ROWS][ROW_BYTES] = {{0}};
    for (int row = 0; row < rows; row++) memcpy(read[row], one->address + row * one->index, bytes);
    memcpy(mine.data[one->reg], read, sizeof read);
    return done(LOADED);
}

/* Even numbers along k in one chain from zero, odd ones in another; their sum is added. Numbers are
 * rounded to the nearest, and denormal ones, read or made, are zeros: MXCSR, which Linux puts back
 * when the handler returns. */
static __attribute__((noinline)) void add_halves(int c, int a, int b, int rows, int depth) {
    for (int m = 0; m < rows; m++) {
        __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
        const uint32_t *left = (const uint32_t *)mine.data[a][m];
        for (int k = 0; k < depth; k++) {
            __m512i x = _mm512_set1_epi32((int)left[k]), y = _mm512_load_si512(mine.data[b][k]);
            __m512i upper = _mm512_set1_epi32((int)0xFFFF0000);
            even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                                   _mm512_castsi512_ps(_mm512_slli_epi32(y, 16)), even);
            odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(x, upper)),
                                  _mm512_castsi512_ps(_mm512_and_si512(y, upper)), odd);
        }
        float *sums = (float *)mine.data[c][m];
        _mm512_store_ps(sums, _mm512_add_ps(_mm512_load_ps(sums), _mm512_add_ps(even, odd)));
    }
}

/* The number of that place in each word, with its sign or without. */
static __m512i byte_of(__m512i words, int place, int is_signed) {
    __m512i top = _mm512_sllv_epi32(words, _mm512_set1_epi32(24 - 8 * place));
    return is_signed ? _mm512_srai_epi32(top, 24) : _mm512_srli_epi32(top, 24);
}

static void add_bytes(int c, int a, int b, int rows, int depth, int prefix) {
    int left_signed = prefix >= 2, right_signed = prefix & 1; /* uud, usd, sud, ssd */
    for (int m = 0; m < rows; m++) {
        __m512i sums = _mm512_load_si512(mine.data[c][m]);
        const uint32_t *left = (const uint32_t *)mine.data[a][m];
        for (int k = 0; k < depth; k++) {
            __m512i x = _mm512_set1_epi32((int)left[k]), y = _mm512_load_si512(mine.data[b][k]);
            for (int place = 0; place < 4; place++) {
                __m512i one = byte_of(x, place, left_signed);
                __m512i other = byte_of(y, place, right_signed);
                sums = _mm512_add_epi32(sums, _mm512_mullo_epi32(one, other));
            }
        }
        _mm512_store_si512(mine.data[c][m], sums);
    }
}

static const char *wrong_in_product(int c, int a, int b) {
    if (c == a || c == b || a == b) return "product: a tile twice";
    if (b >= TILES) return "product: no such tile";
    if (!rows_of(c) || !rows_of(a) || !rows_of(b)) return "product: a tile that is not configured";
    if (bytes_of(a) % 4 || bytes_of(b) % 4 || bytes_of(c) % 4) return "product: half a word";
    if (rows_of(c) != rows_of(a) || bytes_of(c) != bytes_of(b) || bytes_of(a) / 4 != rows_of(b))
        return "product: sizes that do not fit";
    return NULL;
}

static int product(const Instruction *one) {
    int c = one->reg, a = one->rm, b = one->third, is_bf16 = one->operation == 0x5C;
    if (one->is_memory || (is_bf16 && one->prefix != 2)) return 0;
    fault = wrong_in_product(c, a, b);
    if (fault) return 1;
    int rows = rows_of(c), depth = rows_of(b);
    if (is_bf16) {
        _mm_setcsr(0x9FC0); /* all exceptions masked, denormals are zeros, to the nearest */
        add_halves(c, a, b, rows, depth);
    } else {
        add_bytes(c, a, b, rows, depth, one->prefix);
    }
    for (int row = 0; row < rows; row++)
        memset(mine.data[c][row] + bytes_of(c), 0, ROW_BYTES - bytes_of(c));
    return done(is_bf16 ? BF16 : BYTES);
}

static int carried_out(const Instruction *one) {
    switch (one->operation) {
    case 0x49: return on_configuration(one);
    case 0x4B: return on_memory(one);
    case 0x5C:
    case 0x5E: return product(one);
    default: return 0;
    }
}

/* Those that follow the first are done at once: a signal takes longer than any of them. */
static void handle(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    Instruction one;
    int error = errno, some = 0;
    while (info->si_code > 0 && decoded(&one, registers) && carried_out(&one)) {
        if (!permitted) fault = "the system was not asked for the permission";
        if (fault) {
            fprintf(stderr, "tile trap: %s\n", fault);
            some = 0;
            break;
        }
        registers[REG_RIP] = (greg_t)one.next;
        some = 1;
    }
    if (!some) pass_on(number, info, context);
    errno = error;
}

/* ---- what a program asks the system ----------------------------------------------------------- */

int sigaction(int number, const struct sigaction *new, struct sigaction *old) {
    look_up();
    if (number != SIGILL) return next.sigaction(number, new, old);
    if (old) *old = wanted;
    if (new) wanted = *new;
    return 0;
}

sighandler_t signal(int number, sighandler_t handler) {
    struct sigaction new = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    return sigaction(number, &new, &old) ? SIG_ERR : old.sa_handler;
}

enum { ARCH_PRCTL = 158, GET_PERMITTED = 0x1022, REQUEST = 0x1023, TILE_DATA = 18 };

/* Linux is asked first: what a filter of system calls says about tiles stays as it is. */
static long permission(long code, long argument, long answer) {
    if (code == GET_PERMITTED && !answer && permitted) *(uint64_t *)argument |= 3ull << 17;
    if (code == REQUEST && argument == TILE_DATA && answer && errno == EOPNOTSUPP) {
        permitted = 1;
        return 0;
    }
    return answer;
}

long syscall(long number, ...) {
    look_up();
    va_list list;
    long arguments[6];
    va_start(list, number);
    for (int n = 0; n < 6; n++) arguments[n] = va_arg(list, long);
    va_end(list);
    long answer = next.syscall(number, arguments[0], arguments[1], arguments[2], arguments[3],
                               arguments[4], arguments[5]);
    return number == ARCH_PRCTL ? permission(arguments[0], arguments[1], answer) : answer;
}

/* A copy of the file, in memory, whose lines of flags end with FLAGS. */
static int cpuinfo(int real) {
    int copy = memfd_create("cpuinfo", MFD_CLOEXEC);
    FILE *from = fdopen(real, "r"), *to = fdopen(dup(copy), "w");
    char *line = NULL;
    size_t room = 0;
    for (ssize_t length; (length = getline(&line, &room, from)) > 0;) {
        int has_flags = !strncmp(line, "flags", 5);
        fwrite(line, 1, has_flags ? length - 1 : length, to);
        if (has_flags) fputs(" " FLAGS "\n", to);
    }
    free(line);
    fclose(from);
    fclose(to);
    lseek(copy, 0, SEEK_SET);
    return copy;
}

static int opened(Open *really, const char *path, int flags, mode_t mode) {
    int file = really(path, flags, mode);
    return file >= 0 && !strcmp(path, "/proc/cpuinfo") ? cpuinfo(file) : file;
}

#define OPENING(name)                                  \
    int name(const char *path, int flags, ...) {       \
        look_up();                                     \
        va_list list;                                  \
        va_start(list, flags);                         \
        mode_t mode = va_arg(list, mode_t);            \
        va_end(list);                                  \
        return opened(next.name, path, flags, mode);   \
    }

OPENING(open)
OPENING(open64)

__attribute__((constructor)) static void begin(void) {
    look_up();
    struct sigaction own = {.sa_sigaction = handle,
                            .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    next.sigaction(SIGILL, &own, &wanted);
    const char *path = getenv("TILE_TRAP_COUNTS");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *shared = mmap(NULL, sizeof own_counts, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared != MAP_FAILED) counts = shared;
    close(file);
}
