/* SPDX-License-Identifier: MIT */
/* Clocks, power and energy of a GPU while something is timed, with sensors whose answers are known. */
#include "tests/support/test.h"

#include "common/core/clock.h"
#include "common/device/internal.h"
#include "tests/support/fake_nvml.h"

/* ---- the counter ---- */

/* A counter of 700 W that moves every tick_s, read every 20 ms from a moment that is no tick. */
static double rate_of(double tick_s, double seconds)
{
    enum { MOST = 400 };
    energy_reading r[MOST];
    size_t n = 0;
    for (; n < MOST && (double)n * 0.02 <= seconds; n++) {
        const double at_s = 17.013 + (double)n * 0.02;
        r[n] = (energy_reading){at_s, floor(at_s / tick_s) * tick_s * 700};
    }
    return energy_rate_w(r, n);
}

TEST(energy_is_counted_from_tick_to_tick)
{
    for (double seconds = 0.7; seconds < 4; seconds += 0.01) {
        const double allowed = 0.021 / (seconds - 0.24); /* a reading; the ends without a tick do not count */
        assert_true(fabs(rate_of(0.1, seconds) / 700 - 1) < allowed);
        assert_true(fabs(rate_of(0.033, seconds) / 700 - 1) < allowed);
        assert_true(fabs(rate_of(0.001, seconds) / 700 - 1) < 0.005); /* as if it moved all the time */
    }
    assert_true(isnan(rate_of(0.1, 0.35)));
    assert_true(isnan(rate_of(0.001, 0.39)));
    assert_true(!isnan(rate_of(0.001, 0.45)));
    assert_true(isnan(rate_of(10, 3)));  /* it never moved */
    assert_true(isnan(rate_of(2, 2.5))); /* once is from nowhere to somewhere */
    assert_true(isnan(energy_rate_w(NULL, 0)));
    /* Idle before and after: what counts is from the first to the last move. */
    const energy_reading idle[] = {{0, 5}, {1, 5}, {2, 5}, {2.5, 105}, {3, 205}, {3.5, 205}, {4, 205}};
    assert_true(fabs(energy_rate_w(idle, 7) - 200) < 1e-9);
}

/* ---- the thread ---- */

static device *open_fake(double every_s)
{
    device *d = device_open(DEVICE_CPU, 0);
    fake = (fake_gpu){.power_w = 650, .mean_power_w = 90, .tick_s = 0.05, .sm_mhz = {1800, 1500, 1980}};
    fake_nvml_give(d);
    device_sense(d, every_s);
    return d;
}

static void close_fake(device *d)
{
    fake_nvml_take(d);
    device_close(d);
}

TEST(windows_make_the_conditions_of_a_case)
{
    device *d = open_fake(0.002);
    const fake_gpu busy = fake;
    fake.sm_mhz[0] = fake.sm_mhz[1] = fake.sm_mhz[2] = 345; /* the sensors still show what was before */
    fake.throttle = 0x8;
    device_sense_begin(d);
    usleep(50 * 1000);
    fake = busy;
    fake.throttle = 0x4;
    usleep(600 * 1000);
    const device_window w = device_sense_end(d, true);
    const int readings = fake_readings;
    assert_true(fabs(w.energy_w / 650 - 1) < 0.05);
    assert_true(fabs(w.power_w - 650) < 1e-9); /* of the moment, not the mean of a second */
    assert_true(w.sm_mhz == 1800);
    assert_true(readings > 50);
    usleep(50 * 1000);
    assert_int_equal(fake_readings, readings); /* nobody asks between windows */

    fake.throttle = 0x20; /* a window that does not count */
    fake.power_w = 100;
    device_sense_begin(d);
    usleep(150 * 1000);
    assert_true(device_sense_end(d, false).power_w == 100);
    fake.throttle = 0;

    const int before = fake_readings;
    device_conditions c = device_state(d);
    assert_int_equal(fake_readings, before + 1);
    assert_true(c.sm_min_mhz == 1500 && c.sm_median_mhz == 1800 && c.power_w == w.energy_w);
    assert_true(c.sm_mhz == 1800); /* one clock for the case: not that of the last reading, 1980 or 1500 */
    assert_true(c.readings >= readings - 1 && c.readings <= readings); /* one may have been under way at the end */
    assert_string_equal(c.throttle, "power_cap");
    c = device_state(d); /* the next case begins with nothing */
    assert_true(isnan(c.sm_min_mhz) && isnan(c.power_w) && c.readings == 0 && !*c.throttle);
    assert_true(device_idle_w(d) == 100);
    close_fake(d);
}

/* A window of days keeps as many readings as one of minutes, from its begin to its end. It ends between two times at which it is
 * thinned out, after 32768 and 40960 readings: right behind one, the lag at its begin makes it a few readings short of half. */
TEST(a_long_window_is_thinned_out)
{
    enum { ENOUGH = 36000 };
    device *d = open_fake(1e-6);
    const double begun_s = host_seconds();
    fake_readings = 0;
    device_sense_begin(d);
    while (fake_readings < ENOUGH && host_seconds() - begun_s < 30)
        usleep(10 * 1000);
    const device_window w = device_sense_end(d, true);
    const device_conditions c = device_state(d);
    assert_true(fake_readings >= ENOUGH);
    assert_in_range(c.readings, 8192, 16384);
    assert_true(fabs(w.energy_w / 650 - 1) < 0.05 && w.power_w == 650 && w.sm_mhz == 1800);
    close_fake(d);
}

/* Each reading is told once; if there is no new one, the last is told again. */
TEST(a_window_tells_what_was_read_lately)
{
    device *d = open_fake(0.002);
    double mhz, w;
    fake.sm_mhz[0] = fake.sm_mhz[1] = fake.sm_mhz[2] = 1500;
    device_sense_lately(d, &mhz, &w);
    assert_true(isnan(mhz) && isnan(w));
    device_sense_begin(d);
    device_sense_lately(d, &mhz, &w);
    assert_true(isnan(mhz) && isnan(w)); /* the sensors may still show what was before */
    usleep(250 * 1000);
    device_sense_lately(d, &mhz, &w);
    assert_true(mhz == 1500 && w == 650);
    fake.power_w = 200;
    usleep(50 * 1000);
    device_sense_lately(d, &mhz, &w);
    device_sense_lately(d, &mhz, &w); /* at once */
    assert_true(mhz == 1500 && w == 200);
    assert_true(device_sense_end(d, true).power_w == 650);
    device_sense_lately(d, &mhz, &w);
    assert_true(isnan(mhz) && isnan(w));
    close_fake(d);
}

/* A case has one power: that of the counter, which its energy is made of, though readings were others. Above the limit the
 * GPU has not settled. */
TEST(power_is_the_counters_and_may_be_above_the_cap)
{
    static const struct {
        double energy_w, limit_w;
        const char *throttle;
    } cases[] = {{720, 700, "power_cap+above_cap"}, {710, 700, "power_cap"}, {720, 0, "power_cap"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        device *d = open_fake(0.002);
        fake.tick_s = 0.001;
        fake.energy_w = cases[i].energy_w;
        fake.limit_w = cases[i].limit_w;
        fake.throttle = 0x4;
        device_sense_begin(d);
        usleep(560 * 1000);
        const device_window w = device_sense_end(d, true);
        const device_conditions c = device_state(d);
        assert_true(w.power_w == 650 && fabs(c.power_w / cases[i].energy_w - 1) < 0.004);
        assert_string_equal(c.throttle, cases[i].throttle);
        close_fake(d);
    }
}

/* The steady state that is measured after a case must not show in it. */
TEST(what_follows_a_hold_is_no_part_of_the_case)
{
    device *d = open_fake(0.002);
    device_state_note(d);
    device_state_hold(d);
    fake.throttle = 0x4;
    device_sense_begin(d);
    usleep(150 * 1000);
    assert_true(device_sense_end(d, true).sm_mhz > 0);
    device_state_note(d);
    device_conditions c = device_state(d);
    assert_true(c.sm_mhz == 1800 && c.readings == 0 && !*c.throttle);
    device_state_note(d);
    c = device_state(d); /* the next case notes again */
    assert_string_equal(c.throttle, "power_cap");
    close_fake(d);
}

TEST(short_windows_and_old_drivers_have_no_energy)
{
    device *d = open_fake(0.002);
    device_sense_begin(d);
    usleep(60 * 1000);
    device_window w = device_sense_end(d, true);
    assert_true(isnan(w.energy_w) && isnan(w.power_w) && isnan(w.sm_mhz));
    device_sense_begin(d);
    usleep(200 * 1000);
    w = device_sense_end(d, true);
    assert_true(isnan(w.energy_w) && w.power_w == 650);
    fake_nvml_take(d);
    fake.old_driver = true;
    fake_nvml_give(d);
    device_sense(d, 0.002);
    device_sense_begin(d);
    usleep(500 * 1000);
    w = device_sense_end(d, true);
    assert_true(isnan(w.energy_w) && fabs(w.power_w - 90) < 1e-9);
    close_fake(d);
}

/* The caller pays for a switch, not for a driver that takes its time. */
TEST(begin_and_end_do_not_wait_for_the_sensors)
{
    device *d = open_fake(0.001);
    const double start = host_seconds();
    for (int i = 0; i < 200; i++) {
        device_sense_begin(d);
        device_sense_end(d, true);
    }
    assert_true(host_seconds() - start < 0.5);
    close_fake(d);
}

TEST(without_sensors_everything_is_unknown)
{
    device *d = device_open(DEVICE_CPU, 0);
    for (int on = 0; on < 2; on++) {
        device_sense(d, on ? 0.001 : 0);
        device_sense_begin(d);
        const device_window w = device_sense_end(d, true);
        const device_conditions c = device_state(d);
        assert_true(isnan(w.energy_w) && isnan(w.power_w) && isnan(w.sm_mhz));
        assert_true(isnan(c.sm_mhz) && isnan(c.sm_median_mhz) && isnan(c.power_w) && c.readings == 0);
        assert_true(isnan(device_idle_w(d)));
    }
    fake = (fake_gpu){.power_w = 650, .tick_s = 0.05, .sm_mhz = {1, 2, 3}};
    fake_nvml_give(d);
    device_sense(d, 0); /* --sensors 0 */
    device_sense_begin(d);
    usleep(20 * 1000);
    double mhz, w;
    device_sense_lately(d, &mhz, &w);
    assert_true(isnan(mhz) && isnan(w));
    assert_true(isnan(device_sense_end(d, true).power_w) && fake_readings == 0);
    close_fake(d);
}
