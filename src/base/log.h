/* log.h -- lines to standard error, and progress on long work. */
#ifndef RG_BASE_LOG_H
#define RG_BASE_LOG_H

#include "base/error.h"

typedef enum rg_level { RG_LOG_ERROR, RG_LOG_WARN, RG_LOG_INFO, RG_LOG_DEBUG } rg_level;

void rg_log_set_level(rg_level level); /* default RG_LOG_WARN */
void rg_log(rg_level level, const char *fmt, ...) RG_PRINTF(2, 3);

#endif
