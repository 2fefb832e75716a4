/* large.h -- templates that make much of one large text, and the lengths at which budgets are met: for the test and the
 * fuzzer of large renders. */
#ifndef RG_TEST_LARGE_H
#define RG_TEST_LARGE_H

#include <stdlib.h>
#include <string.h>

#include "text/jinja.h"

/* x is the text, of the person; y is "ab" of the person. */
static const char *const large_templates[] = {
    "{{ x }}",
    "{{ '<|' + x + '|>' }}",
    "{{ x + x }}",
    "{{ x ~ 'a' ~ x }}",
    "{{ 'a' ~ x ~ 'b' ~ y }}",
    "{% set z = x + y %}{{ z + y + z }}",
    "{% set ns = namespace(t='') %}{% for i in range(4) %}{% set ns.t = ns.t + x %}{% endfor %}{{ ns.t }}",
    "{{ x | trim }}{{ x.strip() }}",
    "{{ x | upper }}",
    "{{ x | title }}",
    "{{ x | replace('a', 'bc') }}",
    "{{ x.replace('', '-') }}",
    "{{ x | tojson }}",
    "{{ [x, x] | join(y) }}",
    "{{ x | indent(3) }}",
    "{{ x.split('a') | length }}",
    "{{ x.split() | join(' ') }}",
    "{{ x.splitlines() | length }}",
    "{{ '%s-%s' % (x, x) }}",
    "{{ '{} {}'.format(x, y) }}",
    "{{ '{:>9}'.format(x) }}",
    "{{ x[1:] }}{{ x[:-1] }}",
    "{{ x[::-1] }}",
    "{{ x[::2] }}",
    "{{ x * 2 }}",
    "{{ y * (x | length) }}",
    "{{ x | center(30000000) }}",
    "{{ x.ljust(21000000) }}",
    "{{ x.zfill(20971520) }}",
    "{{ x | escape }}",
    "{{ x | urlencode }}",
    "{{ x | striptags }}",
    "{{ x | wordcount }}",
    "{{ x | wordwrap(20) }}",
    "{{ x | truncate(100) }}",
    "{{ x | reverse }}",
    "{{ x | list | length }}",
    "{{ 'zz' in x }}",
    "{{ x.find(x) }}{{ x.rfind('zz') }}",
    "{{ x.count('ab') }}",
    "{{ x in [x] }}{{ x == x + '' }}{{ {x: 1}[x] }}",
    "{{ x | string | length }}",
    "{{ {'a': x} }}",
    "{{ x.partition('zz') }}",
    "{% set z %}{{ x }}{{ y }}{% endset %}{{ z }}",
    "{% macro f(t) %}<{{ t }}>{% endmacro %}{{ f(x) + f(x) }}",
    "{% for c in x %}{{ c }}{% endfor %}",
    "{{ raise_exception(x) }}",
};

/* By what a budget's bytes are divided: what growth, a walk and a search charge for a byte, and more. */
static const double large_parts[] = { 0.7, 1, 1.5, 2, 3, 4, 6, 8, 12, 24, 48, 160 };

enum { LARGE_KINDS = 3 };

/* n bytes of text: one letter; words and lines; characters of two bytes (and a letter at the end if n is odd).  The
 * caller frees it. */
static inline char *large_text(int kind, size_t n)
{
    static const char *const piece[LARGE_KINDS] = { "a", "ab cd.\n", "\xc3\xa9" };
    size_t k = strlen(piece[kind]);
    char *s = malloc(n + 1);

    for (size_t i = 0; s && i < n; i++)
        s[i] = piece[kind][i % k];
    if (s && kind == 2 && n % 2)
        s[n - 1] = 'a';
    return s;
}

/* {"x": text, "y": "ab"}; NULL: no memory. */
static inline json_t *large_variables(int kind, size_t n)
{
    char *s = large_text(kind, n);
    json_t *v = s ? json_pack("{s:s%,s:s}", "x", s, n, "y", "ab") : NULL;

    free(s);
    return v;
}

#endif
