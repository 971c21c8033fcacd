// An allocator for PyTorch (CUDAPluggableAllocator) and torch_npu (NPUPluggableAllocator) that follows a plan.
//
// The plan lists sizes and places of each stream's requests in order. A request gets its planned place only if its size is
// the planned one and the range is free in the allocator's own book; any other request is served from a best-fit pool of the
// same stream. So a wrong plan costs memory, never correctness. One lock per device; nothing is written, nothing listens.
//
// A block that other streams use (record_stream) is given out again after their events. torch_npu launches operators from a
// queue of its own, so that an event recorded here could come before them: there, such blocks wait until `ms_settle`, which
// drains the queue (c10_npu::npuSynchronizeDevice, torch_npu 2.x, NPUStream.h).

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

using Bytes = int64_t;
constexpr Bytes kUnit = 512, kMiB = 1 << 20;
constexpr Bytes kSmall = kMiB, kSmallSegment = 2 * kMiB, kLargeSegment = 20 * kMiB;  // as PyTorch's own allocator
constexpr int kDevices = 64, kGram = 4, kAhead = 8;

// --- the device's functions, found by name ---

int open_if_named(dl_phdr_info *info, size_t, void *data) {
  auto *wanted = static_cast<std::pair<const char *, void *> *>(data);
  if (info->dlpi_name && strstr(info->dlpi_name, wanted->first))
    wanted->second = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  return wanted->second != nullptr;
}

void *find(const char *library, const char *name) {
  if (void *address = dlsym(RTLD_DEFAULT, name)) return address;
  std::pair<const char *, void *> wanted{library, nullptr};  // loaded, but not for all
  dl_iterate_phdr(open_if_named, &wanted);
  return wanted.second ? dlsym(wanted.second, name) : nullptr;
}

struct Backend {
  virtual ~Backend() = default;
  virtual const char *open() = 0;  // the name of a missing function, or null
  virtual void *take(Bytes size) = 0;
  virtual void give(void *at) = 0;
  virtual void *mark(void *) { return nullptr; }  // an event after the work of a stream so far; null: only `settle` tells
  virtual bool is_done(void *) { return false; }
  virtual void drop(void *) {}
  virtual bool settle() = 0;  // waits for all work of the current device
  virtual bool room(size_t *free, size_t *total) = 0;
  int device() const {
    int device = 0;
    return get(&device) ? 0 : device;
  }
  int (*get)(int *) = nullptr, (*set)(int) = nullptr;

 protected:
  template <class Function>
  void need(Function &function, const char *name) {
    function = reinterpret_cast<Function>(find(from, name));
    if (!function) missing = name;
  }
  const char *from = nullptr, *missing = nullptr;
};

struct Cuda final : Backend {
  int (*malloc_)(void **, size_t), (*free_)(void *), (*create)(void **, unsigned), (*record)(void *, void *);
  int (*query)(void *), (*destroy)(void *), (*synchronize)(), (*info)(size_t *, size_t *), (*last)();

  const char *open() override {
    from = "libcudart";
    need(malloc_, "cudaMalloc"), need(free_, "cudaFree"), need(create, "cudaEventCreateWithFlags");
    need(record, "cudaEventRecord"), need(query, "cudaEventQuery"), need(destroy, "cudaEventDestroy");
    need(synchronize, "cudaDeviceSynchronize"), need(info, "cudaMemGetInfo"), need(last, "cudaGetLastError");
    need(get, "cudaGetDevice"), need(set, "cudaSetDevice");
    return missing;
  }
  void *take(Bytes size) override {
    void *at = nullptr;
    if (!malloc_(&at, static_cast<size_t>(size))) return at;
    last();  // otherwise PyTorch's next check raises it
    return nullptr;
  }
  void give(void *at) override { free_(at); }
  void *mark(void *stream) override {
    void *event = nullptr;
    if (create(&event, 2 /* cudaEventDisableTiming */)) return last(), nullptr;
    if (!record(event, stream)) return event;
    return last(), destroy(event), nullptr;
  }
  bool is_done(void *event) override { return query(event) == 0 || (last(), false); }
  void drop(void *event) override { destroy(event); }
  bool settle() override { return synchronize() == 0; }
  bool room(size_t *free, size_t *total) override { return info(free, total) == 0; }
};

struct Ascend final : Backend {
  int (*malloc_)(void **, size_t, int), (*free_)(void *), (*info)(int, size_t *, size_t *);
  bool (*synchronize)(bool);

  const char *open() override {
    from = "libascendcl";
    need(malloc_, "aclrtMalloc"), need(free_, "aclrtFree"), need(info, "aclrtGetMemInfo");
    need(get, "aclrtGetDevice"), need(set, "aclrtSetDevice");
    from = "libtorch_npu";
    need(synchronize, "_ZN7c10_npu20npuSynchronizeDeviceEb");
    return missing;
  }
  void *take(Bytes size) override {
    void *at = nullptr;
    return malloc_(&at, size_t(size), 0 /* ACL_MEM_MALLOC_HUGE_FIRST */) ? nullptr : at;
  }
  void give(void *at) override { free_(at); }
  bool settle() override try { return synchronize(true); } catch (...) {
    return false;
  }
  bool room(size_t *free, size_t *total) override { return info(1 /* ACL_HBM_MEM */, free, total) == 0; }
};

// --- the plan ---

struct Script {  // the requests of one stream
  std::vector<Bytes> sizes, offsets;
  Bytes last = 0, period = 0, height = 0, base = 0;  // the last `period` requests before `last` repeat
  std::unordered_map<uint64_t, std::vector<int32_t>> grams;  // ends of the places where these last sizes were requested

  static uint64_t key(const Bytes *sizes) {
    uint64_t found = 1469598103934665603u;
    for (int turn = 0; turn < kGram; ++turn) found = (found ^ uint64_t(sizes[turn])) * 1099511628211u;
    return found;
  }
  Bytes count() const { return Bytes(sizes.size()); }
};

struct Follower {  // where a stream is in its script
  const Script *script = nullptr;
  Bytes next = 0, misses = 0, seen = 0;
  Bytes recent[kGram] = {};

  // Return the planned request that this one is, or -1. A request that is not the next one may be new (the next one is still
  // to come), another in its place, or the one after some that are left out; after four in the order of the plan, it is there.
  Bytes match(Bytes size) {
    std::rotate(recent, recent + 1, recent + kGram);
    recent[kGram - 1] = size;
    ++seen;
    const Script &plan = *script;
    if (next == plan.count() && plan.period) next = plan.last - plan.period + (next - plan.last) % plan.period;
    if (next == plan.last && plan.period && plan.sizes[plan.last - plan.period] == size)
      return hit(plan.last - plan.period);
    for (Bytes ahead = 0; ahead <= std::min<Bytes>(misses, kAhead) + (ahead ? 1 : 0); ++ahead)
      if (next + ahead < plan.count() && plan.sizes[next + ahead] == size) return hit(next + ahead);
    ++misses;
    return seen >= kGram ? find_again() : -1;
  }

 private:
  Bytes hit(Bytes place) {
    next = place + 1, misses = 0;
    return place;
  }
  Bytes find_again() {
    auto known = script->grams.find(Script::key(recent));
    if (known == script->grams.end()) return -1;
    auto &places = known->second;
    auto later = std::lower_bound(places.begin(), places.end(), next);
    if (later == places.end() && script->period)
      later = std::lower_bound(places.begin(), places.end(), script->last - script->period);
    if (later == places.end()) return -1;
    bool same = std::equal(recent, recent + kGram, script->sizes.begin() + *later - kGram + 1);
    return same ? hit(*later) : -1;
  }
};

// --- the book ---

struct Segment;
struct Block {  // its neighbours in the segment are `before` and `after`
  Block(char *place, Bytes bytes, Segment *of) : at(place), size(bytes), segment(of) {}
  char *at;
  Bytes size;
  Segment *segment;
  Block *before = nullptr, *after = nullptr;
  bool used = false;                  // live, or waiting for other streams
  std::vector<void *> users, events;  // the other streams that use it; their events while it waits
  Bytes turn = 0;                     // when it began to wait
};

struct BySize {
  bool operator()(const Block *one, const Block *other) const {
    return one->size != other->size ? one->size < other->size : one->at < other->at;
  }
};
using Holes = std::set<Block *, BySize>;

struct Pool;

struct Segment {  // memory of one stream: taken at once, or its part of the planned range
  Pool *pool;
  Holes *holes;
  bool planned;
};

struct Pool {  // of one stream
  void *stream;
  Holes small, large, gaps;  // free blocks: of small and large segments, and of the planned range
  std::map<char *, Block *> range;  // all blocks of the planned range
  Follower follower;
};

struct Figures {
  std::atomic<Bytes> requests{0}, planned{0}, departures{0}, occupied{0}, live{0}, live_peak{0}, reserved{0}, reserved_peak{0};
  std::atomic<Bytes> waiting{0}, arena{0}, live_before{0}, reserved_before{0};  // peaks before they were reset
};

void raise_peak(std::atomic<Bytes> &peak, Bytes value) { peak = std::max<Bytes>(peak, value); }

struct Device {
  std::mutex lock;
  int number = 0;
  bool begun = false;
  char *arena = nullptr;
  size_t bound = 0;  // number of scripts that have a stream
  std::map<void *, std::unique_ptr<Pool>> pools;
  std::unordered_map<void *, Block *> live;
  std::vector<Block *> waiting;
  Bytes turns = 0;
  Figures figures;
};

Backend *backend = nullptr;
auto &scripts = *new std::vector<std::unique_ptr<Script>>;
Bytes height = 0, padding = 0;
Device *const devices = new Device[kDevices];  // never destroyed: PyTorch frees blocks until the very end
std::atomic<bool> forked{false};
char label[64] = "";

class Entered {  // the given device is the current one
 public:
  explicit Entered(int device) : before_(backend->device()), now_(device) {
    if (before_ != now_) backend->set(now_);
  }
  ~Entered() {
    if (before_ != now_) backend->set(before_);
  }
 private:
  const int before_, now_;
};

Bytes round_up(Bytes size, Bytes unit) { return (size + unit - 1) / unit * unit; }

void add_hole(Block *block) {
  block->segment->holes->insert(block);
  if (block->segment->planned) block->segment->pool->range[block->at] = block;
}

// Cut a free block that is in no list; the part after the cut becomes free.
void split(Block *block, Bytes size) {
  if (block->size == size) return;
  auto *rest = new Block(block->at + size, block->size - size, block->segment);
  rest->before = block, rest->after = block->after;
  if (rest->after) rest->after->before = rest;
  block->after = rest, block->size = size;
  add_hole(rest);
}

void absorb_next(Block *block) {
  Block *rest = block->after;
  if (rest->segment->planned) rest->segment->pool->range.erase(rest->at);
  block->size += rest->size, block->after = rest->after;
  if (block->after) block->after->before = block;
  delete rest;
}

void free_block(Block *block) {
  block->used = false;
  Holes *holes = block->segment->holes;
  if (block->after && !block->after->used) holes->erase(block->after), absorb_next(block);
  if (block->before && !block->before->used) holes->erase(block = block->before), absorb_next(block);
  add_hole(block);
}

Block *new_segment(Pool *pool, Holes *holes, void *at, Bytes size, bool planned) {
  auto *block = new Block(static_cast<char *>(at), size, new Segment{pool, holes, planned});
  add_hole(block);
  return block;
}

Block *use(Block *block, Bytes size) {
  block->segment->holes->erase(block);
  split(block, size);
  block->used = true;
  return block;
}

// --- one device; all with its lock held ---

void end_wait(Device &device, Block *block) {
  for (void *event : block->events)
    if (event) backend->drop(event);
  block->events.clear();
  device.figures.waiting -= block->size;
  free_block(block);
}

void collect(Device &device) {
  auto done = [&](Block *block) {
    auto &events = block->events;
    for (; !events.empty() && events.back() && backend->is_done(events.back()); events.pop_back())
      backend->drop(events.back());
    return events.empty() && (end_wait(device, block), true);
  };
  device.waiting.erase(std::remove_if(device.waiting.begin(), device.waiting.end(), done), device.waiting.end());
}

// Wait for the device, without the lock: work that ends may release blocks. Then free what waited before.
void settle(Device &device, std::unique_lock<std::mutex> &held) {
  Bytes turn = ++device.turns;
  held.unlock();
  const bool done = backend->settle();
  if (held.lock(); !done) return;
  auto waited = [&](Block *block) {
    if (block->turn >= turn) return false;
    end_wait(device, block);
    return true;
  };
  device.waiting.erase(std::remove_if(device.waiting.begin(), device.waiting.end(), waited), device.waiting.end());
}

void release_segments(Device &device) {
  for (auto &[stream, pool] : device.pools)
    for (Holes *holes : {&pool->small, &pool->large})
      for (auto at = holes->begin(); at != holes->end();) {
        Block *block = *at++;
        if (block->before || block->after) continue;
        holes->erase(block);
        backend->give(block->at);
        device.figures.reserved -= block->size;
        delete block->segment;
        delete block;
      }
}

Pool *pool_of(Device &device, void *stream) {
  auto &pool = device.pools[stream];
  if (pool) return pool.get();
  pool.reset(new Pool{stream, {}, {}, {}, {}, {}});
  if (device.arena && device.bound < scripts.size()) {  // streams take scripts in the order of their first requests
    const Script *script = scripts[device.bound++].get();
    pool->follower.script = script;
    if (script->height) new_segment(pool.get(), &pool->gaps, device.arena + script->base, script->height, true);
  }
  return pool.get();
}

Block *planned_block(Device &device, Pool *pool, Bytes size) {
  if (!pool->follower.script) return nullptr;
  Bytes place = pool->follower.match(size);
  if (place < 0) {
    ++device.figures.departures;
    return nullptr;
  }
  const Script &script = *pool->follower.script;
  char *at = device.arena + script.base + script.offsets[place];
  Block *block = std::prev(pool->range.upper_bound(at))->second;
  if (block->used || block->at + block->size < at + size) {
    ++device.figures.occupied;
    return nullptr;
  }
  ++device.figures.planned;
  if (at > block->at) {
    pool->gaps.erase(block);
    split(block, at - block->at);
    add_hole(block);
    block = block->after;
  }
  return use(block, size);
}

Block *best_fit(Holes &holes, Bytes size) {
  Block probe(nullptr, size, nullptr);
  auto at = holes.lower_bound(&probe);
  return at == holes.end() ? nullptr : use(*at, size);
}

// Free places of the planned range are better than more memory; small blocks would break them into pieces.
Block *pooled_block(Pool *pool, Bytes size, bool with_gaps) {
  Block *block = best_fit(size <= kSmall ? pool->small : pool->large, size);
  return block || !with_gaps ? block : best_fit(pool->gaps, size);
}

Block *grown_block(Device &device, Pool *pool, Bytes size) {
  const bool small = size <= kSmall;
  Bytes wanted = small ? kSmallSegment : size < kLargeSegment / 2 ? kLargeSegment : round_up(size, 2 * kMiB);
  void *at = backend->take(wanted);
  if (!at) return nullptr;
  raise_peak(device.figures.reserved_peak, device.figures.reserved += wanted);
  return use(new_segment(pool, small ? &pool->small : &pool->large, at, wanted, false), size);
}

[[noreturn]] void fail(Device &device, Bytes asked) {
  size_t free = 0, total = 0;
  backend->room(&free, &total);
  auto mib = [](Bytes size) { return std::to_string(size / kMiB) + " MiB"; };
  const Figures &now = device.figures;
  throw std::runtime_error("ms-tune: out of memory on device " + std::to_string(device.number) + ": tried to allocate " +
                           mib(asked) + "; " + mib(Bytes(free)) + " of " + mib(Bytes(total)) + " free on the device, " +
                           mib(now.reserved) + " reserved (" + mib(now.arena) + " of it for the plan), " + mib(now.live) +
                           " live, " + mib(now.waiting) + " waiting for other streams; " +
                           std::to_string(now.departures + now.occupied) + " of " + std::to_string(now.requests) +
                           " requests not as planned");
}

void begin(Device &device, int number) {
  device.begun = true, device.number = number;
  if (!height) return;
  device.arena = static_cast<char *>(backend->take(height));
  if (!device.arena) return;
  device.figures.arena = height;
  raise_peak(device.figures.reserved_peak, device.figures.reserved += height);
}

void *allocate(Device &device, int number, Bytes asked, void *stream) {
  Bytes size = round_up(asked + padding, kUnit);
  std::unique_lock<std::mutex> held(device.lock);
  Entered entered(number);
  if (!device.begun) begin(device, number);
  ++device.figures.requests;
  if (!device.waiting.empty()) collect(device);
  Pool *pool = pool_of(device, stream);
  Block *block = planned_block(device, pool, size);
  if (!block) block = pooled_block(pool, size, size > kSmall);
  if (!block) block = grown_block(device, pool, size);
  if (!block) {
    settle(device, held);
    block = pooled_block(pool, size, true);
  }
  if (!block) {
    release_segments(device);
    block = grown_block(device, pool, size);
  }
  if (!block) fail(device, asked);
  device.live[block->at] = block;
  raise_peak(device.figures.live_peak, device.figures.live += block->size);
  return block->at;
}

void release(Device &device, int number, void *at) {
  std::unique_lock<std::mutex> held(device.lock);
  auto found = device.live.find(at);
  if (found == device.live.end()) return;
  Block *block = found->second;
  device.live.erase(found);
  device.figures.live -= block->size;
  if (block->users.empty()) return free_block(block);
  Entered entered(number);
  for (void *user : block->users) block->events.push_back(backend->mark(user));
  block->users.clear();
  block->turn = device.turns;
  device.figures.waiting += block->size;
  device.waiting.push_back(block);
}

void change_users(void *at, void *stream, bool more) {
  for (int number = 0; number < kDevices; ++number) {
    if (!devices[number].figures.requests) continue;
    std::lock_guard<std::mutex> held(devices[number].lock);
    auto found = devices[number].live.find(at);
    if (found == devices[number].live.end()) continue;
    auto &users = found->second->users;
    users.erase(std::remove(users.begin(), users.end(), stream), users.end());
    if (more && stream != found->second->segment->pool->stream) users.push_back(stream);
    return;
  }
}

// --- statistics, also from a signal handler: no locks, no memory ---

void write_statistics() {
  for (int number = 0; number < kDevices; ++number) {
    const Figures &now = devices[number].figures;
    Bytes requests = now.requests, live = std::max<Bytes>(now.live_peak, now.live_before);
    Bytes peak = std::max<Bytes>(now.reserved_peak, now.reserved_before), share = peak ? live * 1000 / peak : 0;
    if (!requests) continue;
    char line[512];
    size_t used = 0;
    auto add = [&](const char *word, Bytes value = -1) {
      char digits[24], *digit = digits;
      for (; *word && used < sizeof line; ++word) line[used++] = *word;
      if (value < 0) return;
      do *digit++ = static_cast<char>('0' + value % 10);
      while (value /= 10);
      while (digit > digits && used < sizeof line) line[used++] = *--digit;
    };
    add("ms-tune: "), add(label), add("device ", number), add(": ", now.planned), add(" of ", requests);
    add(" requests placed as planned, ", requests - now.planned), add(" by fallback (", now.departures);
    add(" departures, ", now.occupied), add(" occupied); peak MiB: ", live / kMiB);
    add(" live, ", peak / kMiB), add(" reserved; utilisation ", share / 10), add(".", share % 10), add(" %\n");
    if (write(STDERR_FILENO, line, used) < 0) return;
  }
}

void on_signal(int) { write_statistics(); }

}  // namespace

// Choose `cuda` or `acl`; return null, or the name of the function that is missing.
EXPORTED const char *ms_open(const char *name, Bytes pad, const char *text) {
  static Cuda cuda;
  static Ascend ascend;
  padding = pad;
  strncpy(label, text, sizeof label - 1);
  Backend *chosen = strcmp(name, "acl") ? static_cast<Backend *>(&cuda) : &ascend;
  if (const char *missing = chosen->open()) return missing;
  backend = chosen;
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
  struct sigaction now;
  if (!sigaction(SIGUSR1, nullptr, &now) && now.sa_handler == SIG_DFL) signal(SIGUSR1, on_signal);
  return nullptr;
}

// Add the plan of a stream before the first request; return whether it is sound.
EXPORTED int ms_plan(Bytes count, const Bytes *sizes, const Bytes *offsets, Bytes last, Bytes period, Bytes tall) {
  auto script = std::make_unique<Script>();
  script->last = last, script->period = period;
  if (period < 0 || last < period || last > count || tall < 0 || tall % kUnit || tall > (Bytes(1) << 50)) return 0;
  for (Bytes place = 0; place < count; ++place) {
    Bytes size = sizes[place], offset = offsets[place];
    if (size <= 0 || size % kUnit || offset < 0 || offset % kUnit || size > tall || offset > tall - size) return 0;
    script->sizes.push_back(size), script->offsets.push_back(offset);
    if (place >= kGram - 1) script->grams[Script::key(&script->sizes[place - kGram + 1])].push_back(int32_t(place));
  }
  script->height = tall, script->base = height;
  height += tall;
  scripts.push_back(std::move(script));
  return 1;
}

EXPORTED void *ms_malloc(Bytes size, int device, void *stream) {
  if (size <= 0) return nullptr;
  if (forked) throw std::runtime_error("ms-tune: a forked process cannot use the device of its parent");
  if (device < 0 || device >= kDevices) throw std::runtime_error("ms-tune: no such device");
  return allocate(devices[device], device, size, stream);
}

EXPORTED void ms_free(void *at, Bytes, int device, void *) {
  if (at && !forked && device >= 0 && device < kDevices) release(devices[device], device, at);
}

EXPORTED void ms_record_stream(void *at, void *stream) { change_users(at, stream, true); }

EXPORTED void ms_erase_stream(void *at, void *stream) { change_users(at, stream, false); }

// Free the blocks that other streams used, if there are any, after all work of a device.
EXPORTED void ms_settle(int number) {
  Device &device = devices[number];
  if (forked || !device.figures.waiting) return;
  std::unique_lock<std::mutex> held(device.lock);
  Entered entered(number);
  settle(device, held);
}

EXPORTED void ms_release() {  // empty_cache
  for (int number = 0; number < kDevices && !forked; ++number) {
    if (!devices[number].figures.requests) continue;
    std::unique_lock<std::mutex> held(devices[number].lock);
    Entered entered(number);
    settle(devices[number], held);
    release_segments(devices[number]);
  }
}

// requests, planned, departures, occupied, live, its peak, reserved, its peak, waiting, planned range
EXPORTED void ms_figures(int device, Bytes *found) {
  const Figures &now = devices[device].figures;
  for (const auto *each : {&now.requests, &now.planned, &now.departures, &now.occupied, &now.live, &now.live_peak,
                           &now.reserved, &now.reserved_peak, &now.waiting, &now.arena})
    *found++ = *each;
}

EXPORTED void ms_reset_peak(int device) {
  Figures &now = devices[device].figures;
  raise_peak(now.live_before, now.live_peak), raise_peak(now.reserved_before, now.reserved_peak);
  now.live_peak = now.live.load(), now.reserved_peak = now.reserved.load();
}

EXPORTED void ms_statistics() { forked ? void() : write_statistics(); }
