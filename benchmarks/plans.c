// Search for the best plan of a table, as long as asked: a simulator and an annealing of their own, for benchmarks/plans.py.
// Arguments: seconds of the processor, seed. Input: see `text_of` there. Output: the best time, and its layers by cell and mode.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CELLS = 128, MODES = 6, GROUPS = 8, STAGES = 64 };
typedef int Plan[CELLS][MODES];

static int cells, modes, groups, stages, chunks, passes, select_mode, comm_mode;
static int count[GROUPS];
static double weight[GROUPS], forward[GROUPS][MODES], backward[GROUPS][MODES], kept[GROUPS][MODES], head, tail;
static int *kind, *before, *source, moments[STAGES], *in_flight[STAGES];
static double *ends, *late[STAGES], room[STAGES];

static uint64_t state[2];
static uint64_t draw(void) {  // xoroshiro128+
    uint64_t a = state[0], b = state[1], sum = a + b;
    b ^= a;
    state[0] = ((a << 24) | (a >> 40)) ^ b ^ (b << 16);
    state[1] = (b << 37) | (b >> 27);
    return sum;
}
static double share(void) { return (draw() >> 11) * 0x1.0p-53; }

static double time_of(Plan plan, double *over) {  // infinite over the limit
    double length[2 * CELLS], held[CELLS], weights[CELLS];
    int group = 0, left = count[0];
    for (int cell = 0; cell < cells; cell++) {
        double f = cell ? 0 : head, k = 0, w = 0;
        if (cell == cells - 1) f += tail;
        double b = 2 * f;
        for (int mode = 0; mode < modes; mode++)
            for (int n = plan[cell][mode]; n > 0;) {
                if (!left) left = count[++group];
                int some = n < left ? n : left;
                f += some * forward[group][mode], b += some * backward[group][mode];
                k += some * kept[group][mode], w += some * weight[group];
                n -= some, left -= some;
            }
        length[cell] = f, length[cells + cell] = b, held[cell] = k, weights[cell] = w;
    }
    *over = 0;
    for (int stage = 0; stage < stages; stage++) {
        double base = 0, most = 0;
        for (int cell = stage; cell < cells; cell += stages) base += weights[cell];
        for (int m = 0; m < moments[stage]; m++) {
            double sum = late[stage][m];
            for (int v = 0; v < chunks; v++) sum += in_flight[stage][m * chunks + v] * held[v * stages + stage];
            most = fmax(most, sum);
        }
        *over = fmax(*over, base + most - room[stage]);
    }
    if (*over > 0) return INFINITY;
    double last = 0;
    ends[passes] = 0;
    for (int i = 0; i < passes; i++) {
        ends[i] = fmax(ends[before[i]], ends[source[i]]) + length[kind[i]];
        last = fmax(last, ends[i]);
    }
    return last;
}

static int move(Plan plan) {  // returns whether the plan is still allowed
    if (draw() % 5 == 0) {
        int one = draw() % cells, other = draw() % 2 ? (one + stages) % cells : (int)(draw() % cells), swap[MODES];
        memcpy(swap, plan[one], sizeof swap), memcpy(plan[one], plan[other], sizeof swap), memcpy(plan[other], swap, sizeof swap);
    } else
        for (int moves = 1 + draw() % 2; moves; moves--) {
            int cell, mode, aim, way = draw() % 100;
            do cell = draw() % cells, mode = draw() % modes;
            while (!plan[cell][mode]);
            aim = way < 45 ? cell : way < 60 ? (cell + stages) % cells : way < 80 ? cell + (draw() % 2 ? 1 : -1) : (int)(draw() % cells);
            if (aim < 0 || aim >= cells) return 0;
            plan[cell][mode]--, plan[aim][aim != cell && draw() % 2 ? mode : (int)(draw() % modes)]++;
        }
    for (int cell = 0; cell < cells; cell++) {
        int layers = 0;
        for (int mode = 0; mode < modes; mode++) layers += plan[cell][mode];
        if (!layers && cell && cell < cells - 1) return 0;
        if (select_mode >= 0 && comm_mode >= 0 && plan[cell][select_mode] && plan[cell][comm_mode]) return 0;
    }
    return 1;
}

int main(int arguments, char **argument) {
    if (arguments != 3) return 2;
    double seconds = atof(argument[1]);
    state[0] = strtoull(argument[2], 0, 10) * 0x9E3779B97F4A7C15ULL + 1, state[1] = 12345;
    if (scanf("%d%d%d%d%d%d%d%d", &cells, &modes, &groups, &stages, &chunks, &passes, &select_mode, &comm_mode) != 8) return 2;
    if (cells > CELLS || modes > MODES || groups > GROUPS || stages > STAGES) return 2;
    for (int g = 0; g < groups; g++) {
        if (scanf("%d%lf", &count[g], &weight[g]) != 2) return 2;
        for (int m = 0; m < modes; m++)
            if (scanf("%lf%lf%lf", &forward[g][m], &backward[g][m], &kept[g][m]) != 3) return 2;
    }
    if (scanf("%lf%lf", &head, &tail) != 2) return 2;
    kind = calloc(passes, sizeof(int)), before = calloc(passes, sizeof(int)), source = calloc(passes, sizeof(int));
    ends = calloc(passes + 1, sizeof(double));
    for (int i = 0; i < passes; i++)
        if (scanf("%d%d%d", &kind[i], &before[i], &source[i]) != 3) return 2;
    for (int s = 0; s < stages; s++) {
        if (scanf("%d%lf", &moments[s], &room[s]) != 2) return 2;
        in_flight[s] = calloc(moments[s] * chunks, sizeof(int)), late[s] = calloc(moments[s], sizeof(double));
        for (int m = 0; m < moments[s]; m++) {
            if (scanf("%lf", &late[s][m]) != 1) return 2;
            for (int v = 0; v < chunks; v++)
                if (scanf("%d", &in_flight[s][m * chunks + v]) != 1) return 2;
        }
    }
    static Plan start, now, next, best;
    for (int c = 0; c < cells; c++)
        for (int m = 0; m < modes; m++)
            if (scanf("%d", &start[c][m]) != 1) return 2;
    double least = INFINITY;
    for (int run = 0; clock() < seconds * CLOCKS_PER_SEC; run++) {
        double over, hot = 0.004 * (0.3 + 1.5 * share());
        memcpy(now, run > 3 && draw() % 2 && isfinite(least) ? best : start, sizeof now);
        double time = time_of(now, &over);
        const long moves = 400000;
        for (long i = 0; i < moves && clock() < seconds * CLOCKS_PER_SEC; i++) {
            double more, heat = hot * pow(3e-5 / hot, (double)i / moves);
            memcpy(next, now, sizeof next);
            if (!move(next)) continue;
            double other = time_of(next, &more);
            if (isinf(time) ? more <= over : !isinf(other) && other - time <= -heat * time * log(share() + 1e-300)) {
                memcpy(now, next, sizeof now), time = other, over = more;
                if (time < least) least = time, memcpy(best, now, sizeof best);
            }
        }
    }
    printf("%.6f", least);
    for (int c = 0; c < cells; c++)
        for (int m = 0; m < modes; m++) printf(" %d", best[c][m]);
    return 0;
}
