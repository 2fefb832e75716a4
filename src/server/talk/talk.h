/* talk.h -- how families of models mark their reasoning, calls of tools and final text, as data.
 *
 * One description (rg_talk) says it for a family: families.c has the table.  From it come the reader of what a model
 * says (answer.h), the grammar that forces a call (force.h), and what a conversation's history needs.  Which family a
 * checkpoint is of follows from what its chat template renders and from its vocabulary (find.h).
 *
 * Marks are texts.  A mark that the vocabulary has as a special token is shown by the engine within the answer's text
 * (rg_engine_show), so that a mark means the same as one token or as several.  In a mark, a space or line end stands
 * for any run of blanks when it is read, and for itself when it is written by a grammar. */
#ifndef RG_SERVER_TALK_TALK_H
#define RG_SERVER_TALK_TALK_H

#include <stdbool.h>
#include <stddef.h>

/* How a call is written between its opening and its closing mark. */
typedef enum rg_call_way {
    RG_CALL_OBJECT, /* a JSON object that has the name and the arguments as members, or a list of such */
    RG_CALL_KEYED,  /* a JSON object, or a list of them: each key is a name, its value the arguments */
    RG_CALL_JSON,   /* the name, then a JSON object */
    RG_CALL_TAGS,   /* the name, then a tag for each argument (rg_talk_tags) */
    RG_CALL_PYTHON, /* as Python writes it: NAME(KEY=VALUE, ...) */
    RG_CALL_QUOTED, /* the name, then {KEY:VALUE, ...}, where texts stand between special quotes */
    RG_CALL_CODE,   /* source code: the argument "code" of the tool that runs code */
} rg_call_way;

/* How an argument is written: key_open KEY key_close VALUE close. */
typedef struct rg_talk_tags {
    const char *key_open, *key_close;
    const char *key_rest;   /* what ends the key's tag, if attributes come after key_close; else NULL */
    const char *is_text;    /* the attribute that says that a value is a text; NULL: the tool's schema says it */
    const char *isnt_text;  /* the attribute of other values, as a grammar writes it */
    const char *value_open; /* stands before the value; NULL: nothing */
    const char *close;
    const char *raw_open, *raw_close; /* may stand around a value that has other marks in it */
    bool lines;                       /* a value stands on lines of its own */
    bool nested; /* a value may be made of such tags itself, those of a list have the key "item"; close is followed by
                  *   the key and key_close */
} rg_talk_tags;

/* One way to write calls.  Unless it says otherwise, NULL: there is no such mark. */
typedef struct rg_talk_form {
    const char *open, *close; /* around all calls, or around each.  open NULL: calls begin with item_open, or (bare)
                                 *   the answer is nothing but calls */
    rg_call_way way;
    const char *item_open;    /* before a call's name; of objects, what a grammar writes there */
    const char *sep;          /* between name and arguments */
    const char *sep_rest;     /* attributes may stand between sep and this */
    const char *item_close;   /* after the arguments */
    const rg_talk_tags *tags; /* of RG_CALL_TAGS */
    const char *quote;        /* of RG_CALL_QUOTED */
    const char *joint;        /* between calls, as a grammar writes it; NULL: the whole form again */
    bool list;                /* a grammar puts calls into [ and ] */
    bool offered;             /* the marks are not of calls alone: only a tool that is offered is meant */
    const char *id_mark;      /* the call's id stands after this mark, which stands after the name */
    const char *name_after;   /* what stands between item_open and this is no part of the name */
    const char *name_end;     /* the name ends before this, and what follows up to sep is no part of it */
} rg_talk_form;

enum { RG_TALK_FORMS = 14, RG_TALK_MARKS = 8, RG_TALK_THINKS = 6 };

/* Messages within an answer, each with a head that says what it is: open HEAD body TEXT end. */
typedef struct rg_talk_heads {
    const char *open[3];
    const char *body;
    const char *end[4];
    const char *to;        /* in a head, stands before the name of a tool; NULL: a head is a name */
    const char *to_prefix; /* in front of the tools' names */
    const char *thinks;    /* a head that has this is of reasoning */
    const char *says;      /* a head that is this is of text */
    const char *texts[4];  /* a head that ends with one of these is of text, where no calls are looked for */
    const char *calls;     /* a head that has this is of calls in a form of the family; NULL: heads name the tools */
    const char *say;       /* how a grammar opens a text, */
    const char *call;      /*   and a call, up to the name, */
    const char *call_rest; /*   between name and arguments, */
    const char *call_end;  /*   and after them */
    const char *again;     /* and what it writes between a message and the next one */
} rg_talk_heads;

typedef struct rg_talk {
    const char *name;
    const char *aliases;   /* other names of --tool-format, between blanks */
    const char *signs[6];  /* of this family is what a template renders that has one of these texts, */
    const char *tokens[3]; /*   or a vocabulary that has all of these as tokens */
    struct {
        const char *open, *close;
    } think[RG_TALK_THINKS];           /* around reasoning; several may have the same opening mark */
    const char *say[2];                /* around the text of an answer; NULL: nothing */
    bool thinks_anywhere;              /* reasoning may also begin after text */
    bool call_ends_thought;            /* the mark of a call ends reasoning that was left open */
    const char *silent[RG_TALK_MARKS]; /* marks that say nothing */
    rg_talk_form forms[RG_TALK_FORMS]; /* the first whose marks a template renders is what a grammar writes */
    const rg_talk_heads *heads;
    const char *id_prefix; /* a call's id is this, its name, ':' and its number in the conversation; NULL: any */
} rg_talk;

extern const rg_talk rg_talks[]; /* ends with a name of NULL; the last but one is for every other model */

const rg_talk *rg_talk_named(const char *name); /* by name or alias; NULL: there is none */
/* The family of a text that a template has rendered; has_token tells whether the vocabulary has a text as one token.
 * Never NULL. */
const rg_talk *rg_talk_of(const char *rendered, bool (*has_token)(void *arg, const char *text), void *arg);
/* Does the rendered text show a call in one of the family's forms? */
bool rg_talk_shows_form(const rg_talk *talk, const char *rendered);
/* The form that the rendered text has; else the first. */
const rg_talk_form *rg_talk_form_of(const rg_talk *talk, const char *rendered);
static inline bool rg_talk_has_form(const rg_talk_form *f)
{
    return f->open || f->item_open || f->way;
}
/* Call take for every mark of the family; marks may come twice. */
void rg_talk_marks(const rg_talk *talk, void (*take)(void *arg, const char *mark), void *arg);

#endif
