/* The inner loop of ms_tune/planning/anneal.py: chains of simulated annealing, side by side so that the processor simulates them at once.
 *
 * Times are whole numbers of ticks below 2^53, so sums of doubles are exact and every machine finds the same plan. The caller
 * owns every array; nothing is kept between two calls. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define FAST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FAST
#endif

enum { CHAINS = 8, TRIED = 24, DRAWS = 1024, EXCHANGED = 20, SAME = 45, CHUNK = 60, NEXT = 80 };
#define OVER 4503599627370496.0 /* 2^52: the score of a plan over the limit, plus 1 for each KiB */

typedef int64_t I;

/* In the order of `_problem_of` in anneal.py; arrays as in costs.Costs. */
typedef struct {
    I cells, kinds, runs, stages, chunks, passes, moments, layers, limit, fixed_layers, select, comm, full, first, last;
    I on_top, back, updated, tail_transient;
    const I *forward, *backward, *kept, *once, *left, *weights, *ends, *fixed, *in_flight, *returning, *was_back, *transients;
    const I *piled, *full_top, *run, *full_first, *full_layer, *update_stage, *update_layer, *kind, *before, *source, *final, *loss;
} Problem;

typedef struct {
    I forward, backward, kept, held, left, again, replaced, full, layers;
} Sums;

typedef struct {
    I *state, *over, first, last; /* layers by cell and kind; bytes over the limit by stage; the cells that the last move changed */
    I *old_state, *old_over;
    Sums *sums, *old_sums;
    uint64_t random;
} Chain;

static uint32_t draw(Chain *chain) { /* xorshift64* */
    uint64_t x = chain->random;
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
    chain->random = x;
    return (uint32_t)((x * 0x2545F4914F6CDD1DULL) >> 33);
}

static I larger(I a, I b) { return a > b ? a : b; }
static I smaller(I a, I b) { return a < b ? a : b; }

/* As in costs.Costs._recompute_transient, of one cell. */
static I transient_of(const Problem *p, I cell, const I *state, I start, int piles) {
    I most = 0, more = 0, stop = start;
    for (I k = 0; k < p->kinds; k++) stop += state[k];
    for (I k = p->kinds - 1; k >= 0; stop -= state[k--])
        for (I r = p->runs - 1; r >= 0; r--) {
            I count = smaller(stop, p->run[r + 1]) - larger(stop - state[k], p->run[r]);
            if (count <= 0) continue;
            const I *kept = p->kept + k * (p->layers + 1) + p->run[r];
            I left = piles ? p->piled[k * p->runs + r] : 0, each = left - (kept[1] - kept[0]);
            I size = p->transients[k * p->runs + r] + left + (k == p->full ? p->full_top[cell] : 0);
            most = larger(most, more + size + larger((count - 1) * each, 0));
            more += count * each;
        }
    return most;
}

static Sums sums_of(const Problem *p, I cell, const I *state, I start) {
    Sums found = {p->ends[cell], 2 * p->ends[cell], 0, 0, 0, 0, 0, 0, 0};
    I stop = start;
    for (I k = 0; k < p->kinds; k++) {
        const I first = k * (p->layers + 1) + stop, end = first + state[k];
        stop += state[k];
        found.forward += p->forward[end] - p->forward[first], found.backward += p->backward[end] - p->backward[first];
        found.kept += p->kept[end] - p->kept[first], found.held += p->once[end] - p->once[first];
        found.left += p->left[end] - p->left[first];
    }
    found.held += p->weights[stop] - p->weights[start], found.layers = stop - start;
    found.full = p->full < 0 ? 0 : state[p->full];
    if (p->on_top) {
        const I least = cell == p->cells - 1 ? p->tail_transient : 0;
        found.again = larger(transient_of(p, cell, state, start, 1), least);
        found.replaced = p->back ? larger(transient_of(p, cell, state, start, 0), least) : 0;
    }
    return found;
}

/* Return by how many bytes a stage exceeds the limit, as in costs.Costs.peak_bytes. */
static I over_of(const Problem *p, const Sums *sums, I stage) {
    I held = p->fixed[stage], most = INT64_MIN, full = 0, layers = 0;
    for (I v = 0; v < p->chunks; v++) {
        const I cell = v * p->stages + stage;
        held += sums[cell].held + sums[cell].full * p->full_layer[cell];
        full += sums[cell].full, layers += sums[cell].layers;
    }
    for (I m = 0; m < p->moments; m++) {
        const I place = stage * p->moments + m, again = p->returning[place];
        const Sums *one = sums + again * p->stages + stage;
        I bytes = p->back && p->was_back[place * p->chunks + again] ? one->replaced : one->again;
        for (I v = 0; v < p->chunks; v++) {
            const Sums *cell = sums + v * p->stages + stage;
            bytes += p->in_flight[place * p->chunks + v] * cell->kept;
            if (p->back) bytes += p->was_back[place * p->chunks + v] * cell->left;
        }
        most = larger(most, bytes);
    }
    held += most + (full > 0 ? p->full_first[stage] : 0);
    if (p->updated) held = larger(held, p->update_stage[stage] + p->update_layer[stage] * layers);
    return held - p->limit;
}

static void measure(const Problem *p, Chain *chain, I first, I last) { /* the cells from first to last */
    I start = 0;
    for (I c = 0; c < first; c++) start += chain->sums[c].layers;
    for (I c = first; c <= last; c++) {
        if (p->runs > 1 || c == first || c == last || memcmp(chain->state + c * p->kinds, chain->old_state + c * p->kinds, p->kinds * sizeof(I)))
            chain->sums[c] = sums_of(p, c, chain->state + c * p->kinds, start);
        start += chain->sums[c].layers;
    }
    for (I s = 0; s < p->stages; s++) /* those with such a cell */
        if (last - first + 1 >= p->stages || (s - first % p->stages + p->stages) % p->stages <= last - first)
            chain->over[s] = over_of(p, chain->sums, s);
}

static I aim_of(const Problem *p, I cell, uint32_t way, uint32_t step) {
    if (way == 0) return (cell + p->stages * (1 + step % larger(p->chunks - 1, 1))) % p->cells;
    if (way == 1) return larger(smaller(cell + (step % 2 ? -1 : 1), p->cells - 1), 0);
    return step % p->cells;
}

static I move_layer(const Problem *p, Chain *chain, I cell) { /* of any cell if -1; return where it went */
    I kind;
    do {
        if (cell < 0 || chain->sums[cell].layers == 0) cell = draw(chain) % p->cells;
        kind = draw(chain) % p->kinds;
        if (!chain->state[cell * p->kinds + kind]) cell = cell < 0 || draw(chain) % 4 == 0 ? draw(chain) % p->cells : cell;
    } while (!chain->state[cell * p->kinds + kind]);
    const uint32_t way = draw(chain) % 100, step = draw(chain);
    const I aim = way < SAME || p->fixed_layers ? cell : aim_of(p, cell, way < CHUNK ? 0 : way < NEXT ? 1 : 2, step);
    const I other = aim != cell && draw(chain) % 2 ? kind : (I)(draw(chain) % p->kinds);
    chain->state[cell * p->kinds + kind]--, chain->state[aim * p->kinds + other]++;
    chain->first = smaller(chain->first, smaller(cell, aim)), chain->last = larger(chain->last, larger(cell, aim));
    return draw(chain) % 2 ? cell : aim;
}

/* Forget what the last move changed, or keep it. */
static void settle(const Problem *p, Chain *chain, int kept) {
    if (chain->last < chain->first) return;
    const I first = chain->first, count = chain->last - first + 1;
    I *const states[2] = {chain->state + first * p->kinds, chain->old_state + first * p->kinds}, *const over[2] = {chain->over, chain->old_over};
    Sums *const sums[2] = {chain->sums + first, chain->old_sums + first};
    memcpy(states[kept], states[!kept], count * p->kinds * sizeof(I));
    memcpy(sums[kept], sums[!kept], count * sizeof(Sums));
    memcpy(over[kept], over[!kept], p->stages * sizeof(I));
    chain->first = p->cells, chain->last = -1;
}

/* Apply a random move; return whether the plan is another one that the framework accepts. */
static int move(const Problem *p, Chain *chain) {
    if (!p->fixed_layers && draw(chain) % 100 < EXCHANGED) {
        const I one = draw(chain) % p->cells, way = draw(chain) % 3, other = aim_of(p, one, way, draw(chain));
        for (I k = 0; k < p->kinds; k++) {
            I *a = chain->state + one * p->kinds + k, *b = chain->state + other * p->kinds + k, c = *a;
            *a = *b, *b = c;
        }
        chain->first = smaller(one, other), chain->last = larger(one, other);
    } else {
        const I cell = move_layer(p, chain, -1);
        if (draw(chain) % 2) {
            const uint32_t near = draw(chain);
            move_layer(p, chain, near % 2 ? (cell + p->stages * (near / 2 % p->chunks)) % p->cells : -1);
        }
    }
    int changed = 0;
    for (I c = chain->first; c <= chain->last; c++) {
        const I *state = chain->state + c * p->kinds;
        I layers = 0;
        for (I k = 0; k < p->kinds; k++) layers += state[k], changed |= state[k] != chain->old_state[c * p->kinds + k];
        if (!layers && c >= p->first && c < p->last) return 0;
        if (p->select >= 0 && p->comm >= 0 && state[p->select] && state[p->comm]) return 0;
    }
    return changed;
}

static I most_over(const Problem *p, const Chain *chain) {
    I most = INT64_MIN;
    for (I s = 0; s < p->stages; s++) most = larger(most, chain->over[s]);
    return most;
}

FAST static void simulate(const Problem *p, const double *restrict length, double *restrict ends, double *restrict times) {
    for (I i = 0; i < p->passes; i++) {
        const double *a = ends + p->before[i] * CHAINS, *b = ends + p->source[i] * CHAINS, *c = length + p->kind[i] * CHAINS;
        double sum[CHAINS];
        for (int l = 0; l < CHAINS; l++) sum[l] = (a[l] > b[l] ? a[l] : b[l]) + c[l];
        for (int l = 0; l < CHAINS; l++) ends[i * CHAINS + l] = sum[l];
    }
    for (int l = 0; l < CHAINS; l++) times[l] = 0;
    for (I s = 0; s < p->stages; s++)
        for (int l = 0; l < CHAINS; l++) {
            const double end = ends[p->final[s] * CHAINS + l];
            times[l] = end > times[l] ? end : times[l];
        }
}

static void set_lengths(const Problem *p, const Chain *chain, I number, double *length) {
    for (I c = chain->first; c <= chain->last; c++) {
        length[c * CHAINS + number] = (double)chain->sums[c].forward;
        length[(p->cells + c) * CHAINS + number] = (double)chain->sums[c].backward;
    }
}

/* Make a number of steps with every chain. States, scores and random numbers are those of the chains and change; best is the best state
 * with its score. Return 0, or 1 without memory. */
EXPORT int anneal(const Problem *p, I *states, double *scores, uint64_t *randoms, I *best, double *best_score, double heat, I steps) {
    const I each = p->cells * p->kinds;
    Chain chains[CHAINS];
    double *length = calloc(2 * p->cells * CHAINS, sizeof(double)), *ends = calloc((p->passes + 1) * CHAINS, sizeof(double));
    I *numbers = calloc(CHAINS * (each + 2 * p->stages), sizeof(I));
    Sums *sums = calloc(CHAINS * 2 * p->cells, sizeof(Sums));
    const int failed = !length || !ends || !numbers || !sums;
    for (int l = 0; l < CHAINS && !failed; l++) {
        Chain *chain = chains + l;
        I *own = numbers + l * (each + 2 * p->stages);
        *chain = (Chain){states + l * each, own, 0, p->cells - 1, own + 2 * p->stages, own + p->stages,
                         sums + 2 * l * p->cells, sums + (2 * l + 1) * p->cells, randoms[l]};
        for (I c = 0; c < each; c++) chain->old_state[c] = -1;
        measure(p, chain, 0, p->cells - 1);
        set_lengths(p, chain, l, length);
        settle(p, chain, 1);
    }
    for (I step = failed ? steps : 0; step < steps; step++) {
        double times[CHAINS];
        for (int l = 0; l < CHAINS; l++) {
            Chain *chain = chains + l;
            for (int tried = 0; tried < TRIED; tried++) {
                if (!move(p, chain)) {
                    settle(p, chain, 0);
                    continue;
                }
                measure(p, chain, chain->first, chain->last);
                const I over = most_over(p, chain);
                if (over <= 0) break;
                const double score = OVER + (double)((over + 1023) / 1024);
                if (score > scores[l]) {
                    settle(p, chain, 0);
                    continue;
                }
                set_lengths(p, chain, l, length);
                settle(p, chain, 1), scores[l] = score;
                if (score < *best_score) *best_score = score, memcpy(best, chain->state, each * sizeof(I));
            }
            set_lengths(p, chain, l, length);
        }
        simulate(p, length, ends, times);
        for (int l = 0; l < CHAINS; l++) {
            Chain *chain = chains + l;
            if (chain->last < chain->first) continue;
            const double allowed = scores[l] + (double)((I)heat * p->loss[draw(chain) % DRAWS] / 1000000);
            if (times[l] > allowed) {
                const I first = chain->first, last = chain->last;
                settle(p, chain, 0);
                chain->first = first, chain->last = last;
                set_lengths(p, chain, l, length);
                chain->first = p->cells, chain->last = -1;
                continue;
            }
            settle(p, chain, 1), scores[l] = times[l];
            if (times[l] < *best_score) *best_score = times[l], memcpy(best, chain->state, each * sizeof(I));
        }
    }
    for (int l = 0; l < CHAINS && !failed; l++) randoms[l] = chains[l].random;
    free(length), free(ends), free(numbers), free(sums);
    return failed;
}
