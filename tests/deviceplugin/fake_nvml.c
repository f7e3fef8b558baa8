// The made-up libnvidia-ml.so.1 of ../shared/tools/fake-nvml, and what more the tests need of it:
//   $FAKE_NVML.hold        while this file exists, nvmlInit does not return
//   $FAKE_NVML.recovery    lines "INDEX ACTION": the recovery action of a GPU (1: a reset)
//   $FAKE_NVML.broken      lines "INDEX CODE": nvmlDeviceGetMigMode of a GPU answers CODE
#define nvmlInitWithFlags shared_nvmlInitWithFlags
#define nvmlDeviceGetMigMode shared_nvmlDeviceGetMigMode
#include "nvml.c"
#undef nvmlInitWithFlags
#undef nvmlDeviceGetMigMode

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
