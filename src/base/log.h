/* log.h -- lines to standard error, for people or as JSON for programs. */
#ifndef RG_BASE_LOG_H
#define RG_BASE_LOG_H

#include "base/error.h"

typedef enum rg_level { RG_LOG_ERROR, RG_LOG_WARN, RG_LOG_INFO, RG_LOG_DEBUG } rg_level;

void rg_log_set_level(rg_level level); /* default RG_LOG_WARN */
/* From now on each line is one JSON object: time (UTC), level, message, and the fields. */
void rg_log_set_json(bool json);
bool rg_log_is_json(void);

void rg_log(rg_level level, const char *fmt, ...) RG_PRINTF(2, 3);

/* What a line is about, for programs: a text, or a number where text is NULL. */
typedef struct rg_log_field {
    const char *name, *text;
    double number;
} rg_log_field;

/* The same with n fields, which only JSON shows: the message says for people what they say. */
void rg_log_with(rg_level level, const rg_log_field *field, int n, const char *fmt, ...) RG_PRINTF(4, 5);

#endif
