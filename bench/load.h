/* load.h -- what the two halves of the load generator share: a client's connection (load_client.c), and who asks what,
 * when, and what is made of the answers (load.c). */
#ifndef RG_BENCH_LOAD_H
#define RG_BENCH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct options {
    const char *host, *path, *model, *key, *fields;
    long port, clients, prompt, output, output_most, vocab, requests, prefix, seed, server_pid, prompt_most;
    double seconds, rate, share, warmup, ttft_goal, tpot_goal, gap_goal, cancel;
    bool stream, json, logprobs, leave;
} options;

extern options o;

typedef enum stage { IDLE, SENDING, HEAD, BODY } stage;

/* When a client gives up, if it does: in the middle of sending, after a while, or at an event. */
typedef enum cancel_kind { KEEPS, CUTS_REQUEST, LEAVES_LATER, LEAVES_AT_EVENT } cancel_kind;

typedef struct client {
    int fd;
    stage stage;
    bool fresh;          /* epoll tells when it takes more */
    bool kept;           /* from an earlier request: the server may have closed it */
    char *out;           /* the request */
    size_t n_out, sent, room;
    char head[4096];
    size_t n_head;
    int status;
    bool chunked, size_done, closes;
    long left;           /* of the body or the chunk; -1: of a body until the close */
    int match;           /* of the mark that an event with text has */
    char tail[2048];     /* the end of the body, where usage stands */
    size_t n_tail;
    double due, first, last, worst_gap;
    long n_events, wanted;
    cancel_kind cancel;
    double cancel_at;    /* a time, an event's number, or a byte of the request */
    double back_at;      /* when it asks again after it was refused */
    struct client *next; /* of those who are idle, or who were refused */
} client;

/* ---- load_client.c ---- */
bool client_open(int epoll);             /* before all else */
bool client_dial(client *c);
void client_send(client *c);             /* c->out */
void client_listen(client *c);           /* nothing to send: only what comes is of interest */
void client_read(client *c);
void client_hang_up(client *c, bool reset);

/* ---- load.c, called by the above ---- */
void client_event(client *c);            /* text came */
void client_done(client *c, bool ok);    /* the answer is complete, or the connection lost */
double now_s(void);

#endif
