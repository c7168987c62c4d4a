/* exec/cuda/cudnn_api.h against NVIDIA's own header: a difference does not compile. */
#include "exec/cuda/cudnn_api.h"

#include <cudnn.h>

/* Names of cudnn.h's enumerations all begin with CUDNN_. */
#define SAME(name, value)                                                                          \
    _Static_assert((int)CUDNN_##name == RPEXEC_CUDNN_##name, "CUDNN_" #name " is another number");
RPEXEC_CUDNN_VALUES(SAME)

_Static_assert(sizeof(cudnnStatus_t) == sizeof(unsigned) &&
                   sizeof(cudnnBackendAttributeName_t) == sizeof(unsigned) &&
                   sizeof(cudnnDataType_t) == sizeof(unsigned),
               "enumerations are not passed as unsigned");

/* Pointers to functions of other types do not convert. */
#define CALLABLE(result, name, parameters) .name = cudnn##name,
extern const rpexec_cudnn_functions rpexec_cudnn_by_header;
const rpexec_cudnn_functions rpexec_cudnn_by_header = {RPEXEC_CUDNN_FUNCTIONS(CALLABLE)};
