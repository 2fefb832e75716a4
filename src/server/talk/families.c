/* families.c -- the families' table; see talk.h.  From the more particular to the more common: the first that fits is
 * taken.  A new family is an entry here, and what no entry can say is a new member of the description. */
#include "server/talk/talk.h"

#define DS_CALLS  "<｜tool▁calls▁begin｜>"
#define DS_END    "<｜tool▁calls▁end｜>"
#define DS_CALL   "<｜tool▁call▁begin｜>"
#define DS_SEP    "<｜tool▁sep｜>"
#define DS_CLOSE  "<｜tool▁call▁end｜>"
#define STEP_CALL "<｜tool_call_begin｜>"
#define STEP_SEP  "<｜tool_sep｜>"

/* ---- arguments as tags ------------------------------------------------------------------------------------------- */

static const rg_talk_tags coder_tags = {
    .key_open = "<parameter=", .key_close = ">\n", .close = "\n</parameter>\n", .lines = true
};
static const rg_talk_tags seed_tags = { .key_open = "<parameter=", .key_close = ">", .close = "</parameter>\n" };
static const rg_talk_tags named_tags = { .key_open = "<parameter name=\"",
                                         .key_close = "\">",
                                         .close = "</parameter>\n" };
static const rg_talk_tags dsml_tags = { .key_open = "<｜DSML｜parameter name=\"",
                                        .key_close = "\"",
                                        .key_rest = ">",
                                        .is_text = "string=\"true\"",
                                        .isnt_text = "string=\"false\"",
                                        .close = "</｜DSML｜parameter>\n" };
static const rg_talk_tags glm_tags = {
    .key_open = "<arg_key>", .key_close = "</arg_key>\n", .value_open = "<arg_value>", .close = "</arg_value>\n"
};
static const rg_talk_tags longcat_tags = { .key_open = "<longcat_arg_key>",
                                           .key_close = "</longcat_arg_key>\n",
                                           .value_open = "<longcat_arg_value>",
                                           .close = "</longcat_arg_value>\n" };
static const rg_talk_tags step_tags = { .key_open = "<steptml:parameter name=\"",
                                        .key_close = "\">",
                                        .close = "</steptml:parameter>" };
static const rg_talk_tags k3_tags = { .key_open = "<|open|>argument key=\"",
                                      .key_close = "\"",
                                      .key_rest = "<|sep|>",
                                      .is_text = "type=\"string\"",
                                      .isnt_text = "type=\"object\"",
                                      .close = "<|close|>argument<|sep|>" };

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
        .item_open = "<function=", .sep = ">\n", .item_close = "</function>\n", .tags = &coder_tags                    \
    }
#define BARE_CODER                                                                                                     \
    {                                                                                                                  \
        .way = RG_CALL_TAGS, .item_open = "<function=", .sep = ">\n", .item_close = "</function>", .tags = &coder_tags \
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

/* ---- messages with heads ----------------------------------------------------------------------------------------- */

static const rg_talk_heads harmony = {
    .open = { "<|start|>", "<|channel|>" },
    .body = "<|message|>",
    .end = { "<|end|>", "<|call|>", "<|return|>" },
    .to = "to=",
    .to_prefix = "functions.",
    .thinks = "analysis",
    .call = "<|channel|>commentary to=functions.",
    .call_rest = " <|constrain|>json<|message|>",
    .call_end = "",
    .again = "<|end|><|start|>assistant",
};

static const rg_talk_heads functionary_named = {
    .open = { ">>>" },
    .body = "\n",
    .says = "all",
    .call = "",
    .call_rest = "\n",
    .call_end = "",
    .again = ">>>",
};

static const rg_talk_heads functionary_recipient = {
    .open = { "<|from|>", "<|recipient|>" },
    .body = "<|content|>",
    .end = { "<|stop|>" },
    .to = "<|recipient|>",
    .says = "all",
    .call = "",
    .call_rest = "\n<|content|>",
    .call_end = "",
    .again = "\n<|from|>assistant\n<|recipient|>",
};

/* ---- the table --------------------------------------------------------------------------------------------------- */

const rg_talk rg_talks[] = {
    { .name = "harmony",
      .aliases = " openai gpt-oss gpt_oss ",
      .signs = { "<|channel|>final", "<|channel|>commentary", "<|channel|>analysis" },
      .tokens = { "<|channel|>", "<|message|>" },
      .think = { { "<|channel|>analysis<|message|>", "<|end|>" } },
      .heads = &harmony },

    { .name = "gemma4",
      .aliases = " gemma-4 gemma ",
      .signs = { "<|tool_call>call:", "<|turn>model", "<|channel>thought" },
      .tokens = { "<|channel>", "<|tool_call>" },
      .think = { { "<|channel>thought\n", "<channel|>" }, { "<|channel>", "<channel|>" } },
      .thinks_anywhere = true,
      .silent = { "<|tool_response>", "<turn|>" },
      .forms = { { .open = "<|tool_call>",
                   .close = "<tool_call|>",
                   .way = RG_CALL_QUOTED,
                   .item_open = "call:",
                   .sep = "",
                   .quote = "<|\"|>" } } },

    { .name = "functiongemma",
      .signs = { "<start_function_call>", "<start_function_declaration>" },
      .tokens = { "<start_function_call>" },
      .forms = { { .open = "<start_function_call>",
                   .close = "<end_function_call>",
                   .way = RG_CALL_QUOTED,
                   .item_open = "call:",
                   .sep = "",
                   .quote = "<escape>" } },
      .silent = { "<start_function_response>" } },

    { .name = "kimi_k3",
      .aliases = " kimi-k3 ",
      .signs = { "<|open|>message role=" },
      .tokens = { "<|open|>", "<|sep|>" },
      .think = { { "<|open|>think<|sep|>", "<|close|>think<|sep|>" } },
      .thinks_anywhere = true,
      .silent = { "<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>", "<|end_of_msg|>" },
      .forms = { { .open = "<|open|>tools<|sep|>",
                   .close = "<|close|>tools<|sep|>",
                   .way = RG_CALL_TAGS,
                   .item_open = "<|open|>call tool=\"",
                   .sep = "\"",
                   .sep_rest = "<|sep|>",
                   .item_close = "<|close|>call<|sep|>",
                   .tags = &k3_tags,
                   .joint = "" } } },

    { .name = "kimi_k2",
      .aliases = " kimi kimi-k2 ",
      .signs = { "<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>" },
      .tokens = { "<|tool_calls_section_begin|>" },
      .think = { THINK },
      .call_ends_thought = true,
      .id_prefix = "functions.",
      .forms = { { .open = "<|tool_calls_section_begin|>",
                   .close = "<|tool_calls_section_end|>",
                   .way = RG_CALL_JSON,
                   .item_open = "<|tool_call_begin|>functions.",
                   .name_end = ":",
                   .sep = "<|tool_call_argument_begin|>",
                   .item_close = "<|tool_call_end|>",
                   .joint = "" } } },

    { .name = "deepseek_dsml",
      .aliases = " deepseek_v32 deepseek_v4 dsml ",
      .signs = { "<｜DSML｜" },
      .tokens = { "｜DSML｜" },
      .think = { THINK },
      .call_ends_thought = true,
      .forms = { { .open = "<｜DSML｜function_calls>\n",
                   .close = "</｜DSML｜function_calls>",
                   .way = RG_CALL_TAGS,
                   .item_open = "<｜DSML｜invoke name=\"",
                   .sep = "\">\n",
                   .item_close = "</｜DSML｜invoke>\n",
                   .tags = &dsml_tags,
                   .joint = "" },
                 { .open = "<｜DSML｜tool_calls>\n",
                   .close = "</｜DSML｜tool_calls>",
                   .way = RG_CALL_TAGS,
                   .item_open = "<｜DSML｜invoke name=\"",
                   .sep = "\">\n",
                   .item_close = "</｜DSML｜invoke>\n",
                   .tags = &dsml_tags,
                   .joint = "" } } },

    { .name = "deepseek_v31",
      .aliases = " deepseek-v3.1 ",
      .signs = { DS_CALL "ridge_probe" DS_SEP },
      .think = { THINK },
      .call_ends_thought = true,
      .forms = { DS_PLAIN, DS_FENCE } },

    { .name = "deepseek_v3",
      .aliases = " deepseek_r1 deepseek-r1 deepseek-v3 deepseek ",
      .signs = { DS_CALLS, DS_CALL, "<｜tool▁outputs▁begin｜>" },
      .tokens = { DS_CALLS },
      .think = { THINK },
      .call_ends_thought = true,
      .forms = { DS_FENCE, DS_PLAIN } },

    { .name = "step3",
      .aliases = " step ",
      .signs = { "<｜tool_calls_begin｜>", "<steptml:" },
      .tokens = { "<｜tool_calls_begin｜>" },
      .think = { THINK },
      .forms = { { .open = "<｜tool_calls_begin｜>\n",
                   .close = "<｜tool_calls_end｜>",
                   .way = RG_CALL_TAGS,
                   .item_open = STEP_CALL "function" STEP_SEP "<steptml:invoke name=\"",
                   .sep = "\">",
                   .item_close = "</steptml:invoke><｜tool_call_end｜>\n",
                   .tags = &step_tags,
                   .joint = "" } } },

    { .name = "minimax_m2",
      .aliases = " minimax minimax-m2 minimax_m3 ",
      .signs = { "<minimax:tool_call>" },
      .tokens = { "<minimax:tool_call>" },
      .think = { THINK },
      .call_ends_thought = true,
      .forms = { { .open = "<minimax:tool_call>\n",
                   .close = "</minimax:tool_call>",
                   .way = RG_CALL_TAGS,
                   .item_open = "<invoke name=\"",
                   .sep = "\">\n",
                   .item_close = "</invoke>\n",
                   .tags = &named_tags,
                   .joint = "" } } },

    { .name = "seed_oss",
      .aliases = " seed-oss seed ",
      .signs = { "<seed:tool_call>", "<seed:think>" },
      .tokens = { "<seed:tool_call>" },
      .think = { { "<seed:think>", "</seed:think>" } },
      .silent = { "<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>" },
      .forms = { { .open = "<seed:tool_call>\n",
                   .close = "</seed:tool_call>",
                   .way = RG_CALL_TAGS,
                   .item_open = "<function=",
                   .sep = ">\n",
                   .item_close = "</function>\n",
                   .tags = &seed_tags } } },

    { .name = "longcat",
      .aliases = " longcat_flash ",
      .signs = { "<longcat_tool_call>", "<longcat_think>" },
      .tokens = { "<longcat_tool_call>" },
      .think = { { "<longcat_think>", "</longcat_think>" } },
      .forms = { { .open = "<longcat_tool_call>",
                   .close = "</longcat_tool_call>",
                   .way = RG_CALL_TAGS,
                   .item_open = "",
                   .sep = "\n",
                   .tags = &longcat_tags },
                 { .open = "<longcat_tool_call>",
                   .close = "</longcat_tool_call>",
                   .way = RG_CALL_OBJECT,
                   .item_open = OBJECT } } },

    { .name = "glm",
      .aliases = " glm45 glm47 glm4_moe glm-4.5 ",
      .signs = { "<arg_key>" },
      .tokens = { "<arg_key>" },
      .think = { THINK },
      .silent = { "<|observation|>" },
      .forms = { { .open = "<tool_call>",
                   .close = "</tool_call>",
                   .way = RG_CALL_TAGS,
                   .item_open = "",
                   .sep = "\n",
                   .tags = &glm_tags },
                 HERMES } },

    { .name = "command_r7b",
      .aliases = " cohere command-r7b command_a cohere2 ",
      .signs = { "<|START_ACTION|>", "<|START_THINKING|>", "<|START_RESPONSE|>" },
      .tokens = { "<|START_ACTION|>" },
      .think = { { "<|START_THINKING|>", "<|END_THINKING|>" } },
      .thinks_anywhere = true,
      .call_ends_thought = true,
      .silent = { "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>" },
      .forms = { { .open = "<|START_ACTION|>",
                   .close = "<|END_ACTION|>",
                   .way = RG_CALL_OBJECT,
                   .item_open = "{\"tool_call_id\": \"0\", \"tool_name\": \"",
                   .sep = "\", \"parameters\": ",
                   .item_close = "}",
                   .list = true,
                   .joint = ", " } } },

    { .name = "apertus",
      .signs = { "<|tools_prefix|>", "<|inner_prefix|>" },
      .tokens = { "<|tools_prefix|>" },
      .think = { { "<|inner_prefix|>", "<|inner_suffix|>" } },
      .thinks_anywhere = true,
      .call_ends_thought = true,
      .forms = { { .open = "<|tools_prefix|>",
                   .close = "<|tools_suffix|>",
                   .way = RG_CALL_KEYED,
                   .item_open = "{\"",
                   .sep = "\": ",
                   .item_close = "}",
                   .list = true,
                   .joint = ", " } } },

    { .name = "lfm2",
      .aliases = " lfm2.5 ",
      .signs = { "<|tool_call_start|>" },
      .tokens = { "<|tool_call_start|>" },
      .think = { THINK },
      .forms = { { .open = "<|tool_call_start|>",
                   .close = "<|tool_call_end|>",
                   .way = RG_CALL_PYTHON,
                   .item_open = "",
                   .list = true,
                   .joint = ", " },
                 { .open = "<|tool_call_start|>",
                   .close = "<|tool_call_end|>",
                   .way = RG_CALL_OBJECT,
                   .item_open = OBJECT,
                   .list = true,
                   .joint = ", " } } },

    { .name = "solar_open",
      .aliases = " solar ",
      .signs = { "<|tool_call:begin|>", "<|tool_calls|>" },
      .tokens = { "<|tool_call:begin|>" },
      .think = { { "<|think|>", "<|end|>" } },
      .thinks_anywhere = true,
      .silent = { "<|begin|>assistant", "<|content|>", "<|end|>", "<|calls|>", "<|flush|>", "<|tool_calls|>" },
      .forms = { { .open = "<|tool_call:begin|>",
                   .close = "<|tool_call:end|>",
                   .way = RG_CALL_JSON,
                   .item_open = "",
                   .id_mark = "<|tool_call:name|>",
                   .sep = "<|tool_call:args|>" } } },

    { .name = "mistral",
      .aliases = " ministral magistral devstral ",
      .signs = { "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[THINK]" },
      .tokens = { "[TOOL_CALLS]" },
      .think = { { "[THINK]", "[/THINK]" }, THINK },
      .thinks_anywhere = true,
      .call_ends_thought = true,
      .forms = { MISTRAL_LIST, MISTRAL_NAMED } },

    { .name = "nemotron",
      .aliases = " nemotron_v2 nemotron-nano ",
      .signs = { "<TOOLCALL>", "<AVAILABLE_TOOLS>" },
      .think = { THINK },
      .forms = { LIST_IN("<TOOLCALL>", "</TOOLCALL>") } },

    { .name = "phi4",
      .aliases = " phi-4 phi4_mini phi ",
      .signs = { "<|/tool_call|>", "<|tool|>" },
      .tokens = { "<|/tool_call|>" },
      .think = { THINK },
      .forms = { LIST_IN("<|tool_call|>", "<|/tool_call|>"), LIST_IN("functools", NULL) } },

    { .name = "granite",
      .aliases = " granite3 granite-3 ",
      .signs = { "<|tool_call|>", "<|start_of_role|>" },
      .tokens = { "<|tool_call|>" },
      .think = { THINK },
      .silent = { "<response>", "</response>" },
      .forms = { { .open = "<|tool_call|>", .way = RG_CALL_OBJECT, .item_open = OBJECT, .list = true, .joint = ", " },
                 HERMES,
                 { .open = "<tool_call>", .way = RG_CALL_OBJECT, .item_open = OBJECT, .list = true, .joint = ", " } } },

    { .name = "firefunction",
      .aliases = " fireworks ",
      .signs = { "functools[" },
      .forms = { LIST_IN("functools", NULL) } },

    { .name = "functionary_v32",
      .aliases = " functionary functionary-v3.2 ",
      .signs = { ">>>all", ">>>ridge_probe" },
      .heads = &functionary_named },

    { .name = "functionary_v2",
      .aliases = " functionary-v2 ",
      .signs = { "<|recipient|>" },
      .tokens = { "<|recipient|>" },
      .heads = &functionary_recipient },

    { .name = "qwen3_coder",
      .aliases = " qwen3_xml qwen3-coder nemotron_v3 step3p5 mimo ",
      .signs = { "<tool_call>\n<function=", "<tool_call><function=" },
      .think = { THINK },
      .forms = { CODER, HERMES, BARE_CODER } },

    { .name = "gigachat",
      .aliases = " gigachat3 ",
      .signs = { "<|function_call|>" },
      .tokens = { "<|function_call|>" },
      .think = { THINK },
      .silent = { "<|message_sep|>" },
      .forms = { { .open = "<|function_call|>", .way = RG_CALL_OBJECT, .item_open = OBJECT },
                 { .open = "function call<|role_sep|>\n", .way = RG_CALL_OBJECT, .item_open = OBJECT } } },

    { .name = "internlm",
      .aliases = " internlm2 ",
      .signs = { "<|action_start|>" },
      .tokens = { "<|action_start|>", "<|plugin|>" },
      .think = { THINK },
      .forms = { { .open = "<|action_start|><|plugin|>\n",
                   .close = "<|action_end|>",
                   .way = RG_CALL_OBJECT,
                   .item_open = PARAMETERS } } },

    { .name = "olmo3",
      .aliases = " olmo ",
      .signs = { "<function_calls>" },
      .think = { THINK },
      .forms = { { .open = "<function_calls>\n",
                   .close = "\n</function_calls>",
                   .way = RG_CALL_PYTHON,
                   .item_open = "",
                   .joint = "\n" },
                 LIST_IN("<function_calls>", "</function_calls>") } },

    { .name = "jamba",
      .aliases = " hunyuan hunyuan_a13b apriel ",
      .signs = { "<tool_calls>" },
      .think = { THINK },
      .silent = { "<answer>", "</answer>", "[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]" },
      .forms = { LIST_IN("<tool_calls>", "</tool_calls>"), HERMES } },

    { .name = "hermes",
      .aliases = " qwen qwen2.5 qwen3 exaone smollm3 ernie granite4 ",
      .signs = { "<tool_call>" },
      .think = { THINK },
      .silent = { "<response>", "</response>" },
      .forms = { HERMES, CODER, BARE_CODER } },

    { .name = "functionary_v31",
      .aliases = " functionary-v3.1 ",
      .signs = { "<function=ridge_probe>", "<function=" },
      .think = { THINK },
      .forms = { FUNCTION_JSON, BARE_CODER, { .open = "<|python_tag|>", .way = RG_CALL_CODE } } },

    { .name = "llama3_json",
      .aliases = " llama3 llama llama4_json ",
      .signs = { "<|python_tag|>", "<|start_header_id|>" },
      .tokens = { "<|python_tag|>" },
      .forms = { BARE_PARAMETERS,
                 { .open = "<|python_tag|>", .way = RG_CALL_OBJECT, .item_open = PARAMETERS },
                 { .open = "<|python_tag|>", .way = RG_CALL_PYTHON, .item_open = "" },
                 { .open = "<|python_tag|>", .way = RG_CALL_CODE },
                 FUNCTION_JSON,
                 BARE_PYTHON } },

    { .name = "pythonic",
      .aliases = " llama4_pythonic llama4 ",
      .signs = { "<|python_start|>", "<|header_start|>", "[ridge_probe(" },
      .tokens = { "<|python_start|>" },
      .think = { THINK },
      .forms = { BARE_PYTHON,
                 { .open = "<|python_start|>",
                   .close = "<|python_end|>",
                   .way = RG_CALL_PYTHON,
                   .item_open = "",
                   .list = true,
                   .joint = ", " },
                 { .open = "<|python_start|>",
                   .close = "<|python_end|>",
                   .way = RG_CALL_OBJECT,
                   .item_open = PARAMETERS },
                 BARE_PARAMETERS } },

    /* Every other model, and templates without tools. */
    { .name = "generic",
      .aliases = " auto json ",
      .think = { THINK },
      .forms = { BARE_OBJECT,
                 HERMES,
                 CODER,
                 FUNCTION_JSON,
                 BARE_CODER,
                 MISTRAL_LIST,
                 MISTRAL_NAMED,
                 DS_FENCE,
                 DS_PLAIN,
                 LIST_IN("<tool_calls>", "</tool_calls>"),
                 LIST_IN("<|tool_call|>", "<|/tool_call|>"),
                 LIST_IN("<function_call>", "</function_call>"),
                 { .open = "<|python_tag|>", .way = RG_CALL_OBJECT, .item_open = PARAMETERS } } },
    { 0 },
};
