/* The inner loops of ms_tune/packing/plan.py: first fit, and a depth-first search for a placement within a capacity.
 *
 * Blocks have a life [lower, upper) in ticks, a size in bytes and an alignment of their addresses. The caller owns
 * every array; nothing is kept between two calls. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { SOLVED = 1, IMPOSSIBLE = 0, GAVE_UP = -1, NO_MEMORY = -2 };

static int64_t aligned(int64_t address, int64_t alignment) {
    return alignment > 1 ? (address + alignment - 1) / alignment * alignment : address;
}

/* ---- First fit ------------------------------------------------------------------------------------------------- */

/* Placed blocks lie in grids of cells of growing width, each in the finest grid where it touches at most two cells, so
 * that finding the neighbours of a block looks at few others. */

enum { MOST_LEVELS = 16 };

typedef struct {
    int64_t start, end; /* addresses */
    int32_t lower, upper;
} Placed;

typedef struct {
    Placed *items;
    int32_t count, room;
} Cell;

typedef struct {
    int64_t start, end;
} Span;

typedef struct {
    int levels;
    int shift[MOST_LEVELS];
    int32_t cells[MOST_LEVELS];
    Cell *grid[MOST_LEVELS];
    Span *heap;
    int64_t room;
    int64_t work; /* blocks that were looked at, and steps through the heap */
} Index;

static void index_free(Index *index) {
    for (int level = 0; level < index->levels; level++) {
        for (int32_t cell = 0; cell < index->cells[level]; cell++) {
            free(index->grid[level][cell].items);
        }
        free(index->grid[level]);
    }
    free(index->heap);
}

static int index_make(Index *index, int32_t count, int32_t ticks) {
    memset(index, 0, sizeof *index);
    int shift = 0;
    while ((ticks >> shift) > count / 4 + 1) {
        shift++;
    }
    for (int level = 0; level < MOST_LEVELS; level++, shift += 2) {
        index->shift[level] = shift;
        index->cells[level] = (ticks >> shift) + 1;
        index->grid[level] = calloc((size_t)index->cells[level], sizeof(Cell));
        if (index->grid[level] == NULL) {
            return 0;
        }
        index->levels = level + 1;
        if (index->cells[level] <= 2) {
            break;
        }
    }
    return 1;
}

/* Blocks of the index that live at the same time, unordered in index->heap; -1 if there is no memory for them. */
static int64_t neighbours(Index *index, int32_t lower, int32_t upper) {
    int64_t count = 0;
    for (int level = 0; level < index->levels; level++) {
        int shift = index->shift[level];
        int32_t first = lower >> shift, last = (upper - 1) >> shift;
        index->work += last - first + 1;
        for (int32_t cell = first; cell <= last; cell++) {
            const Cell *found = &index->grid[level][cell];
            if (count + found->count > index->room) {
                int64_t room = 2 * (count + found->count);
                Span *heap = realloc(index->heap, (size_t)room * sizeof(Span));
                if (heap == NULL) {
                    return -1;
                }
                index->heap = heap;
                index->room = room;
            }
            index->work += found->count;
            for (int32_t i = 0; i < found->count; i++) {
                const Placed *item = &found->items[i];
                int once = cell == first || (item->lower >> shift) == cell;
                if (once && item->lower < upper && item->upper > lower) {
                    index->heap[count].start = item->start;
                    index->heap[count].end = item->end;
                    count++;
                }
            }
        }
    }
    return count;
}

static void sift(Index *index, int64_t count, int64_t at) {
    Span *heap = index->heap;
    Span moved = heap[at];
    for (;; index->work++) {
        int64_t child = 2 * at + 1;
        if (child >= count) {
            break;
        }
        if (child + 1 < count && heap[child + 1].start < heap[child].start) {
            child++;
        }
        if (heap[child].start >= moved.start) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* The lowest address at which the block meets nobody; -1 if there is no memory to find out. Neighbours come off a heap
 * in order of their addresses until one leaves enough room below it. */
static int64_t lowest_gap(Index *index, int32_t lower, int32_t upper, int64_t size, int64_t alignment) {
    int64_t count = neighbours(index, lower, upper);
    int64_t address = 0;
    if (count < 0) {
        return -1;
    }
    Span *heap = index->heap;
    for (int64_t at = count / 2 - 1; at >= 0; at--) {
        sift(index, count, at);
    }
    while (count > 0 && heap[0].start - address < size) {
        if (heap[0].end > address) {
            address = aligned(heap[0].end, alignment);
        }
        heap[0] = heap[--count];
        sift(index, count, 0);
    }
    return address;
}

static int index_add(Index *index, Placed block) {
    int level = 0;
    while (level + 1 < index->levels &&
           ((block.upper - 1) >> index->shift[level]) - (block.lower >> index->shift[level]) > 1) {
        level++;
    }
    int shift = index->shift[level];
    for (int32_t at = block.lower >> shift; at <= (block.upper - 1) >> shift; at++) {
        Cell *cell = &index->grid[level][at];
        if (cell->count == cell->room) {
            int32_t room = cell->room ? 2 * cell->room : 8;
            Placed *items = realloc(cell->items, (size_t)room * sizeof(Placed));
            if (items == NULL) {
                return 0;
            }
            cell->items = items;
            cell->room = room;
        }
        cell->items[cell->count++] = block;
    }
    return 1;
}

/* Place the blocks one after the other, each at the lowest address where it meets nobody; stop as soon as one ends
 * above `limit`, or when `*work` is done, which is then what was done. Returns the height reached, which is above the limit
 * if not all are placed. */
EXPORT int64_t placement_first_fit(int32_t count, int32_t ticks, const int32_t *lower, const int32_t *upper,
                                   const int64_t *size, const int64_t *alignment, const int32_t *order, int64_t limit,
                                   int64_t *work, int64_t *address) {
    Index index;
    int64_t height = 0;
    int well = index_make(&index, count, ticks);
    for (int32_t at = 0; well && at < count && height <= limit; at++) {
        int32_t block = order[at];
        if (index.work > *work) {
            height = limit + 1;
            break;
        }
        int64_t start = lowest_gap(&index, lower[block], upper[block], size[block], alignment[block]);
        Placed placed = {start, start + size[block], lower[block], upper[block]};
        well = start >= 0 && index_add(&index, placed);
        address[block] = start;
        if (placed.end > height) {
            height = placed.end;
        }
    }
    *work = index.work;
    index_free(&index);
    return well ? height : NO_MEMORY;
}

/* ---- Depth-first search ---------------------------------------------------------------------------------------- */

/* Only placements in which no block can be moved down are looked for: if there is any placement, there is one of those
 * (let blocks fall, the sum of addresses shrinks). Blocks are placed in order of (address, rank). So
 *  - a block is placed at its floor, the top of what lies below it, and never above it;
 *  - a block whose floor was passed must still be lifted by another one, at least to the lowest end of a neighbour;
 *  - a branch that leaves a hole into which an unplaced block fits as a whole is cut;
 *  - of two alike blocks the one of lower rank comes first.
 * A node is cut if for some tick and address the unplaced blocks that must lie above the address need more than is left
 * above it. The search was made for problems of up to about a thousand blocks; it recurses once a block. */

typedef struct {
    int64_t start;
    int32_t block, rank;
} Choice;

typedef struct {
    int64_t start; /* blocks are placed in order of (start, rank) */
    int32_t rank;
} Mark;

typedef struct {
    const int32_t *lower, *upper;
    int32_t *rank;
    const int32_t *tie;  /* NULL, or who goes first where as much is left at the fullest tick; then ranks follow the parts */
    const int32_t *twin; /* the alike block of next lower rank, or -1 */
    const int64_t *size, *alignment;
    int64_t capacity;
    int64_t *address;
    double *failures; /* by tick: how often nothing more could be placed because of it */
    int64_t *floor;   /* by block: the lowest address that what was placed so far leaves it */
    char *placed;
    int64_t *sum, *least, *second; /* by tick, scratch */
    int32_t *who;                  /* by tick, scratch */
    int64_t nodes, most_nodes;
    int64_t work, most_work; /* blocks that were left, summed over the nodes */
    int gave_up;
    int elsewhere; /* the last failure has nothing to do with the block that was placed before it */
    char *arena;
    size_t top, room;
} Search;

/* Scratch memory of one node; it is given back by setting search->top to what it was. */
static void *take(Search *search, size_t bytes) {
    bytes = (bytes + 15) & ~(size_t)15;
    if (search->top + bytes > search->room) {
        search->gave_up = 1;
        return NULL;
    }
    void *memory = search->arena + search->top;
    search->top += bytes;
    return memory;
}

static int may_come(const Search *search, int32_t block, Mark from) {
    int64_t floor = search->floor[block];
    return floor > from.start || (floor == from.start && search->rank[block] > from.rank);
}

static int blame(Search *search, int32_t block) {
    for (int32_t tick = search->lower[block]; tick < search->upper[block]; tick++) {
        search->failures[tick] += 1;
    }
    return 0;
}

/* Raise the starts of blocks whose floors were passed to the lowest end of a neighbour; 0 if one cannot be lifted. */
static int lift(Search *search, Choice *starts, int32_t count, Mark from, int32_t begin, int32_t end) {
    for (int32_t tick = begin; tick < end; tick++) {
        search->least[tick] = search->second[tick] = INT64_MAX;
        search->who[tick] = -1;
    }
    for (int32_t i = 0; i < count; i++) {
        int32_t block = starts[i].block;
        int64_t top = starts[i].start + search->size[block];
        for (int32_t tick = search->lower[block]; tick < search->upper[block]; tick++) {
            if (top < search->least[tick]) {
                search->second[tick] = search->least[tick];
                search->least[tick] = top;
                search->who[tick] = block;
            } else if (top < search->second[tick]) {
                search->second[tick] = top;
            }
        }
    }
    for (int32_t i = 0; i < count; i++) {
        int32_t block = starts[i].block;
        if (may_come(search, block, from)) {
            continue;
        }
        int64_t start = INT64_MAX;
        for (int32_t tick = search->lower[block]; tick < search->upper[block]; tick++) {
            int64_t top = search->who[tick] == block ? search->second[tick] : search->least[tick];
            start = top < start ? top : start;
        }
        if (start == INT64_MAX) {
            return blame(search, block);
        }
        start = aligned(start, search->alignment[block]);
        if (start + search->size[block] > search->capacity) {
            return blame(search, block);
        }
        starts[i].start = start;
    }
    return 1;
}

/* Whether at every tick, what must lie above any address fits above it. Sorts the starts, the highest first. */
static int sums_fit(Search *search, Choice *starts, int32_t count, int32_t begin, int32_t end) {
    for (int32_t i = 1; i < count; i++) {
        Choice moved = starts[i];
        int32_t at = i;
        for (; at > 0 && starts[at - 1].start < moved.start; at--) {
            starts[at] = starts[at - 1];
        }
        starts[at] = moved;
    }
    memset(search->sum + begin, 0, (size_t)(end - begin) * sizeof(int64_t));
    for (int32_t i = 0; i < count; i++) {
        int32_t block = starts[i].block;
        int64_t room = search->capacity - starts[i].start;
        for (int32_t tick = search->lower[block]; tick < search->upper[block]; tick++) {
            search->sum[tick] += search->size[block];
            if (search->sum[tick] > room) {
                search->failures[tick] += 1;
                return 0;
            }
        }
    }
    return 1;
}

/* Whether what is left may still be placed. `starts` is scratch for `count` items. */
static int hopeful(Search *search, const int32_t *blocks, int32_t count, Mark from, Choice *starts) {
    int32_t begin = search->lower[blocks[0]], end = begin;
    int passed = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t block = blocks[i];
        int64_t start = search->floor[block];
        end = search->upper[block] > end ? search->upper[block] : end;
        if (!may_come(search, block, from)) {
            if (start + search->size[block] <= from.start) {
                return 0; /* it would fall into the hole below */
            }
            start = aligned(from.start, search->alignment[block]);
            passed = 1;
        }
        if (start + search->size[block] > search->capacity) {
            return blame(search, block);
        }
        starts[i] = (Choice){start, block, 0};
    }
    return (!passed || lift(search, starts, count, from, begin, end)) && sums_fit(search, starts, count, begin, end);
}

/* The blocks that may come next, in order of (start, rank). */
static int32_t choices_of(const Search *search, const int32_t *blocks, int32_t count, Mark from, Choice *choices) {
    int64_t limit = INT64_MAX;
    for (int32_t i = 0; i < count; i++) {
        int64_t top = search->floor[blocks[i]] + search->size[blocks[i]];
        limit = top < limit ? top : limit;
    }
    int32_t found = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t block = blocks[i], twin = search->twin[block];
        Choice choice = {search->floor[block], block, search->rank[block]};
        if (choice.start >= limit || !may_come(search, block, from) || (twin >= 0 && !search->placed[twin])) {
            continue;
        }
        int32_t at = found++;
        for (; at > 0 && (choices[at - 1].start > choice.start ||
                          (choices[at - 1].start == choice.start && choices[at - 1].rank > choice.rank));
             at--) {
            choices[at] = choices[at - 1];
        }
        choices[at] = choice;
    }
    return found;
}

static int place_apart(Search *search, const int32_t *blocks, int32_t count, int32_t under, Mark from);

/* Place a block and then all others; 0 leaves everything as it was. */
static int try_choice(Search *search, const int32_t *blocks, int32_t count, Mark from, Choice choice, int32_t *rest,
                      int64_t *floors) {
    int32_t block = choice.block, left = 0;
    int64_t top = choice.start + search->size[block];
    for (int32_t i = 0; i < count; i++) {
        int32_t other = blocks[i];
        if (other == block) {
            continue;
        }
        rest[left] = other;
        floors[left++] = search->floor[other];
        if (search->lower[other] < search->upper[block] && search->upper[other] > search->lower[block] &&
            search->floor[other] < top) {
            search->floor[other] = aligned(top, search->alignment[other]);
        }
    }
    search->address[block] = choice.start;
    search->placed[block] = 1;
    if (place_apart(search, rest, left, block, from)) {
        return 1;
    }
    search->placed[block] = 0;
    for (int32_t i = 0; i < left; i++) {
        search->floor[rest[i]] = floors[i];
    }
    return 0;
}

/* Place blocks, which are in order of their lower tick and connected, after `from`. */
static int place_all(Search *search, const int32_t *blocks, int32_t count, Mark from) {
    search->nodes++;
    search->work += count;
    search->elsewhere = 0;
    if (search->nodes > search->most_nodes || search->work > search->most_work) {
        search->gave_up = 1;
        return 0;
    }
    size_t top = search->top;
    int solved = 0;
    Choice *choices = take(search, (size_t)count * sizeof(Choice));
    int32_t *rest = take(search, (size_t)count * sizeof(int32_t));
    int64_t *floors = take(search, (size_t)count * sizeof(int64_t));
    if (!search->gave_up && hopeful(search, blocks, count, from, choices)) {
        int32_t found = choices_of(search, blocks, count, from, choices);
        for (int32_t i = 0; i < found && !solved && !search->gave_up; i++) {
            solved = try_choice(search, blocks, count, from, choices[i], rest, floors);
            if (!solved && search->elsewhere) {
                break; /* what failed would fail under every other choice, too */
            }
        }
    }
    search->elsewhere = 0;
    search->top = top;
    return solved;
}

/* Whether any of the blocks lives at the same time as another block. */
static int meets(const Search *search, const int32_t *blocks, int32_t count, int32_t other) {
    for (int32_t i = 0; other >= 0 && i < count; i++) {
        if (search->lower[blocks[i]] < search->upper[other] && search->upper[blocks[i]] > search->lower[other]) {
            return 1;
        }
    }
    return 0;
}

/* Rank the blocks of a part anew: those go first that live where most of it is left, then those of the lowest tie. */
static void rank_part(Search *search, const int32_t *blocks, int32_t count, int64_t *most, int32_t *order) {
    int32_t begin = search->lower[blocks[0]], end = begin;
    for (int32_t i = 0; i < count; i++) {
        int32_t upper = search->upper[blocks[i]];
        end = upper > end ? upper : end;
    }
    memset(search->sum + begin, 0, (size_t)(end - begin) * sizeof(int64_t));
    for (int32_t i = 0; i < count; i++) {
        for (int32_t tick = search->lower[blocks[i]]; tick < search->upper[blocks[i]]; tick++) {
            search->sum[tick] += search->size[blocks[i]];
        }
    }
    for (int32_t i = 0; i < count; i++) {
        int32_t block = blocks[i], at = i;
        int64_t left = 0;
        for (int32_t tick = search->lower[block]; tick < search->upper[block]; tick++) {
            left = search->sum[tick] > left ? search->sum[tick] : left;
        }
        for (; at > 0 && (most[at - 1] < left || (most[at - 1] == left && search->tie[order[at - 1]] > search->tie[block]));
             at--) {
            most[at] = most[at - 1];
            order[at] = order[at - 1];
        }
        most[at] = left;
        order[at] = block;
    }
    for (int32_t i = 0; i < count; i++) {
        search->rank[order[i]] = i + 1;
    }
}

/* Place a part of what is left after `from`; where ranks follow the parts, under ranks of its own. */
static int place_part(Search *search, const int32_t *blocks, int32_t count, Mark from, int ranked) {
    if (!ranked) {
        return place_all(search, blocks, count, from);
    }
    size_t top = search->top;
    int32_t *before = take(search, (size_t)count * sizeof(int32_t));
    int32_t *order = take(search, (size_t)count * sizeof(int32_t));
    int64_t *most = take(search, (size_t)count * sizeof(int64_t));
    if (search->gave_up) {
        search->top = top;
        return 0;
    }
    for (int32_t i = 0; i < count; i++) {
        before[i] = search->rank[blocks[i]];
    }
    rank_part(search, blocks, count, most, order);
    int solved = place_all(search, blocks, count, (Mark){from.start, 0});
    for (int32_t i = 0; i < count; i++) {
        search->rank[blocks[i]] = before[i];
    }
    search->top = top;
    return solved;
}

/* Blocks that no chain of shared ticks connects do not concern each other: place each group on its own, the smallest
 * first, because it fails soonest. Only groups that meet the block `under`, which was placed last, come after it; the
 * others go on after `from`. */
static int place_apart(Search *search, const int32_t *blocks, int32_t count, int32_t under, Mark from) {
    if (count == 0) {
        return 1;
    }
    size_t top = search->top;
    int32_t *bounds = take(search, ((size_t)count + 1) * sizeof(int32_t));
    char *done = take(search, (size_t)count);
    if (search->gave_up) {
        search->top = top;
        return 0;
    }
    memset(done, 0, (size_t)count);
    int32_t groups = 0, end = search->upper[blocks[0]];
    bounds[0] = 0;
    for (int32_t i = 1; i < count; i++) {
        if (search->lower[blocks[i]] >= end) {
            bounds[++groups] = i;
        }
        end = search->upper[blocks[i]] > end ? search->upper[blocks[i]] : end;
    }
    bounds[++groups] = count;
    int solved = 1;
    for (int32_t turn = 0; solved && turn < groups; turn++) {
        int32_t next = -1;
        for (int32_t group = 0; group < groups; group++) {
            if (!done[group] && (next < 0 || bounds[group + 1] - bounds[group] < bounds[next + 1] - bounds[next])) {
                next = group;
            }
        }
        int32_t length = bounds[next + 1] - bounds[next];
        int concerned = meets(search, blocks + bounds[next], length, under);
        Mark after = concerned ? (Mark){search->address[under], search->rank[under]} : from;
        solved = place_part(search, blocks + bounds[next], length, after, groups > 1 && search->tie != NULL);
        search->elsewhere = !solved && !concerned && under >= 0;
        done[next] = (char)solved;
    }
    for (int32_t group = 0; !solved && group < groups; group++) {
        for (int32_t i = bounds[group]; done[group] && i < bounds[group + 1]; i++) {
            search->placed[blocks[i]] = 0; /* whoever changed their floors restores them */
        }
    }
    search->top = top;
    return solved;
}

/* Look for a placement within a capacity. Blocks come in order of their lower tick; `rank` is different for each of
 * them and decides who is tried first. `failures` has room for every tick and is added to. `*work` is the most that may be
 * done, and then what was. Returns SOLVED, IMPOSSIBLE (nothing was left out) or GAVE_UP. */
EXPORT int placement_search(int32_t count, int32_t ticks, const int32_t *lower, const int32_t *upper,
                            const int64_t *size, const int64_t *alignment, const int32_t *rank, const int32_t *twin,
                            const int32_t *tie, int64_t capacity, int64_t most_nodes, double *failures, int64_t *address,
                            int64_t *work) {
    size_t blocks_room = (size_t)count + 1, ticks_room = (size_t)ticks + 1;
    Search search = {.lower = lower, .upper = upper, .size = size, .alignment = alignment, .tie = tie,
                     .twin = twin, .capacity = capacity, .address = address, .failures = failures,
                     .most_nodes = most_nodes, .most_work = *work};
    int32_t *blocks = malloc(blocks_room * sizeof(int32_t));
    search.rank = malloc(blocks_room * sizeof(int32_t));
    search.floor = calloc(blocks_room, sizeof(int64_t));
    search.placed = calloc(blocks_room, 1);
    search.sum = calloc(ticks_room, sizeof(int64_t));
    search.least = calloc(ticks_room, sizeof(int64_t));
    search.second = calloc(ticks_room, sizeof(int64_t));
    search.who = calloc(ticks_room, sizeof(int32_t));
    search.room = blocks_room * blocks_room * 40 + blocks_room * 192; /* what all nodes of a path take together */
    search.arena = malloc(search.room);
    int result = NO_MEMORY;
    if (blocks && search.rank && search.floor && search.placed && search.sum && search.least && search.second && search.who &&
        search.arena) {
        for (int32_t block = 0; block < count; block++) {
            blocks[block] = block;
            search.rank[block] = rank[block];
        }
        int solved = place_apart(&search, blocks, count, -1, (Mark){-1, 0});
        result = solved ? SOLVED : search.gave_up ? GAVE_UP : IMPOSSIBLE;
    }
    *work = search.work;
    free(blocks);
    free(search.rank);
    free(search.floor);
    free(search.placed);
    free(search.sum);
    free(search.least);
    free(search.second);
    free(search.who);
    free(search.arena);
    return result;
}
