// A stand-in for libnvidia-ml.so.1: three boards. The first counts energy, 5 J per reading; the
// second is old and has power only, 30 W; the third is lost.
#include <cstdio>

namespace {
int open_sessions = 0;
unsigned long long millijoules = 1'000'000;
int boards[3] = {0, 1, 2};
constexpr int kNotSupported = 3, kGpuIsLost = 15;
}  // namespace

extern "C" {

int nvmlInit_v2() {
  ++open_sessions;
  return 0;
}
int nvmlShutdown() {
  --open_sessions;
  return 0;
}
int fake_nvml_open_sessions() {
  return open_sessions;
}
const char* nvmlErrorString(int code) {
  return code == kGpuIsLost ? "GPU is lost" : "Not Supported";
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 3;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = &boards[index];
  return index == 2 ? kGpuIsLost : 0;
}
int nvmlDeviceGetName(void* device, char* name, unsigned length) {
  std::snprintf(name, length, "Fake %d", *static_cast<int*>(device));
  return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* energy) {
  if (*static_cast<int*>(device) != 0) return kNotSupported;
  *energy = millijoules += 5000;
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 30'000;
  return 0;
}
}
