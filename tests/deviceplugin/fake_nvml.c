// The made-up libnvidia-ml.so.1 of ../shared/tools/fake-nvml, and what more the tests need of it:
//   $FAKE_NVML.hold        while this file exists, nvmlInit does not return
//   $FAKE_NVML.recovery    lines "INDEX ACTION": the recovery action of a GPU (1: a reset)
//   $FAKE_NVML.broken      lines "INDEX CODE": nvmlDeviceGetMigMode of a GPU answers CODE
//   $FAKE_NVML.refused     lines "INDEX CODE": nvmlDeviceRegisterEvents of a GPU answers CODE, which spoils the set
//   $FAKE_NVML.deaf        lines "INDEX CODE": nvmlEventSetWait answers CODE if the GPU is in the set
//   $FAKE_NVML.stale       while this file exists, a process that has found a GPU lost always does
// Only events of GPUs in the set arrive.
#define nvmlInitWithFlags shared_nvmlInitWithFlags
#define nvmlDeviceGetMigMode shared_nvmlDeviceGetMigMode
#define nvmlDeviceGetCount_v2 shared_nvmlDeviceGetCount_v2
#define nvmlEventSetCreate shared_nvmlEventSetCreate
#define nvmlEventSetFree shared_nvmlEventSetFree
#define nvmlDeviceRegisterEvents shared_nvmlDeviceRegisterEvents
#define nvmlEventSetWait_v2 shared_nvmlEventSetWait_v2
#include "nvml.c"
#undef nvmlInitWithFlags
#undef nvmlDeviceGetMigMode
#undef nvmlDeviceGetCount_v2
#undef nvmlEventSetCreate
#undef nvmlEventSetFree
#undef nvmlDeviceRegisterEvents
#undef nvmlEventSetWait_v2

enum {RECOVERY_ACTION = 230};

static const char *beside(const char *end) {
    static char name[600];
    snprintf(name, sizeof name, "%s.%s", path(), end);
    return name;
}

static int number_of(const char *end, int index, int other) {
    FILE *file = fopen(beside(end), "r");
    int gpu, number;
    while (file && fscanf(file, "%d %d", &gpu, &number) == 2)
        if (gpu == index) other = number;
    if (file) fclose(file);
    return other;
}

int nvmlInitWithFlags(u flags) {
    while (!access(beside("hold"), F_OK)) usleep(20000);
    return shared_nvmlInitWithFlags(flags);
}

int nvmlDeviceGetMigMode(Dev *gpu, u *current, u *pending) {
    int error = number_of("broken", gpu->idx, 0);
    return error ? error : shared_nvmlDeviceGetMigMode(gpu, current, pending);
}

int nvmlDeviceGetCount_v2(u *count) {
    static char was_lost[128];
    int answer = shared_nvmlDeviceGetCount_v2(count);
    int stale = !access(beside("stale"), F_OK);
    for (int each = 0; each < ngpu; each++) {
        if (stale && was_lost[each]) d[each].lost = 1;
        was_lost[each] = d[each].lost;
    }
    return answer;
}

typedef struct {
    long read;
    int spoilt;
    char has[128];
} Set;

int nvmlEventSetCreate(Set **set) {
    struct stat events;
    lg("nvmlEventSetCreate");
    *set = calloc(1, sizeof **set);
    (*set)->read = stat(xp(), &events) ? 0 : events.st_size;
    return OK;
}

int nvmlEventSetFree(Set *set) {
    free(set);
    return OK;
}

int nvmlDeviceRegisterEvents(Dev *gpu, ull kinds, Set *set) {
    int error = number_of("refused", gpu->idx, gpu->lost ? LOST : OK);
    if (error) {
        if (error != NOTSUP) set->spoilt = 1;
        return error;
    }
    lg("nvmlDeviceRegisterEvents");
    set->has[gpu->idx] = 1;
    return OK;
}

int nvmlEventSetWait_v2(Set *set, Ev *event, u wait_ms) {
    if (set->spoilt) return INVALID;
    for (u waited_ms = 0; waited_ms <= wait_ms; waited_ms += 50) {
        struct stat events;
        for (int each = 0; each < ngpu; each++) {
            int error = set->has[each] ? number_of("deaf", each, OK) : OK;
            if (error) return error;
        }
        while (!stat(xp(), &events) && events.st_size > set->read) {
            FILE *file = fopen(xp(), "r");
            int gpu, xid;
            fseek(file, set->read, 0);
            int found = fscanf(file, "%d %d\n", &gpu, &xid);
            set->read = ftell(file);
            fclose(file);
            if (found == 2 && set->has[gpu]) {
                *event = (Ev){.dev = &d[gpu], .type = 8, .data = xid, .gi = 0xFFFFFFFF, .ci = 0xFFFFFFFF};
                return OK;
            }
        }
        usleep(50000);
    }
    return TIMEOUT;
}

typedef struct {
    u id, scope;
    long long timestamp, latency;
    int type, status;
    union { double d; u ui; ull ull_; } value;
} Field;

int nvmlDeviceGetFieldValues(Dev *gpu, int count, Field *fields) {
    for (int each = 0; each < count; each++) {
        fields[each].status = fields[each].id == RECOVERY_ACTION ? OK : NOTSUP;
        fields[each].value.ui = number_of("recovery", gpu->idx, 0);
    }
    return OK;
}
