// What programs need to share memory between processes and devices. The functions report that they are not emulated.
#pragma once
#include "cuda.h"
#include "emulator/scheduler.h"

typedef int CUdevice;
typedef unsigned long long CUmemGenericAllocationHandle;
enum CUdevice_attribute {
  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED = 128, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED = 132,
};
enum CUmemAllocationHandleType { CU_MEM_HANDLE_TYPE_NONE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_HANDLE_TYPE_WIN32, CU_MEM_HANDLE_TYPE_WIN32_KMT = 4, CU_MEM_HANDLE_TYPE_FABRIC = 8 };
enum CUmemAllocationType { CU_MEM_ALLOCATION_TYPE_INVALID, CU_MEM_ALLOCATION_TYPE_PINNED };
enum CUmemLocationType { CU_MEM_LOCATION_TYPE_INVALID, CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_HOST };
enum CUmemAllocationGranularity_flags { CU_MEM_ALLOC_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED };
enum CUmulticastGranularity_flags { CU_MULTICAST_GRANULARITY_MINIMUM, CU_MULTICAST_GRANULARITY_RECOMMENDED };
enum CUmemAccess_flags { CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };
struct CUmemLocation {
  CUmemLocationType type;
  int id;
};
struct CUmemAllocationProp {
  CUmemAllocationType type;
  CUmemAllocationHandleType requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType, gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
};
struct CUmemAccessDesc {
  CUmemLocation location;
  CUmemAccess_flags flags;
};
struct CUmulticastObjectProp {
  unsigned numDevices;
  std::size_t size;
  unsigned long long handleTypes, flags;
};
struct cudaIpcMemHandle_t {
  char reserved[64];
};
constexpr unsigned cudaIpcMemLazyEnablePeerAccess = 1;

// The caller's line is not known here.
#define EMULATOR_LACKS(name, Result, error)                      \
  template <class... Arguments>                                  \
  Result name(Arguments&&...) {                                  \
    ::emulator::lack_in_launch(#name, "cuda.h", 0);              \
    return error;                                                \
  }
#define EMULATOR_DRIVER_LACKS(name) EMULATOR_LACKS(name, CUresult, CUDA_ERROR_NOT_SUPPORTED)
EMULATOR_DRIVER_LACKS(cuDeviceGet)
EMULATOR_DRIVER_LACKS(cuDeviceGetAttribute)
EMULATOR_DRIVER_LACKS(cuMemAddressFree)
EMULATOR_DRIVER_LACKS(cuMemAddressReserve)
EMULATOR_DRIVER_LACKS(cuMemCreate)
EMULATOR_DRIVER_LACKS(cuMemExportToShareableHandle)
EMULATOR_DRIVER_LACKS(cuMemGetAddressRange)
EMULATOR_DRIVER_LACKS(cuMemGetAllocationGranularity)
EMULATOR_DRIVER_LACKS(cuMemImportFromShareableHandle)
EMULATOR_DRIVER_LACKS(cuMemMap)
EMULATOR_DRIVER_LACKS(cuMemRelease)
EMULATOR_DRIVER_LACKS(cuMemRetainAllocationHandle)
EMULATOR_DRIVER_LACKS(cuMemSetAccess)
EMULATOR_DRIVER_LACKS(cuMemUnmap)
EMULATOR_DRIVER_LACKS(cuMulticastAddDevice)
EMULATOR_DRIVER_LACKS(cuMulticastBindMem)
EMULATOR_DRIVER_LACKS(cuMulticastCreate)
EMULATOR_DRIVER_LACKS(cuMulticastGetGranularity)
EMULATOR_DRIVER_LACKS(cuMulticastUnbind)
EMULATOR_LACKS(cudaIpcGetMemHandle, cudaError_t, cudaErrorUnknown)
EMULATOR_LACKS(cudaIpcOpenMemHandle, cudaError_t, cudaErrorUnknown)
EMULATOR_LACKS(cudaIpcCloseMemHandle, cudaError_t, cudaErrorUnknown)
#undef EMULATOR_DRIVER_LACKS
#undef EMULATOR_LACKS
