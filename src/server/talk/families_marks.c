/* families_marks.c -- how families write arguments as tags, and messages with heads; see families.h. */
#include "server/talk/families.h"

/* ---- arguments as tags ------------------------------------------------------------------------------------------- */

const rg_talk_tags rg_tags_coder = {
    .key_open = "<parameter=", .key_close = ">\n", .close = "\n</parameter>\n", .lines = true
};
const rg_talk_tags rg_tags_seed = { .key_open = "<parameter=", .key_close = ">", .close = "</parameter>\n" };
const rg_talk_tags rg_tags_named = { .key_open = "<parameter name=\"", .key_close = "\">", .close = "</parameter>\n" };
const rg_talk_tags rg_tags_dsml = { .key_open = "<｜DSML｜parameter name=\"",
                                    .key_close = "\"",
                                    .key_rest = ">",
                                    .is_text = "string=\"true\"",
                                    .isnt_text = "string=\"false\"",
                                    .close = "</｜DSML｜parameter>\n" };
const rg_talk_tags rg_tags_glm = {
    .key_open = "<arg_key>", .key_close = "</arg_key>\n", .value_open = "<arg_value>", .close = "</arg_value>\n"
};
const rg_talk_tags rg_tags_longcat = { .key_open = "<longcat_arg_key>",
                                       .key_close = "</longcat_arg_key>\n",
                                       .value_open = "<longcat_arg_value>",
                                       .close = "</longcat_arg_value>\n" };
const rg_talk_tags rg_tags_step = { .key_open = "<steptml:parameter name=\"",
                                    .key_close = "\">",
                                    .close = "</steptml:parameter>" };
const rg_talk_tags rg_tags_k3 = { .key_open = "<|open|>argument key=\"",
                                  .key_close = "\"",
                                  .key_rest = "<|sep|>",
                                  .is_text = "type=\"string\"",
                                  .isnt_text = "type=\"object\"",
                                  .close = "<|close|>argument<|sep|>" };

const rg_talk_tags rg_tags_param = {
    .key_open = "<param name=\"", .key_close = "\">", .close = "</param>", .raw_open = "<![CDATA[", .raw_close = "]]>"
};
const rg_talk_tags rg_tags_m3 = { .key_open = M3 "<", .key_close = ">", .close = M3 "</", .nested = true };
const rg_talk_tags rg_tags_dsml_spaced = { .key_open = "<｜DSML｜ parameter name=\"",
                                           .key_close = "\"",
                                           .key_rest = ">",
                                           .is_text = "string=\"true\"",
                                           .isnt_text = "string=\"false\"",
                                           .close = "</｜DSML｜ parameter>\n" };
const rg_talk_tags rg_tags_gcml = { .key_open = "<｜GCML｜parameter name=\"",
                                    .key_close = "\"",
                                    .key_rest = ">",
                                    .is_text = "string=\"true\"",
                                    .isnt_text = "string=\"false\"",
                                    .close = "</｜GCML｜parameter>\n" };
const rg_talk_tags rg_tags_ifm = { .key_open = "<ifm|arg_key>",
                                   .key_close = "</ifm|arg_key>",
                                   .key_rest = "<ifm|arg_value>",
                                   .is_text = "<ifm|arg_type>string<",
                                   .close = "</ifm|arg_value>\n" };
const rg_talk_tags rg_tags_atem = { .key_open = "<atem:parameter name=\"",
                                    .key_close = "\">",
                                    .close = "</atem:parameter>\n" };

/* ---- messages with heads ----------------------------------------------------------------------------------------- */

const rg_talk_heads rg_heads_harmony = {
    .open = { "<|start|>", "<|channel|>" },
    .body = "<|message|>",
    .end = { "<|end|>", "<|call|>", "<|return|>" },
    .to = "to=",
    .to_prefix = "functions.",
    .thinks = "analysis",
    .say = "<|channel|>final<|message|>",
    .call = "<|channel|>commentary to=functions.",
    .call_rest = " <|constrain|>json<|message|>",
    .call_end = "",
    .again = "<|end|><|start|>assistant",
};

const rg_talk_heads rg_heads_functionary_named = {
    .open = { ">>>" },
    .body = "\n",
    .says = "all",
    .say = ">>>all\n",
    .call = ">>>",
    .call_rest = "\n",
    .call_end = "",
    .again = "",
};

const rg_talk_heads rg_heads_functionary_recipient = {
    .open = { "<|from|>", "<|recipient|>" },
    .body = "<|content|>",
    .end = { "<|stop|>" },
    .to = "<|recipient|>",
    .says = "all",
    .say = "<|from|>assistant\n<|recipient|>all\n<|content|>",
    .call = "<|from|>assistant\n<|recipient|>",
    .call_rest = "\n<|content|>",
    .call_end = "",
    .again = "\n",
};

const rg_talk_heads rg_heads_muse = {
    .open = { "<|start|>" },
    .body = "<|message|>",
    .end = { "<|eom|>", "<|eot|>" },
    .to = "to=",
    .thinks = "to=self",
    .texts = { "to=user", "to=commentary", "to=developer" },
    .calls = "to=",
    .say = " to=user<|message|>",
    .call = " to=",
    .call_rest = "<|message|>",
    .again = "<|eom|><|start|>assistant",
};

const rg_talk_heads rg_heads_inkling = {
    .open = { "<|message_model|>" },
    .body = "|>",
    .end = { "<|end_message|>", "<|content_model_end_sampling|>" },
    .thinks = "<|content_thinking",
    .texts = { "<|content_text", "<|content_invoke_tool_text", "<|content_tool_error" },
    .calls = "<|content_invoke_tool_json",
    .say = "<|message_model|><|content_text|>",
    .call = "<|message_model|>",
    .call_rest = "<|content_invoke_tool_json|>",
    .again = "<|end_message|>",
};
