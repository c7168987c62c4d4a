/* Cutting devices into green contexts: exec/cuda/green.c on the emulated driver, for devices of
 * several sizes, and for drivers that cannot do it; and several devices with their memories. */
#include "exec/cuda/green.h"

#include "exec/cuda/emulator/green.h"
#include "exec/cuda/emulator/machine/machine.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

static int failed;

static void expect(bool well, const char *what)
{
    if (!well) {
        printf("%u multiprocessors, driver %u: %s\n", emulator_device.sm_count,
               emulator_device.driver_version, what);
        failed++;
    }
}

/* Makes a stream of each part; only events of the part's own context may be recorded in it. */
static void use(uint32_t count, const rpexec_cuda_part *parts)
{
    void *streams[64] = {NULL};
    cudaEvent_t event = NULL;
    for (uint32_t i = 0; i < count; i++) {
        expect(rpexec_green_stream(&parts[i], &streams[i]) == 0, "no stream");
    }
    expect(rpexec_green_enter(parts[0].context) == 0, "not entered");
    expect(cudaEventCreateWithFlags(&event, 0) == cudaSuccess, "no event");
    expect(cudaEventRecord(event, streams[0]) == cudaSuccess, "not recorded");
    expect(count == 1 || cudaEventRecord(event, streams[1]) == cudaErrorInvalidResourceHandle,
           "recorded in another context's stream");
    expect(cudaEventRecord(event, NULL) == cudaErrorInvalidResourceHandle,
           "recorded in a stream of the whole device");
    (void)cudaEventDestroy(event);
    (void)cudaSetDevice(0);
    for (uint32_t i = 0; i < count; i++) {
        (void)cudaStreamDestroy(streams[i]);
    }
}

static void cut(emulated_device device, uint32_t count, uint32_t each)
{
    rpexec_cuda_part parts[64];
    const char *why = "";
    emulator_device = device;
    if (!rpexec_green_split(0, count, count, parts, &why)) {
        expect(false, why);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        expect(parts[i].sm_count == each, "parts of another size");
    }
    use(count, parts);
    rpexec_green_unsplit(count - 1, parts + 1);
    expect(emulator_green_contexts() == 1, "the first part does not stay");
    rpexec_green_unsplit(1, parts);
    expect(emulator_green_contexts() == 0, "parts stay");
}

/* Cuts a device into 8 parts, of which only 2 are made. */
static void cut_for_few(void)
{
    rpexec_cuda_part parts[2];
    const char *why = "";
    emulator_device = (emulated_device){132, 8, 2, 13000, 0};
    expect(rpexec_green_split(0, 8, 2, parts, &why), why);
    expect(parts[0].sm_count == 16 && parts[1].sm_count == 16, "parts of another size");
    expect(emulator_green_contexts() == 2, "more contexts than were asked for");
    rpexec_green_unsplit(2, parts);
}

static void refuse(emulated_device device, uint32_t count, const char *reason)
{
    rpexec_cuda_part parts[64];
    const char *why = "";
    emulator_device = device;
    expect(!rpexec_green_split(0, count, count, parts, &why), "it is cut all the same");
    expect(strcmp(why, reason) == 0, why);
    expect(emulator_green_contexts() == 0, "parts stay");
}

/* With two devices, a stream and the events recorded in it belong to the device that was
 * current. */
static void tell_apart(void)
{
    static const emulated_machine one = {.devices = 1};
    static const emulated_machine two = {.devices = 2};
    cudaStream_t streams[2] = {NULL};
    cudaEvent_t event = NULL;
    int count = 0;
    int can = 1;
    emulator_set_machine(&two);
    expect(cudaGetDeviceCount(&count) == cudaSuccess && count == 2, "not two devices");
    expect(cudaSetDevice(2) == cudaErrorInvalidDevice, "a third device");
    for (int i = 0; i < 2; i++) {
        expect(cudaSetDevice(i) == cudaSuccess, "not entered");
        expect(cudaStreamCreateWithFlags(&streams[i], 0) == cudaSuccess, "no stream");
    }
    expect(cudaEventCreateWithFlags(&event, 0) == cudaSuccess, "no event");
    expect(cudaEventRecord(event, streams[1]) == cudaSuccess, "not recorded");
    expect(cudaEventRecord(event, streams[0]) == cudaErrorInvalidResourceHandle,
           "recorded in another device's stream");
    expect(cudaDeviceCanAccessPeer(&can, 0, 1) == cudaSuccess && can == 0, "peers");
    (void)cudaEventDestroy(event);
    for (int i = 0; i < 2; i++) {
        (void)cudaStreamDestroy(streams[i]);
    }
    emulator_set_machine(&one);
    (void)cudaSetDevice(0);
}

/* A device reaches another device only after asking for it, and a copy must not cross the end of
 * pinned memory. */
static void reach(void)
{
    static const emulated_machine one = {.devices = 1};
    static const emulated_machine two = {.devices = 2, .peers = true};
    static unsigned char host[64];
    cudaStream_t stream = NULL;
    void *memory[2] = {NULL};
    int can = 0;
    emulator_set_machine(&two);
    for (int i = 0; i < 2; i++) {
        expect(cudaSetDevice(i) == cudaSuccess, "not entered");
        expect(cudaMalloc(&memory[i], sizeof host) == cudaSuccess, "no memory");
    }
    expect(cudaStreamCreateWithFlags(&stream, 0) == cudaSuccess, "no stream");
    expect(cudaMemcpyAsync(memory[1], memory[0], sizeof host, cudaMemcpyDefault, stream) ==
               cudaErrorInvalidValue,
           "a copy from a device that is not reached");
    expect(cudaDeviceCanAccessPeer(&can, 1, 0) == cudaSuccess && can == 1, "no peers");
    expect(cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess, "it is not reached");
    expect(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessAlreadyEnabled, "twice");
    expect(cudaMemcpyAsync(memory[1], memory[0], sizeof host, cudaMemcpyDefault, stream) ==
               cudaSuccess,
           "no copy from a device that is reached");
    expect(cudaHostRegister(host, sizeof host / 2, 0) == cudaSuccess, "not pinned");
    expect(cudaMemcpyAsync(memory[1], host, sizeof host, cudaMemcpyDefault, stream) ==
               cudaErrorInvalidValue,
           "a copy across the end of pinned memory");
    expect(cudaMemcpyAsync(memory[1], host, sizeof host / 2, cudaMemcpyDefault, stream) ==
               cudaSuccess,
           "no copy from pinned memory");
    expect(cudaHostUnregister(host) == cudaSuccess, "still pinned");
    expect(cudaHostUnregister(host) == cudaErrorInvalidValue, "given back twice");
    (void)cudaFree(memory[0]);
    (void)cudaFree(memory[1]);
    (void)cudaStreamDestroy(stream);
    emulator_set_machine(&one);
    (void)cudaSetDevice(0);
    expect(emulator_counted(EMULATED_LEFT) == 0, "something is left");
}

int main(void)
{
    tell_apart();
    reach();
    cut((emulated_device){132, 8, 2, 13000, 0}, 8, 16); /* H200 */
    cut_for_few();
    cut((emulated_device){132, 8, 2, 12050, 0}, 16, 8); /* the first driver that can do it */
    cut((emulated_device){132, 8, 2, 13000, 0}, 20, 6); /* more than co-scheduled groups */
    cut((emulated_device){128, 2, 1, 13000, 0}, 8, 16); /* RTX 4090 */
    cut((emulated_device){132, 8, 2, 13000, 7}, 8, 16); /* co-scheduled groups would have 8 */
    cut((emulated_device){114, 8, 2, 13000, 0}, 8, 14); /* co-scheduled: 7 groups of 16, 14 of 8 */
    cut((emulated_device){120, 8, 2, 13000, 0}, 14, 8); /* of 8, but co-scheduled */
    cut((emulated_device){27, 4, 2, 13000, 0}, 8, 2);
    refuse((emulated_device){132, 8, 2, 12040, 0}, 8, "cuGreenCtxStreamCreate");
    refuse((emulated_device){132, 8, 2, 12030, 0}, 8, "cuDeviceGetDevResource");
    refuse((emulated_device){6, 2, 2, 13000, 0}, 8, "too few groups of multiprocessors");
    refuse((emulated_device){132, 8, 2, 13000, 0}, 65, "more than 64 parts");
    printf("green contexts: %d failures\n", failed);
    return failed != 0;
}
