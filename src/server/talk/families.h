/* families.h -- what entries of the families' table are made of; families.c alone includes it, and families_marks.c,
 * which defines it. */
#ifndef RG_SERVER_TALK_FAMILIES_H
#define RG_SERVER_TALK_FAMILIES_H

#include "server/talk/talk.h"

extern const rg_talk_tags rg_tags_coder, rg_tags_seed, rg_tags_named, rg_tags_dsml, rg_tags_glm, rg_tags_longcat,
    rg_tags_step, rg_tags_k3, rg_tags_param, rg_tags_m3, rg_tags_dsml_spaced, rg_tags_gcml, rg_tags_ifm, rg_tags_atem;
extern const rg_talk_heads rg_heads_harmony, rg_heads_functionary_named, rg_heads_functionary_recipient, rg_heads_muse,
    rg_heads_inkling;

#define DS_CALLS  "<｜tool▁calls▁begin｜>"
#define DS_END    "<｜tool▁calls▁end｜>"
#define DS_CALL   "<｜tool▁call▁begin｜>"
#define DS_SEP    "<｜tool▁sep｜>"
#define DS_CLOSE  "<｜tool▁call▁end｜>"
#define STEP_CALL "<｜tool_call_begin｜>"
#define STEP_SEP  "<｜tool_sep｜>"

#define M3          "]<]minimax[>["
#define PLAMO(name) "<|plamo:" name ":plamo|>"

/* ---- forms that several families have ---------------------------------------------------------------------------- */

#define OBJECT     "{\"name\": \"", .sep = "\", \"arguments\": ", .item_close = "}"
#define PARAMETERS "{\"name\": \"", .sep = "\", \"parameters\": ", .item_close = "}"

#define HERMES                                                                                                         \
    {                                                                                                                  \
        .open = "<tool_call>\n", .close = "\n</tool_call>", .way = RG_CALL_OBJECT, .item_open = OBJECT                 \
    }
#define CODER                                                                                                          \
    {                                                                                                                  \
        .open = "<tool_call>\n", .close = "</tool_call>", .way = RG_CALL_TAGS,                                         \
        .item_open = "<function=", .sep = ">\n", .item_close = "</function>\n", .tags = &rg_tags_coder                 \
    }
#define BARE_CODER                                                                                                     \
    {                                                                                                                  \
        .way = RG_CALL_TAGS, .item_open = "<function=", .sep = ">\n", .item_close = "</function>",                     \
        .tags = &rg_tags_coder                                                                                         \
    }
#define FUNCTION_JSON                                                                                                  \
    {                                                                                                                  \
        .way = RG_CALL_JSON, .item_open = "<function=", .sep = ">", .item_close = "</function>"                        \
    }
#define BARE_OBJECT                                                                                                    \
    {                                                                                                                  \
        .way = RG_CALL_OBJECT, .item_open = OBJECT                                                                     \
    }
#define BARE_PARAMETERS                                                                                                \
    {                                                                                                                  \
        .way = RG_CALL_OBJECT, .item_open = PARAMETERS                                                                 \
    }
#define BARE_PYTHON                                                                                                    \
    {                                                                                                                  \
        .way = RG_CALL_PYTHON, .item_open = "", .list = true, .joint = ", "                                            \
    }
#define MISTRAL_LIST                                                                                                   \
    {                                                                                                                  \
        .open = "[TOOL_CALLS]", .way = RG_CALL_OBJECT, .item_open = OBJECT, .list = true, .joint = ", "                \
    }
#define MISTRAL_NAMED                                                                                                  \
    {                                                                                                                  \
        .open = "[TOOL_CALLS]", .way = RG_CALL_JSON, .item_open = "", .sep = "[ARGS]", .id_mark = "[CALL_ID]"          \
    }
#define DS_FENCE                                                                                                       \
    {                                                                                                                  \
        .open = DS_CALLS, .close = DS_END, .way = RG_CALL_JSON, .item_open = DS_CALL "function" DS_SEP,                \
        .sep = "\n```json\n", .item_close = "\n```" DS_CLOSE, .joint = "\n"                                            \
    }
#define DS_PLAIN                                                                                                       \
    {                                                                                                                  \
        .open = DS_CALLS, .close = DS_END, .way = RG_CALL_JSON, .item_open = DS_CALL, .sep = DS_SEP,                   \
        .item_close = DS_CLOSE, .joint = ""                                                                            \
    }
#define LIST_IN(before, after)                                                                                         \
    {                                                                                                                  \
        .open = before, .close = after, .way = RG_CALL_OBJECT, .item_open = OBJECT, .list = true, .joint = ", "        \
    }

#define THINK                                                                                                          \
    {                                                                                                                  \
        "<think>", "</think>"                                                                                          \
    }

#endif
