/* The modes that are made of a state space's stored parameters: their impulse response is the golden's kernel, of the
 * diagonal form, of the full one, and where C is stored times I - A^L. */
#include "support/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/arch/s4.h"

static const char *const folders[] = { "s4", "s4-ctilde", "s4d-inv", "s4d-lin" };

/* The response of one channel at times 0 .. n - 1 to a one at time 0; without its direct part. */
static void respond(const rg_weight *modes, bool full, int channel, int n, double *out)
{
    const int each = full ? RG_FULL_MODE_ROWS : RG_MODE_ROWS, n_modes = (int)modes->rows / each;
    double x[64][2] = { 0 };

    assert_true(n_modes <= 64);
    for (int t = 0; t < n; t++) {
        double q = 0;

        for (int k = 0; full && k < n_modes; k++) {
            const float *r = modes->vec + (size_t)(k * each + 6) * (size_t)modes->cols + channel;
            q += (double)r[0] * x[k][0] + (double)r[modes->cols] * x[k][1];
        }
        out[t] = 0;
        for (int k = 0; k < n_modes; k++) {
            double part[10] = { 0 }, re = x[k][0], im = x[k][1];

            for (int i = 0; i < each; i++)
                part[i] = (double)modes->vec[(size_t)(k * each + i) * (size_t)modes->cols + (size_t)channel];
            x[k][0] = part[0] * re - part[1] * im + (t ? 0 : part[2]) + part[8] * q;
            x[k][1] = part[0] * im + part[1] * re + (t ? 0 : part[3]) + part[9] * q;
            out[t] += part[4] * x[k][0] + part[5] * x[k][1];
        }
    }
}

static void modes_have_the_kernel(void **state)
{
    char file[64];
    rg_error err = { 0 };

    (void)state;
    for (size_t i = 0; i < RG_LEN(folders); i++) {
        test_model t;
        size_t n;

        test_model_open(&t, test_data(folders[i]), "f32");
        snprintf(file, sizeof file, "%s/golden.safetensors", folders[i]);
        rg_checkpoint *golden = rg_checkpoint_open(test_data(file), RG_CKPT_DEFAULT, &err);
        assert_ok(golden, err);
        float *want = test_floats(golden, "kernel.0", &n), most = 0;
        const rg_weight *modes = rg_weights_get(&t.m->weights, W_S4_MODES, 0);
        int channels = t.m->config.dim, length = (int)n / channels;
        double got[64];

        assert_true(length == 48 && modes->cols == channels);
        for (size_t k = 0; k < n; k++)
            most = fmaxf(most, fabsf(want[k]));
        for (int c = 0; c < channels; c++) {
            respond(modes, RG_OWN(&t.m->config, s4_settings)->full, c, length, got);
            for (int k = 0; k < length; k++)
                if (!(fabs(got[k] - (double)want[c * length + k]) <= 1e-6 * (double)most))
                    fail_msg("%s: channel %d at %d: %g and not %g", folders[i], c, k, got[k],
                             (double)want[c * length + k]);
        }
        free(want);
        rg_checkpoint_close(golden);
        test_model_close(&t);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes_have_the_kernel),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
