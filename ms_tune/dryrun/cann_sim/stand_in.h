/* What the generated stand-in functions are made of.
 *
 * Plain C, no library: any C compiler for x86-64 Linux will do, and no C++ run time of the compiler's own comes in.
 *
 * The System V x86-64 calling convention passes the first integer or pointer argument in one register (rdi) and returns
 * an integer or pointer in another (rax). For a C++ member function the first argument is `this`; for a function that
 * returns an object with a non-trivial destructor by value it is the place where that object must be built, and that
 * address is also returned. So one C function of one argument serves constructors, returned objects and `return *this`.
 *
 * Layouts that the stand-ins honour (GCC's libstdc++ with the old string ABI, _GLIBCXX_USE_CXX11_ABI=0, in which
 * MindSpore's wheel is built; tests/dryrun/test_cann_sim_layouts.py compiles real C++ against them):
 *   std::shared_ptr<T>      16 bytes, all zero when empty
 *   std::vector<T>          24 bytes, all zero when empty
 *   std::string             8 bytes, points behind the header of libstdc++'s shared empty string
 *   std::map<K, V>          48 bytes, see struct map
 *   ge::Shape, TensorDesc, Tensor, AscendString, Graph, GNode: one std::shared_ptr
 *   ge::Operator            a virtual table pointer and one std::shared_ptr
 */
/* Every process that imports MindSpore with these stand-ins is known until it comes to its end, also one that keeps
 * ms-tune's hook out (`python -I`, a PYTHONPATH of its own) and is killed. */
__attribute__((constructor)) static void begin(void) { mark("MS_TUNE_TRACES", "/alive"); }
__attribute__((destructor)) static void end(void) { unmark("MS_TUNE_TRACES", "/alive"); }

typedef unsigned long word;

#define VISIBLE __attribute__((visibility("default")))

/* Returns 0: success for acl, ge, hccl and runtime functions, null or false for others. */
#define RETURNS_ZERO(name) VISIBLE word name(void) { return 0; }

/* Returns -1, which is ge::GRAPH_FAILED: "no such attribute" leaves the caller's default in place. */
#define RETURNS_FAILURE(name) VISIBLE word name(void) { return ~0ul; }

/* Returns its first argument: C++ functions that end in `return *this`. */
#define RETURNS_SELF(name) VISIBLE void *name(void *self) { return self; }

/* Fills n words at its first argument with zero and returns it: an empty object, constructed or returned by value. */
#define MAKES_EMPTY(name, n) \
  VISIBLE void *name(word *object) { \
    for (int i = 0; i < (n); ++i) ((volatile word *)object)[i] = 0; \
    return object; \
  }

/* An opaque handle: never null, never looked into. */
static word handle_target;
#define RETURNS_HANDLE(name) VISIBLE void *name(void) { return &handle_target; }

/* const char *: a C string, and an empty one. */
#define RETURNS_TEXT(name, text) VISIBLE const char *name(void) { return text; }
#define RETURNS_EMPTY_TEXT(name) RETURNS_TEXT(name, "")

/* int f(unsigned *count): as many devices as a node of Atlas 800T A2 has. */
#define COUNTS_DEVICES(name) \
  VISIBLE int name(unsigned *count) { \
    *count = 8; \
    return 0; \
  }

/* std::string by value, empty. The address must be that of libstdc++'s own shared empty string (its header is three
 * words long), or the caller's destructor would try to free it. */
extern word _ZNSs4_Rep20_S_empty_rep_storageE[] __attribute__((weak));
#define MAKES_EMPTY_STRING(name) \
  VISIBLE void *name(word *string) { \
    *string = (word)(_ZNSs4_Rep20_S_empty_rep_storageE + 3); \
    return string; \
  }

/* ge::Operator, constructed or returned by value. Its virtual functions are two destructors and nothing else is called
 * through the table: derived classes bring tables of their own. */
static void destroy_nothing(void) {}
static void *const operator_table[] = {0 /* offset to top */, 0 /* type info */, (void *)destroy_nothing,
                                       (void *)destroy_nothing};
#define MAKES_OPERATOR(name) \
  VISIBLE void *name(word *object) { \
    object[0] = (word)(operator_table + 2); \
    object[1] = object[2] = 0; \
    return object; \
  }

/* A function-local static object whose first member is an empty std::map, with room for more members behind it. */
struct map {
  word compare;               /* std::less: no data, padded */
  word colour;                /* header node: red */
  struct map_node *parent;    /* no root */
  void *leftmost, *rightmost; /* the header itself */
  word count;
};
#define RETURNS_REGISTRY(name) \
  VISIBLE void *name(void) { \
    static struct { struct map map; word rest[26]; } registry; \
    if (!registry.map.leftmost) registry.map.leftmost = registry.map.rightmost = &registry.map.colour; \
    return &registry; \
  }
