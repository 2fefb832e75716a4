/* two_requests.c -- open a model, submit two requests, and stream both as their tokens come.
 *
 *   cc two_requests.c $(pkg-config --cflags --libs ridge) -o two_requests && ./two_requests MODEL
 */
#include <ridge.h>
#include <stdio.h>
#include <string.h>

enum { N_REQUESTS = 2 };

static rg_request *submit(rg_engine *engine, const char *prompt, rg_error *err)
{
    int32_t *ids;
    size_t n_ids;

    if (!rg_encode(engine, prompt, strlen(prompt), RG_ENCODE_DEFAULT, &ids, &n_ids, err))
        return NULL;
    rg_params params = { .prompt = ids, .n_prompt = (int32_t)n_ids, .max_tokens = 64, .n_samples = 1,
                         .sampling = rg_engine_info(engine).sampling };
    params.sampling.seed = 7;
    rg_request *request = rg_submit(engine, &params, err);
    rg_ids_free(ids);
    return request;
}

int main(int argc, char **argv)
{
    static const char *const prompts[N_REQUESTS] = { "Once upon a time, there was a small cat", "The dog and the ball" };
    rg_error err = { 0 };
    rg_engine *engine = argc == 2 ? rg_open(argv[1], NULL, &err) : NULL;
    rg_request *requests[N_REQUESTS] = { 0 };
    char text[N_REQUESTS][4096] = { { 0 } };
    int running = 0;

    for (int i = 0; engine && i < N_REQUESTS; i++) {
        requests[i] = submit(engine, prompts[i], &err);
        running += requests[i] != NULL;
    }
    /* Both run in one batch.  rg_next waits for a token of one; a program with an event loop would use rg_poll. */
    while (running > 0) {
        for (int i = 0; i < N_REQUESTS; i++) {
            rg_token token;
            if (!requests[i] || !rg_next(requests[i], &token))
                continue;
            strncat(text[i], token.text, sizeof text[i] - strlen(text[i]) - 1);
            running -= token.finish != RG_RUNNING;
        }
    }
    for (int i = 0; i < N_REQUESTS; i++) {
        printf("%s%s\n\n", prompts[i], text[i]);
        rg_request_close(requests[i]);
    }
    rg_close(engine);
    if (err.code != RG_OK || !engine) {
        fprintf(stderr, "two_requests: %s\n", engine || err.code ? err.text : "usage: two_requests MODEL");
        return 1;
    }
    return 0;
}
