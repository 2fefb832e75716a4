/* format.c -- the formats of strings that a schema can ask for, as regular expressions over their characters. */
#include "grammar/json.h"
#include "grammar/source.h"

#define D29 "(?:0[1-9]|1\\d|2[0-8])"
#define YEAR "(?:[1-9]\\d{3}|0[1-9]\\d\\d|00[1-9]\\d|000[1-9])"
#define LEAP "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-" D29 ")|" LEAP \
    "-02-29)"
#define TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 BYTE "(?:\\." BYTE "){3}"
#define H "[0-9A-Fa-f]{1,4}"
#define ALNUM "[A-Za-z0-9]"
#define LDH "[A-Za-z0-9-]"
/* A label of a host name of at most `a` + 4 characters (b is a - 1).  Labels with hyphens as third and fourth character
 * are not made: they are reserved (RFC 5890), and those that begin with "xn--" must be Punycode of normalised Unicode,
 * which no regular expression can check. */
#define LABEL_OF(a, b) \
    ALNUM "(?:" ALNUM "|" LDH ALNUM "|" LDH "(?:" ALNUM LDH "{0," a "}" ALNUM "|-" ALNUM "(?:" LDH "{0," b "}" ALNUM \
    ")?))?"
#define LABEL LABEL_OF("59", "58")
#define SHORT_LABEL LABEL_OF("58", "57")
#define HOST LABEL "(?:\\." SHORT_LABEL "){0,3}" /* of 252 characters at most; 253 are allowed */
#define X "[0-9a-fA-F]"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%" X X ")"
#define URI \
    "[A-Za-z][A-Za-z0-9+.-]*://" HOST "(?::\\d{1,5})?(?:/" PCHAR "*)*(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR \
    "|[/?])*)?"
#define EMAIL "[A-Za-z0-9_+-]+(?:\\.[A-Za-z0-9_+-]+)*@" LABEL "(?:\\." SHORT_LABEL "){1,3}"
#define UUID(version) X "{8}-" X "{4}-" version X "{3}-[89abAB]" X "{3}-" X "{12}"
#define N "\\d{1,4}"
#define DAYS "(?:" N "D|" N "M(?:" N "D)?|" N "Y(?:" N "M(?:" N "D)?)?)"
#define HOURS "(?:" N "H(?:" N "M(?:" N "S)?)?|" N "M(?:" N "S)?|" N "S)"

/* The patterns below use only what every dialect of regular expressions takes: groups two deep, no lookaround, no
 * reference back. */
#define R_CHAR "(?:[A-Za-z0-9_ ,:;=!@#%&<>/\"'~`-]|\\\\[dDwWsS.*+?^$()\\[\\]{}|/\\\\-]|\\.)"
#define R_SET "\\[\\^?(?:[A-Za-z0-9_]|[A-Za-z]-z|0-9|\\\\[dws.\\\\-])+\\]"
#define R_TIMES "(?:[*+?]|\\{[1-9]\\d?\\}|\\{[0-9],[1-9]\\d\\})?"
#define R_ROW(atom) "(?:(?:" atom ")" R_TIMES ")*"
#define R_ANY(atom) R_ROW(atom) "(?:\\|" R_ROW(atom) ")*"
#define R_ATOM R_CHAR "|" R_SET
#define R_GROUP(inner) R_ATOM "|\\((?:\\?:)?" R_ANY(inner) "\\)"
#define REGEX "\\^?" R_ANY(R_GROUP(R_GROUP(R_ATOM))) "\\$?"
#define TOKEN "(?:[^/~\"\\\\\\x00-\\x1f]|~[01])*"
#define TEMPLATE                                                                                                       \
    "(?:[A-Za-z0-9._~:/?#@!$&'()*+,;=-]|%" X X                                                                         \
    "|\\{[+#./;?&]?[A-Za-z_][A-Za-z0-9_]*\\*?(?:,[A-Za-z_][A-Za-z0-9_]*\\*?)*\\})*"

static const struct {
    const char *name, *pattern;
} formats[] = {
    { "date", DATE },
    { "time", TIME },
    { "date-time", DATE "T" TIME },
    { "duration", "P(?:" DAYS "(?:T" HOURS ")?|T" HOURS "|\\d{1,3}W)" },
    { "uuid", X "{8}-" X "{4}-" X "{4}-" X "{4}-" X "{12}" },
    { "uuid1", UUID("1") },
    { "uuid3", UUID("3") },
    { "uuid4", UUID("4") },
    { "uuid5", UUID("5") },
    { "uuid7", UUID("7") },
    { "base64", "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?" },
    { "email", EMAIL },
    { "idn-email", EMAIL },
    { "ipv4", IPV4 },
    { "ipv6", H "(?::" H "){7}|(?:" H ":){1,7}:|(?:" H ":){1,6}:" H "|(?:" H ":){1,5}(?::" H "){2}|"
              "(?:" H ":){1,4}(?::" H "){3}|(?:" H ":){1,3}(?::" H "){4}|(?:" H ":){1,2}(?::" H "){5}|"
              H ":(?::" H "){6}|:(?::" H "){1,7}|::" },
    { "hostname", HOST },
    { "idn-hostname", HOST },
    { "uri", URI },
    { "uri-reference", URI },
    { "iri", URI },
    { "iri-reference", URI },
    { "json-pointer", "(?:/" TOKEN ")*" },
    { "relative-json-pointer", "(?:0|[1-9]\\d{0,8})(?:#|(?:/" TOKEN ")*)" },
    { "uri-template", TEMPLATE },
    { "regex", REGEX },
};

/* NULL: the format is not known. */
static const char *pattern_of(const char *format)
{
    for (size_t i = 0; i < RG_LEN(formats); i++)
        if (!strcmp(formats[i].name, format))
            return formats[i].pattern;
    return NULL;
}

bool rg_json_formats_differ(const char *a, const char *b)
{
    static const char *const apart[] = { "date", "time", "date-time", "uuid", "ipv4", "ipv6", "email" };
    bool in_a = false, in_b = false;

    for (size_t i = 0; i < RG_LEN(apart); i++) {
        in_a |= !strcmp(a, apart[i]);
        in_b |= !strcmp(b, apart[i]);
    }
    return in_a && in_b && strcmp(a, b) != 0;
}

bool rg_json_has_format(const char *format)
{
    return pattern_of(format) != NULL;
}

uint32_t rg_json_format(rg_form *f, const char *format)
{
    const char *pattern = pattern_of(format);

    return rg_pattern(f, pattern, strlen(pattern), RG_WRITE_JSON, true);
}
