// The functions of cudart that the allocator uses, over reserved address space: no byte of it is memory. The work of a
// stream is a counter that a test raises, and its end another one.

#include <sys/mman.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace fake {
std::mutex lock;
std::map<void *, size_t> taken;
std::vector<std::pair<void *, size_t>> gone;
std::map<void *, int64_t> begun, done;  // work by stream
size_t room = size_t(1) << 46, used = 0;
int64_t events = 0;

struct Event {
  void *stream = nullptr;
  int64_t work = 0;
};
}  // namespace fake

extern "C" {
int cudaMalloc(void **at, size_t size) {
  std::lock_guard<std::mutex> held(fake::lock);
  if (fake::used + size > fake::room) return 2;
  *at = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (*at == MAP_FAILED) return 2;
  fake::used += size, fake::taken[*at] = size;
  return 0;
}
int cudaFree(void *at) {
  std::lock_guard<std::mutex> held(fake::lock);
  auto found = fake::taken.find(at);
  if (found == fake::taken.end()) return 1;
  fake::used -= found->second, fake::gone.push_back(*found);  // no address comes twice
  fake::taken.erase(found);
  return 0;
}
int cudaEventCreateWithFlags(void **event, unsigned) {
  std::lock_guard<std::mutex> held(fake::lock);
  *event = new fake::Event, ++fake::events;
  return 0;
}
int cudaEventRecord(void *event, void *stream) {
  std::lock_guard<std::mutex> held(fake::lock);
  *static_cast<fake::Event *>(event) = {stream, fake::begun[stream]};
  return 0;
}
int cudaEventQuery(void *event) {
  std::lock_guard<std::mutex> held(fake::lock);
  auto *known = static_cast<fake::Event *>(event);
  return fake::done[known->stream] >= known->work ? 0 : 600;
}
int cudaEventDestroy(void *event) {
  std::lock_guard<std::mutex> held(fake::lock);
  delete static_cast<fake::Event *>(event), --fake::events;
  return 0;
}
int cudaDeviceSynchronize() {
  std::lock_guard<std::mutex> held(fake::lock);
  for (auto &[stream, work] : fake::begun) fake::done[stream] = work;
  return 0;
}
int cudaMemGetInfo(size_t *free, size_t *total) {
  std::lock_guard<std::mutex> held(fake::lock);
  *free = fake::room - fake::used, *total = fake::room;
  return 0;
}
int cudaGetLastError() { return 0; }
int cudaGetDevice(int *device) { return *device = 0; }
int cudaSetDevice(int) { return 0; }

void fake_unmap() {
  for (auto &[at, size] : fake::gone) munmap(at, size);
  fake::gone.clear();
}
void fake_room(size_t bytes) { fake::room = bytes; }
int64_t fake_work(void *stream) {  // begin work on a stream; return its number
  std::lock_guard<std::mutex> held(fake::lock);
  return ++fake::begun[stream];
}
void fake_finish(void *stream, int64_t work) {
  std::lock_guard<std::mutex> held(fake::lock);
  if (fake::done[stream] < work) fake::done[stream] = work;
}
int64_t fake_done(void *stream) {
  std::lock_guard<std::mutex> held(fake::lock);
  return fake::done[stream];
}
int64_t fake_events() { return fake::events; }
}
