/* lex.h -- a template's source as tokens: text between tags, with white space taken away as the tags ask for, and what
 * stands inside the tags. */
#ifndef RG_TEXT_JINJA_LEX_H
#define RG_TEXT_JINJA_LEX_H

#include "text/jinja/internal.h"

typedef enum jj_tok {
    JT_EOF, JT_DATA, JT_VAR_BEGIN, JT_VAR_END, JT_BLOCK_BEGIN, JT_BLOCK_END, JT_NAME, JT_STRING, JT_INT, JT_FLOAT,
    JT_ADD, JT_SUB, JT_MUL, JT_DIV, JT_FLOORDIV, JT_MOD, JT_POW, JT_TILDE, JT_EQ, JT_NE, JT_LT, JT_LE, JT_GT, JT_GE,
    JT_ASSIGN, JT_LPAREN, JT_RPAREN, JT_LBRACKET, JT_RBRACKET, JT_LBRACE, JT_RBRACE, JT_DOT, JT_COLON, JT_COMMA,
    JT_PIPE, JT_SEMICOLON,
} jj_tok;

typedef struct jj_token {
    jj_tok type;
    uint32_t line;
    const char *s; /* DATA, NAME, STRING */
    size_t n;
    int64_t i;
    double f;
} jj_token;

typedef struct jj_lexer {
    jj_ctx *c;
    const char *src; /* line breaks are \n */
    size_t n, at;
    uint32_t line;
    jj_tok inside; /* EOF: between tags; or the tag that is open */
    bool at_tag;   /* between tags: its text is done, the tag follows */
    bool line_start;
    char open[RG_JINJA_DEPTH]; /* brackets */
    int n_open;
} jj_lexer;

/* source is copied into c's arena. */
bool jj_lexer_init(jj_lexer *x, jj_ctx *c, const char *source, size_t n);
bool jj_lex(jj_lexer *x, jj_token *t);
const char *jj_token_name(const jj_token *t, char out[64]);

#endif
