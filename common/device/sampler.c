/* SPDX-License-Identifier: MIT */
/* The thread that reads sensors; see sampler.h. It sleeps while nothing is timed. */
#include "common/device/sampler.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "common/core/clock.h"
#include "common/core/error.h"

enum { MOST_READINGS = 1 << 14 }; /* of a sensor in a window: five minutes at one every 20 ms */

struct sampler {
    const clocks *c;
    double every_s, pace_s; /* pace_s: in this window */
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    bool on, stopping;
    unsigned window; /* counts begins: a reading that began in one does not count in another */
    double begun_s;
    sampled seen;
    size_t told_mhz, told_w; /* readings of it that sampler_lately has told */
    energy_reading *energy;
    size_t energy_n, energy_room;
};

double energy_rate_w(const energy_reading *r, size_t n)
{
    size_t first = 1, last = n;
    while (first < n && !(r[first].j > r[first - 1].j))
        first++;
    while (last > first + 1 && !(r[last - 1].j > r[last - 2].j))
        last--;
    if (first + 1 >= last || r[last - 1].at_s - r[first].at_s < ENERGY_WINDOW_S)
        return NAN;
    return (r[last - 1].j - r[first].j) / (r[last - 1].at_s - r[first].at_s);
}

void sampled_free(sampled *x)
{
    samples_free(&x->sm_mhz);
    samples_free(&x->power_w);
}

static void keep_energy(sampler *s, double at_s, double j)
{
    LIST_ADD(s->energy, s->energy_n, s->energy_room, (energy_reading){at_s, j});
}

static void halve(samples *x, size_t *told)
{
    for (size_t i = 0; 2 * i < x->n; i++)
        x->x[i] = x->x[2 * i];
    x->n = (x->n + 1) / 2;
    *told = (*told + 1) / 2;
}

/* A window of days keeps no more than one of minutes: every other reading goes, and the next ones come half as often. */
static void thin_out(sampler *s)
{
    halve(&s->seen.sm_mhz, &s->told_mhz);
    halve(&s->seen.power_w, &s->told_w);
    for (size_t i = 0; 2 * i < s->energy_n; i++)
        s->energy[i] = s->energy[2 * i];
    s->energy_n = (s->energy_n + 1) / 2;
    s->pace_s *= 2;
}

/* Under the lock, which is given up while the driver is asked. */
static void read_sensors(sampler *s)
{
    const unsigned window = s->window;
    const bool fresh = host_seconds() - s->begun_s >= SENSOR_LAG_S;
    double mhz = NAN, w = NAN;
    unsigned long long throttle = 0;
    pthread_mutex_unlock(&s->lock);
    const double asked_s = host_seconds(), j = clocks_energy_j(s->c), told_s = host_seconds();
    if (fresh) {
        mhz = clocks_sm_mhz(s->c);
        w = clocks_power_w(s->c);
        throttle = clocks_throttle(s->c);
    }
    pthread_mutex_lock(&s->lock);
    if (!s->on || s->window != window)
        return;
    if (!isnan(mhz))
        samples_add(&s->seen.sm_mhz, mhz);
    if (!isnan(w))
        samples_add(&s->seen.power_w, w);
    if (!isnan(j))
        keep_energy(s, (asked_s + told_s) / 2, j);
    s->seen.throttle |= throttle;
    if (s->seen.sm_mhz.n >= MOST_READINGS || s->seen.power_w.n >= MOST_READINGS || s->energy_n >= MOST_READINGS)
        thin_out(s);
}

static struct timespec after(double s)
{
    const double at = host_seconds() + s;
    return (struct timespec){.tv_sec = (time_t)at, .tv_nsec = (long)((at - floor(at)) * 1e9)};
}

static void *sampler_run(void *arg)
{
    sampler *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->stopping) {
        if (!s->on) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        const struct timespec next = after(s->pace_s);
        read_sensors(s);
        const unsigned window = s->window;
        while (s->on && !s->stopping && s->window == window &&
               pthread_cond_timedwait(&s->changed, &s->lock, &next) == 0)
            ;
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

sampler *sampler_start(const clocks *c, double every_s)
{
    if (!c || !(every_s > 0))
        return NULL;
    pthread_condattr_t monotonic;
    sampler *s = xcalloc(1, sizeof *s);
    s->c = c;
    s->every_s = every_s;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&s->thread, NULL, sampler_run, s) != 0)
        die(EXIT_CODE_FAILURE, "cannot start the thread that reads clocks and power");
    return s;
}

void sampler_stop(sampler *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    sampled_free(&s->seen);
    free(s->energy);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void sampler_begin(sampler *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    sampled_free(&s->seen);
    s->seen = (sampled){.energy_w = NAN};
    s->energy_n = s->told_mhz = s->told_w = 0;
    s->window++;
    s->pace_s = s->every_s;
    s->begun_s = host_seconds();
    s->on = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static double lately(const samples *x, size_t *told)
{
    if (x->n == 0)
        return NAN;
    double sum = 0;
    const size_t first = *told < x->n ? *told : x->n - 1;
    for (size_t i = first; i < x->n; i++)
        sum += x->x[i];
    *told = x->n;
    return sum / (double)(x->n - first);
}

void sampler_lately(sampler *s, double *sm_mhz, double *power_w)
{
    *sm_mhz = *power_w = NAN;
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    *sm_mhz = lately(&s->seen.sm_mhz, &s->told_mhz);
    *power_w = lately(&s->seen.power_w, &s->told_w);
    pthread_mutex_unlock(&s->lock);
}

sampled sampler_end(sampler *s)
{
    sampled out = {.energy_w = NAN};
    if (!s)
        return out;
    pthread_mutex_lock(&s->lock);
    s->on = false;
    out = s->seen;
    out.energy_w = energy_rate_w(s->energy, s->energy_n);
    s->seen = (sampled){.energy_w = NAN};
    s->energy_n = 0;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return out;
}
