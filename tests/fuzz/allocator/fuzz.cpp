// Random programs on the allocator, checked by a second book: `fuzz FIRST COUNT`. Plans are of the program, damaged, of
// another program, or missing; threads allocate and free on several streams; memory is short now and then.

#include "allocator.cpp"
#include "fake_cuda.cpp"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

namespace {

struct Use {
  void *stream;
  Bytes work;
};

struct Range {
  char *end;
  void *stream;
  std::vector<Use> uses;  // by other streams
};

[[noreturn]] void stop(const char *what, uint64_t seed) {
  fprintf(stderr, "seed %llu: %s\n", static_cast<unsigned long long>(seed), what);
  abort();
}

class Book {  // live ranges, and those whose other users may not have ended
 public:
  explicit Book(uint64_t seed) : seed_(seed) {}
  void add(char *at, Bytes size, void *stream) {
    std::lock_guard<std::mutex> held(lock_);
    auto after = live_.lower_bound(at);
    if (after != live_.end() && after->first < at + size) stop("overlaps the next live block", seed_);
    if (after != live_.begin() && std::prev(after)->second.end > at) stop("overlaps the live block before", seed_);
    for (auto &[begin, range] : left_)
      if (begin < at + size && at < range.end)
        for (auto &use : range.uses)
          if (use.stream != stream && fake_done(use.stream) < use.work) stop("given out before its event", seed_);
    for (auto &[begin, last] : streams_)
      if (begin < at + size && at < last.end && last.stream != stream) stop("given to another stream", seed_);
    live_[at] = streams_[at] = {at + size, stream, {}};
  }
  void use(char *at, void *stream) {
    Bytes work = fake_work(stream);
    std::lock_guard<std::mutex> held(lock_);
    live_.at(at).uses.push_back({stream, work});
  }
  void remove(char *at) {
    std::lock_guard<std::mutex> held(lock_);
    auto found = live_.find(at);
    if (!found->second.uses.empty()) left_.emplace_back(at, found->second);
    live_.erase(found);
  }

 private:
  uint64_t seed_;
  std::mutex lock_;
  std::map<char *, Range> live_, streams_;
  std::vector<std::pair<char *, Range>> left_;
};

using Random = std::mt19937_64;
Bytes below(Random &random, Bytes most) { return Bytes(random() % uint64_t(most)); }
void *stream_of(Bytes number) { return reinterpret_cast<void *>(0x1000 * (number + 1)); }

std::vector<Bytes> sizes_of(Random &random, Bytes count, Bytes period) {
  std::vector<Bytes> found;
  for (Bytes place = 0; place < count; ++place)
    found.push_back(place >= 2 * period ? found[place - period]
                                        : below(random, 8) ? 1 + below(random, 3 * kMiB) : 1 + below(random, 600));
  return found;
}

void plan(Random &random, std::vector<Bytes> sizes, Bytes period) {
  Bytes tall = 16 * kMiB + below(random, 64) * kMiB;
  std::vector<Bytes> offsets;
  for (Bytes &size : sizes) {
    if (!below(random, 30)) size = 1 + below(random, 3 * kMiB);  // damaged
    size = round_up(size, kUnit);
    offsets.push_back(below(random, (tall - size) / kUnit + 1) * kUnit);
  }
  Bytes count = Bytes(sizes.size()), last = below(random, 2) ? count / period * period : 0;
  if (!ms_plan(count, sizes.data(), offsets.data(), last, last ? period : 0, tall)) abort();
}

void work(uint64_t seed, int thread, const std::vector<Bytes> &sizes, int device, Book &book, int streams) {
  Random random(seed * 31 + uint64_t(thread));
  std::vector<std::pair<char *, Bytes>> held;
  for (size_t turn = 0; turn < sizes.size() * 3; ++turn) {
    void *stream = stream_of(thread * 4 + below(random, streams));
    Bytes size = below(random, 20) ? sizes[turn % sizes.size()] : below(random, 4 * kMiB);
    try {
      char *at = static_cast<char *>(ms_malloc(size, device, stream));
      if (!at != !size) stop("no address", seed);
      if (at) book.add(at, size, stream), held.emplace_back(at, size);
    } catch (const std::runtime_error &) {  // memory is short
    }
    while (!held.empty() && (below(random, 40) < Bytes(held.size()) || turn + 1 == sizes.size() * 3)) {
      size_t which = size_t(below(random, Bytes(held.size())));
      auto [at, bytes] = held[which];
      held[which] = held.back(), held.pop_back();
      if (!below(random, 4)) {
        void *other = stream_of(below(random, 12));
        ms_record_stream(at, other), book.use(at, other);
      }
      book.remove(at), ms_free(at, bytes, device, nullptr);
    }
    if (!below(random, 10)) fake_finish(stream_of(below(random, 12)), below(random, 200));
    if (!below(random, 400)) ms_settle(device);
  }
}

void run(uint64_t seed) {
  Random random(seed);
  scripts.clear(), height = 0, padding = below(random, 2) * 32;
  int device = int(seed % kDevices), threads = 1 + int(below(random, 3)), streams = 1 + int(below(random, 3));
  Device &used = devices[device];
  used.~Device(), new (&used) Device;
  fake::begun.clear(), fake::done.clear();
  fake_room(below(random, 4) ? size_t(1) << 46 : fake::used + size_t(below(random, 300)) * kMiB);
  Bytes period = 8 + below(random, 60);
  std::vector<Bytes> sizes = sizes_of(random, 2 * period + below(random, 200), period);
  int plans = int(below(random, 4));
  for (int number = 0; number < plans; ++number)
    plan(random, below(random, 4) ? sizes : sizes_of(random, 200, period), period);
  Book book(seed);
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread)
    running.emplace_back([&, thread] { work(seed, thread, sizes, device, book, streams); });
  for (auto &each : running) each.join();
  Bytes now[10];
  ms_figures(device, now);
  if (now[4]) stop("live bytes are left", seed);
  if (now[1] > now[0] || now[5] > now[7]) stop("figures contradict each other", seed);
  ms_release();
  ms_figures(device, now);
  if (now[6] != now[9] || now[8]) stop("memory is left", seed);
  if (used.arena) cudaFree(used.arena);
  fake_unmap();
  if (fake::events) stop("events are left", seed);
}

}  // namespace

int main(int, char **words) {
  if (ms_open("cuda", 0, "")) return 2;
  uint64_t first = strtoull(words[1], nullptr, 10), count = strtoull(words[2], nullptr, 10);
  for (uint64_t seed = first; seed < first + count; ++seed) run(seed);
  printf("%llu programs\n", static_cast<unsigned long long>(count));
}
