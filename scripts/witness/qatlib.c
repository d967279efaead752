/* A qatlib without a device: what QATzip calls of it, served by zlib at the moment of polling.
 *
 * With it Intel's own QATzip runs its hardware path on any machine, so that our use of the library can be tried against the
 * real code: see ../qatzip-witness.sh. SIM_INSTANCES (2) instances; SIM_NO_DEVICE=1 shows none; SIM_FAIL_AT=n has the n-th
 * request answered with an error, as after a reset.
 */
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <zlib.h>
#include "cpa.h"
#include "cpa_dev.h"
#include "dc/cpa_dc.h"
#include "icp_sal_user.h"
#include "icp_sal_poll.h"
#include "qae_mem.h"

#define QUEUE 64

struct request {
    int compress;
    CpaBufferList *src, *dest;
    CpaDcRqResults *results;
    void *tag;
};

struct instance {
    pthread_mutex_t lock;
    CpaDcCallbackFn callback;
    int level;
    int count;
    struct request queue[QUEUE];
};

static struct instance instances[64];

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

CpaBoolean icp_sal_userIsQatAvailable(void) { return number("SIM_NO_DEVICE", 0) ? CPA_FALSE : CPA_TRUE; }
CpaStatus icp_sal_userStartMultiProcess(const char *name, CpaBoolean limit) { return CPA_STATUS_SUCCESS; }
CpaStatus icp_sal_userStop(void) { return CPA_STATUS_SUCCESS; }
CpaStatus icp_sal_pollAllDevices(void) { return CPA_STATUS_SUCCESS; }
CpaStatus icp_sal_poll_device_events(void) { return CPA_STATUS_RETRY; }
CpaStatus icp_sal_check_device(Cpa32U device) { return CPA_STATUS_SUCCESS; }
CpaStatus icp_sal_check_all_devices(void) { return CPA_STATUS_SUCCESS; }

CpaStatus cpaDcGetNumInstances(Cpa16U *count)
{
    *count = number("SIM_INSTANCES", 2);
    return CPA_STATUS_SUCCESS;
}

CpaStatus cpaDcGetInstances(Cpa16U count, CpaInstanceHandle *handles)
{
    for (int i = 0; i < count; i++) {
        pthread_mutex_init(&instances[i].lock, NULL);
        handles[i] = &instances[i];
    }
    return CPA_STATUS_SUCCESS;
}

CpaStatus cpaDcInstanceGetInfo2(const CpaInstanceHandle handle, CpaInstanceInfo2 *info)
{
    memset(info, 0, sizeof *info);
    info->operState = CPA_OPER_STATE_UP;
    info->requiresPhysicallyContiguousMemory = number("SIM_SVM", 0) ? CPA_FALSE : CPA_TRUE;
    info->isPolled = CPA_TRUE;
    return CPA_STATUS_SUCCESS;
}

CpaStatus cpaDcQueryCapabilities(CpaInstanceHandle handle, CpaDcInstanceCapabilities *can)
{
    memset(can, 0, sizeof *can);
    can->statelessDeflateCompression = CPA_TRUE;
    can->statelessDeflateDecompression = CPA_TRUE;
    can->checksumCRC32 = CPA_TRUE;
    can->dynamicHuffman = CPA_TRUE;
    can->compressAndVerify = CPA_TRUE;
    can->compressAndVerifyStrict = CPA_TRUE;
    can->autoSelectBestHuffmanTree = CPA_TRUE;
    return CPA_STATUS_SUCCESS;
}

CpaStatus cpaDcInstanceSetNotificationCb(const CpaInstanceHandle h, const CpaDcInstanceNotificationCbFunc f, void *tag) { return CPA_STATUS_SUCCESS; }
CpaStatus cpaDcStartInstance(CpaInstanceHandle h, Cpa16U n, CpaBufferList **buffers) { return CPA_STATUS_SUCCESS; }
CpaStatus cpaDcStopInstance(CpaInstanceHandle h) { return CPA_STATUS_SUCCESS; }
CpaStatus cpaDcSetAddressTranslation(const CpaInstanceHandle h, CpaVirtualToPhysical f) { return CPA_STATUS_SUCCESS; }
CpaStatus cpaDcBufferListGetMetaSize(const CpaInstanceHandle h, Cpa32U n, Cpa32U *size) { *size = 64; return CPA_STATUS_SUCCESS; }
CpaStatus cpaDcGetNumIntermediateBuffers(CpaInstanceHandle h, Cpa16U *count) { *count = 2; return CPA_STATUS_SUCCESS; }
CpaStatus cpaDcGetSessionSize(CpaInstanceHandle h, CpaDcSessionSetupData *s, Cpa32U *size, Cpa32U *ctx) { *size = 64; *ctx = 0; return CPA_STATUS_SUCCESS; }
CpaStatus cpaDcRemoveSession(const CpaInstanceHandle h, CpaDcSessionHandle s) { return CPA_STATUS_SUCCESS; }

CpaStatus cpaDcInitSession(CpaInstanceHandle h, CpaDcSessionHandle s, CpaDcSessionSetupData *setup, CpaBufferList *ctx, CpaDcCallbackFn callback)
{
    struct instance *instance = h;
    instance->callback = callback;
    instance->level = setup->compLevel;
    return CPA_STATUS_SUCCESS;
}

CpaStatus cpaDcUpdateSession(const CpaInstanceHandle h, CpaDcSessionHandle s, CpaDcSessionUpdateData *update)
{
    struct instance *instance = h;
    instance->level = update->compLevel;
    return CPA_STATUS_SUCCESS;
}

static CpaStatus submit(CpaInstanceHandle h, struct request request)
{
    struct instance *instance = h;
    CpaStatus status = CPA_STATUS_RETRY;
    pthread_mutex_lock(&instance->lock);
    if (instance->count < QUEUE) {
        instance->queue[instance->count++] = request;
        status = CPA_STATUS_SUCCESS;
    }
    pthread_mutex_unlock(&instance->lock);
    return status;
}

CpaStatus cpaDcCompressData2(CpaInstanceHandle h, CpaDcSessionHandle s, CpaBufferList *src, CpaBufferList *dest, CpaDcOpData *op, CpaDcRqResults *results, void *tag)
{
    return submit(h, (struct request){1, src, dest, results, tag});
}

CpaStatus cpaDcDecompressData(CpaInstanceHandle h, CpaDcSessionHandle s, CpaBufferList *src, CpaBufferList *dest, CpaDcRqResults *results, CpaDcFlush flush, void *tag)
{
    return submit(h, (struct request){0, src, dest, results, tag});
}

static void serve(struct instance *instance, struct request *request)
{
    static int served;
    CpaFlatBuffer *src = request->src->pBuffers, *dest = request->dest->pBuffers;
    CpaDcRqResults *results = request->results;
    z_stream stream;
    memset(&stream, 0, sizeof stream);
    stream.next_in = src->pData;
    stream.avail_in = src->dataLenInBytes;
    stream.next_out = dest->pData;
    stream.avail_out = dest->dataLenInBytes;
    results->status = CPA_DC_OK;
    if (__sync_add_and_fetch(&served, 1) == number("SIM_FAIL_AT", 0)) {
        results->status = CPA_DC_EMPTY_DYM_BLK;
        instance->callback(request->tag, CPA_STATUS_FAIL);
        return;
    }
    int ended;
    if (request->compress) {
        deflateInit2(&stream, instance->level > 9 ? 9 : instance->level, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
        ended = deflate(&stream, Z_FINISH) == Z_STREAM_END;
        deflateEnd(&stream);
        results->checksum = crc32(crc32(0, NULL, 0), src->pData, stream.total_in);
    } else {
        inflateInit2(&stream, -15);
        ended = inflate(&stream, Z_FINISH) == Z_STREAM_END;
        inflateEnd(&stream);
        results->checksum = crc32(crc32(0, NULL, 0), dest->pData, stream.total_out);
        results->endOfLastBlock = CPA_TRUE;
    }
    results->consumed = stream.total_in;
    results->produced = stream.total_out;
    if (!ended)
        results->status = request->compress ? CPA_DC_OVERFLOW : CPA_DC_INVALID_CODE;
    instance->callback(request->tag, ended ? CPA_STATUS_SUCCESS : CPA_STATUS_FAIL);
}

CpaStatus icp_sal_DcPollInstance(CpaInstanceHandle h, Cpa32U quota)
{
    struct instance *instance = h;
    struct request queue[QUEUE];
    pthread_mutex_lock(&instance->lock);
    int count = instance->count;
    memcpy(queue, instance->queue, count * sizeof *queue);
    instance->count = 0;
    pthread_mutex_unlock(&instance->lock);
    for (int i = 0; i < count; i++)
        serve(instance, &queue[i]);
    return count ? CPA_STATUS_SUCCESS : CPA_STATUS_RETRY;
}

CpaStatus cpaDcDeflateCompressBound(const CpaInstanceHandle h, CpaDcHuffType type, Cpa32U in, Cpa32U *out) { *out = in / 8 * 9 + 1024; return CPA_STATUS_SUCCESS; }
CpaStatus cpaDcLZ4CompressBound(const CpaInstanceHandle h, Cpa32U in, Cpa32U *out) { *out = in * 2; return CPA_STATUS_SUCCESS; }
CpaStatus cpaDcLZ4SCompressBound(const CpaInstanceHandle h, Cpa32U in, Cpa32U *out) { *out = in * 2; return CPA_STATUS_SUCCESS; }

void *qaeMemAllocNUMA(size_t size, int node, size_t alignment)
{
    /* As usdm: nothing above 2 MiB less its own header. */
    void *memory = NULL;
    if (size > (2 << 20) - (5 << 10) || posix_memalign(&memory, alignment < 64 ? 64 : alignment, size))
        return NULL;
    return memory;
}
void qaeMemFreeNUMA(void **memory) { free(*memory); *memory = NULL; }
uint64_t qaeVirtToPhysNUMA(void *memory) { return (uint64_t)(size_t)memory; }
