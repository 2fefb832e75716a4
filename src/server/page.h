/* page.h -- the web page's files, as the build puts them into the program (web/, scripts/embed.cmake). */
#ifndef RG_SERVER_PAGE_H
#define RG_SERVER_PAGE_H

#include <stddef.h>

typedef struct rg_page_file {
    const char *path, *type;
    const unsigned char *data;
    size_t n;
} rg_page_file;

extern const rg_page_file rg_page_files[]; /* ends with a path of NULL */

#endif
