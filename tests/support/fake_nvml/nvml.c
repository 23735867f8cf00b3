/*
 * A stand-in for libnvidia-ml.so.1: the functions that Engine Room calls through pynvml.
 *
 * It has no values of its own. Everything it answers stands in the text file that
 * FAKE_NVML_STATE names, which it reads again whenever that file is replaced (README.md).
 * Signatures, structures and return codes are those of nvml.h (CUDA 12/13), as pynvml declares them.
 * A function is left out when the macro WITHOUT_<its name> is set, as in an older driver.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef int nvmlReturn_t;
typedef void *nvmlDevice_t;
typedef unsigned long long u64;

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, ARGUMENT_VERSION_MISMATCH = 25 };

typedef struct { u64 total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; u64 total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned pid; u64 usedGpuMemory; unsigned gpuInstanceId, computeInstanceId; } nvmlProcessInfo_t;
typedef struct { unsigned version, sensorType; int temperature; } nvmlTemperature_t;

#define GPUS 16
#define PROCESSES 64
#define ERRORS 16

typedef struct { int graphics; nvmlProcessInfo_t info; } held_t;
typedef struct { char call[32]; nvmlReturn_t code; } error_t;
typedef struct {
    char uuid[96], name[96];
    int has_memory, has_utilisation, has_power, has_limit, has_temperature, has_sm, has_memclock, has_energy, has_mig;
    u64 total, reserved, used, energy;
    unsigned gpu_percent, memory_percent, power, limit, temperature, sm, memclock, mig;
    int processes, errors;
    held_t held[PROCESSES];
    error_t error[ERRORS];
} gpu_t;

static struct {
    nvmlReturn_t init_error, error;
    char driver[80];
    int gpus;
    gpu_t gpu[GPUS];
} state;
static struct stat seen;
static int initialised;

static void parse(FILE *file) {
    char line[512];
    memset(&state, 0, sizeof state);
    while (fgets(line, sizeof line, file)) {
        int index, used = 0;
        char key[32] = "";
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "init_error %d", &state.init_error) == 1 || sscanf(line, "error %d", &state.error) == 1 ||
            sscanf(line, "driver %79s", state.driver) == 1)
            continue;
        if (sscanf(line, "gpu %d %31s %n", &index, key, &used) < 2 || index < 0 || index >= GPUS)
            continue;
        gpu_t *gpu = &state.gpu[index];
        const char *rest = used ? line + used : "";
        if (index >= state.gpus)
            state.gpus = index + 1;
        if (!strcmp(key, "uuid")) snprintf(gpu->uuid, sizeof gpu->uuid, "%s", rest);
        else if (!strcmp(key, "name")) snprintf(gpu->name, sizeof gpu->name, "%s", rest);
        else if (!strcmp(key, "memory")) gpu->has_memory = sscanf(rest, "%llu %llu %llu", &gpu->total, &gpu->reserved, &gpu->used) == 3;
        else if (!strcmp(key, "utilisation")) gpu->has_utilisation = sscanf(rest, "%u %u", &gpu->gpu_percent, &gpu->memory_percent) == 2;
        else if (!strcmp(key, "power")) gpu->has_power = sscanf(rest, "%u", &gpu->power) == 1;
        else if (!strcmp(key, "limit")) gpu->has_limit = sscanf(rest, "%u", &gpu->limit) == 1;
        else if (!strcmp(key, "temperature")) gpu->has_temperature = sscanf(rest, "%u", &gpu->temperature) == 1;
        else if (!strcmp(key, "sm_clock")) gpu->has_sm = sscanf(rest, "%u", &gpu->sm) == 1;
        else if (!strcmp(key, "memory_clock")) gpu->has_memclock = sscanf(rest, "%u", &gpu->memclock) == 1;
        else if (!strcmp(key, "energy")) gpu->has_energy = sscanf(rest, "%llu", &gpu->energy) == 1;
        else if (!strcmp(key, "mig")) gpu->has_mig = sscanf(rest, "%u", &gpu->mig) == 1;
        else if (!strcmp(key, "error") && gpu->errors < ERRORS) {
            error_t *error = &gpu->error[gpu->errors];
            gpu->errors += sscanf(rest, "%31s %d", error->call, &error->code) == 2;
        } else if (!strcmp(key, "process") && gpu->processes < PROCESSES) {
            char kind[16], amount[32];
            held_t *held = &gpu->held[gpu->processes];
            held->info.gpuInstanceId = held->info.computeInstanceId = UINT32_MAX;
            if (sscanf(rest, "%15s %u %31s %u %u", kind, &held->info.pid, amount, &held->info.gpuInstanceId,
                       &held->info.computeInstanceId) < 3)
                continue;
            held->graphics = !strcmp(kind, "graphics");
            held->info.usedGpuMemory = strcmp(amount, "NA") ? strtoull(amount, NULL, 10) : ~0ULL;
            gpu->processes++;
        }
    }
}

/* Reads the file when it is another one than before; without a file there is no driver. */
static nvmlReturn_t refresh(void) {
    const char *path = getenv("FAKE_NVML_STATE");
    struct stat now;
    if (!path || stat(path, &now)) return DRIVER_NOT_LOADED;
    if (now.st_ino != seen.st_ino || now.st_mtim.tv_nsec != seen.st_mtim.tv_nsec || now.st_mtim.tv_sec != seen.st_mtim.tv_sec) {
        FILE *file = fopen(path, "r");
        if (!file) return DRIVER_NOT_LOADED;
        parse(file);
        fclose(file);
        seen = now;
    }
    return state.error;
}

static nvmlReturn_t ready(void) {
    nvmlReturn_t code = refresh();
    return code ? code : initialised ? OK : UNINITIALIZED;
}

/* The GPU behind a handle and the return code of `call` on it. */
static nvmlReturn_t find(nvmlDevice_t device, const char *call, gpu_t **gpu) {
    nvmlReturn_t code = ready();
    intptr_t index = (intptr_t)device - 1;
    if (code) return code;
    if (index < 0 || index >= state.gpus) return INVALID_ARGUMENT;
    *gpu = &state.gpu[index];
    for (int i = 0; i < (*gpu)->errors; i++)
        if (!strcmp((*gpu)->error[i].call, call) || !strcmp((*gpu)->error[i].call, "all"))
            return (*gpu)->error[i].code;
    return OK;
}

#define FIND(call) gpu_t *gpu; nvmlReturn_t code = find(device, call, &gpu); if (code) return code

nvmlReturn_t nvmlShutdown(void) {
    nvmlReturn_t code = ready();
    initialised = 0;
    return code;
}

const char *nvmlErrorString(nvmlReturn_t code) {
    static char text[32];
    snprintf(text, sizeof text, "fake error %d", code);
    return text;
}

#ifndef WITHOUT_nvmlInitWithFlags
nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    nvmlReturn_t code = refresh();
    (void)flags;
    if (code) return code;
    if (state.init_error) return state.init_error;
    initialised = 1;
    return OK;
}
#endif

nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned size) {
    nvmlReturn_t code = ready();
    if (!code) snprintf(text, size, "%s", state.driver);
    return code;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    nvmlReturn_t code = ready();
    if (!code) *count = (unsigned)state.gpus;
    return code;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *result) {
    nvmlDevice_t device = (nvmlDevice_t)(intptr_t)(index + 1);
    FIND("handle");
    *result = device;
    return OK;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned size) {
    FIND("uuid");
    snprintf(text, size, "%s", gpu->uuid);
    return OK;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *text, unsigned size) {
    FIND("name");
    snprintf(text, size, "%s", gpu->name);
    return OK;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    FIND("mig");
    *current = *pending = gpu->mig;
    return gpu->has_mig ? OK : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    FIND("memory");
    memory->total = gpu->total;
    memory->used = gpu->used + gpu->reserved;
    memory->free = gpu->total - memory->used;
    return gpu->has_memory ? OK : NOT_SUPPORTED;
}

#ifndef WITHOUT_nvmlDeviceGetMemoryInfo_v2
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    FIND("memory");
    if (memory->version != (sizeof *memory | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    memory->total = gpu->total;
    memory->reserved = gpu->reserved;
    memory->used = gpu->used;
    memory->free = gpu->total - gpu->used - gpu->reserved;
    return gpu->has_memory ? OK : NOT_SUPPORTED;
}
#endif

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    FIND("utilisation");
    rates->gpu = gpu->gpu_percent;
    rates->memory = gpu->memory_percent;
    return gpu->has_utilisation ? OK : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts) {
    FIND("power");
    *milliwatts = gpu->power;
    return gpu->has_power ? OK : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *milliwatts) {
    FIND("limit");
    *milliwatts = gpu->limit;
    return gpu->has_limit ? OK : NOT_SUPPORTED;
}

#ifndef WITHOUT_nvmlDeviceGetTemperatureV
nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *reading) {
    FIND("temperature");
    reading->temperature = (int)gpu->temperature;
    return gpu->has_temperature ? OK : NOT_SUPPORTED;
}
#endif

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *celsius) {
    FIND("temperature");
    (void)sensor;
    *celsius = gpu->temperature;
    return gpu->has_temperature ? OK : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned type, unsigned *megahertz) {
    FIND(type == 1 ? "sm_clock" : "memory_clock"); /* NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2 */
    *megahertz = type == 1 ? gpu->sm : gpu->memclock;
    return (type == 1 ? gpu->has_sm : gpu->has_memclock) ? OK : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, u64 *millijoules) {
    FIND("energy");
    *millijoules = gpu->energy;
    return gpu->has_energy ? OK : NOT_SUPPORTED;
}

static nvmlReturn_t running(nvmlDevice_t device, int graphics, unsigned *count, nvmlProcessInfo_t *infos) {
    FIND(graphics ? "graphics" : "compute");
    unsigned room = infos ? *count : 0, present = 0;
    for (int i = 0; i < gpu->processes; i++) {
        if (gpu->held[i].graphics != graphics) continue;
        if (present < room) infos[present] = gpu->held[i].info;
        present++;
    }
    *count = present;
    return present > room ? INSUFFICIENT_SIZE : OK;
}

#define RUNNING(name, graphics) \
    nvmlReturn_t name(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos) { \
        return running(device, graphics, count, infos); \
    }
RUNNING(nvmlDeviceGetComputeRunningProcesses_v2, 0)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v2, 1)
#ifndef WITHOUT_nvmlDeviceGetComputeRunningProcesses_v3
RUNNING(nvmlDeviceGetComputeRunningProcesses_v3, 0)
#endif
#ifndef WITHOUT_nvmlDeviceGetGraphicsRunningProcesses_v3
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v3, 1)
#endif
