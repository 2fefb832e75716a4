/* family_members.c -- see family.h: the tables of members, and how letters become sizes.
 *
 * Besides those of family.h: T the list of the layers' kinds; X twice the window but for a row itself (BASED's way to
 * say it); G the rank of Mamba's time steps; P the size of Mamba-2's heads; Y and Z
 * of how many layers one is attention, and which; 1 and 2 the layers whose number leaves this rest by 3. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/study/family.h"
#include "model/model.h"

#define LLAMA                                                                                                          \
    "{'architectures':['LlamaForCausalLM'],'model_type':'llama','hidden_size':$D,'num_hidden_layers':$L,"              \
    "'num_attention_heads':$H,'num_key_value_heads':$K,'head_dim':$E,'intermediate_size':$F,'rms_norm_eps':1e-5,"      \
    "'rope_theta':10000.0,'max_position_embeddings':4096,'tie_word_embeddings':true,'vocab_size':$V"
#define BASED                                                                                                          \
    "{'architectures':['GPTLMHeadModel'],'model_type':'based','activation_function':'swiglu','alt_mixer':{'_target_':" \
    "'based.models.mixers.linear_attention.LinearAttention','feature_dim':$S,'feature_map':{'_target_':"               \
    "'based.models.mixers.linear_attention.TaylorExp','input_dim':$S},'num_heads':$H},'alt_mixer_2':{'_target_':"      \
    "'based.models.mixers.slide_attention.SlidingAttention','causal':true,'num_heads':$H,'window_size':$X},'mixer':"   \
    "{'_target_':'based.models.mixers.convolution.BaseConv','expand_proj':4,'kernel_size':3,'use_bias':true},"         \
    "'layer_norm_epsilon':1e-5,'mlp_fc1_bias':false,'mlp_fc2_bias':false,'qkv_proj_bias':false,'out_proj_bias':"       \
    "false,'rms_norm':true,'rotary_emb_fraction':1,'max_position_embeddings':0,'n_positions':4096,'n_embd':$D,"        \
    "'n_head':$H,'n_layer':$L,'n_inner':$F,'vocab_size':$V,'tie_word_embeddings':true"
#define MAMBA                                                                                                          \
    "'hidden_size':$D,'num_hidden_layers':$L,'state_size':$S,'conv_kernel':4,'expand':2,'use_bias':false,"             \
    "'use_conv_bias':true,'layer_norm_epsilon':1e-5,'vocab_size':$V,'tie_word_embeddings':true"
#define MINIMAX                                                                                                        \
    "{'architectures':['MiniMaxForCausalLM'],'model_type':'minimax','hidden_size':$D,'num_hidden_layers':$L,"          \
    "'head_dim':$E,'num_attention_heads':$H,'num_key_value_heads':$K,'layer_types':$T,'num_local_experts':1,"          \
    "'num_experts_per_tok':1,'block_size':256,'rms_norm_eps':1e-5,'rope_theta':10000.0,"                               \
    "'hidden_act':'silu','vocab_size':$V,'max_position_embeddings':4096,'tie_word_embeddings':true,"                   \
    "'intermediate_size':$F}"

const family_member family_members[] = {
    { "mha", "every head has K and V of its own", LLAMA "}", .text = { .kv_heads = 4 }, .solve = 'F' },
    { "gqa", "two heads share K and V", LLAMA "}", .text = { .kv_heads = 2 }, .solve = 'F' },
    { "mqa", "all heads share K and V", LLAMA "}", .text = { .kv_heads = 1 }, .solve = 'F' },
    { "mla", "K and V of all heads from 32 numbers, and 8 that are rotated",
      "{'architectures':['DeepseekV2ForCausalLM'],'model_type':'deepseek_v2','hidden_size':$D,'num_hidden_layers':$L,"
      "'first_k_dense_replace':$L,'num_attention_heads':$H,'num_key_value_heads':$H,'kv_lora_rank':$S,'q_lora_rank':"
      "null,'qk_nope_head_dim':$E,'qk_rope_head_dim':8,'v_head_dim':$E,'n_routed_experts':2,'num_experts_per_tok':1,"
      "'moe_intermediate_size':64,'topk_method':'greedy','routed_scaling_factor':1.0,'vocab_size':$V,"
      "'max_position_embeddings':4096,'rms_norm_eps':1e-5,'rope_theta':10000.0,'tie_word_embeddings':true,"
      "'intermediate_size':$F}",
      .text = { .state = 32 }, .solve = 'F' },
    { "cla2", "gqa, and two layers share K and V", LLAMA ",'use_cla':true,'cla_share_factor':2}",
      .text = { .kv_heads = 2 }, .solve = 'F' },
    { "cla3", "gqa, and three layers share K and V", LLAMA ",'use_cla':true,'cla_share_factor':3}",
      .text = { .kv_heads = 2 }, .solve = 'F' },
    { "window", "gqa, and rows see 32 positions", LLAMA ",'sliding_window':$W,'layer_types':$T}",
      .kinds = { "sliding_attention", "sliding_attention" }, .text = { .kv_heads = 2 }, .solve = 'F' },
    { "window-global", "gqa; five layers with a window of 32, one without",
      LLAMA ",'sliding_window':$W,'layer_types':$T}", .kinds = { "sliding_attention", "full_attention" },
      .text = { .kv_heads = 2, .every = 6 }, .solve = 'F' },
    { "sinks", "gqa; rows see the first 4 positions and 28 more (StreamingLLM)",
      LLAMA ",'layer_types':$T,'attention_patterns':{'sinks':{'terms':[{'type':'first','count':4},{'type':'window',"
            "'size':28}],'positions':'cache'}}}",
      .kinds = { "sinks", "sinks" }, .text = { .kv_heads = 2 }, .solve = 'F' },
    { "s4d", "a linear recurrence that does not depend on what it reads (S4D)",
      "{'architectures':['S4ForCausalLM'],'model_type':'s4_lm','activation':'gelu','final_act':'glu','mode':'s4d',"
      "'disc':'zoh','prenorm':true,'d_model':$D,'d_state':$S,'n_layers':$L,'layer_norm_eps':1e-5,'vocab_size':$V}",
      .text = { .layers = 8, .state = 32 }, .solve = 'D' },
    { "mamba", "a recurrence whose parameters follow from what it reads",
      "{'architectures':['MambaForCausalLM'],'model_type':'mamba','intermediate_size':$F,'time_step_rank':$G," MAMBA
      "}",
      .text = { .layers = 8, .state = 16 }, .solve = 'F' },
    { "mamba2", "Mamba with one rate for each head",
      "{'architectures':['Mamba2ForCausalLM'],'model_type':'mamba2','head_dim':$P,'num_heads':$H,'n_groups':1," MAMBA
      "}",
      .text = { .layers = 8, .state = 32 }, .solve = 'S' },
    { "gated-delta", "linear attention by the gated delta rule in all layers (Qwen3.5's)",
      "{'architectures':['Qwen3_5ForCausalLM'],'model_type':'qwen3_5_text','full_attention_interval':$L,'head_dim':$E,"
      "'hidden_act':'silu','hidden_size':$D,'intermediate_size':$F,'layer_types':$T,'linear_conv_kernel_dim':4,"
      "'linear_key_head_dim':$S,'linear_num_key_heads':$H,'linear_num_value_heads':$H,'linear_value_head_dim':$E,"
      "'max_position_embeddings':4096,'num_attention_heads':$H,'num_hidden_layers':$L,'num_key_value_heads':$K,"
      "'rms_norm_eps':1e-6,'rope_parameters':{'rope_type':'default','rope_theta':10000.0,'partial_rotary_factor':0.5},"
      "'tie_word_embeddings':true,'vocab_size':$V}",
      .kinds = { "linear_attention", "linear_attention" }, .text = { .state = 24 }, .solve = 'F' },
    { "based", "two layers each of convolution, Taylor's linear attention, a window of 32",
      BASED ",'alt_mixer_layers':$1,'alt_mixer_2_layers':$2}", .text = { .state = 8 }, .solve = 'F' },
    { "lightning", "decayed linear attention in all layers (MiniMax-01's)", MINIMAX,
      .kinds = { "linear_attention", "linear_attention" }, .text = { .kv_heads = 2 }, .solve = 'F' },
    { "lightning-full", "seven layers of it, one of attention", MINIMAX,
      .kinds = { "linear_attention", "full_attention" }, .text = { .kv_heads = 2, .layers = 8, .every = 8 },
      .solve = 'F' },
    { "jamba", "seven layers of Mamba, one of attention",
      "{'architectures':['JambaForCausalLM'],'model_type':'jamba','hidden_size':$D,'num_hidden_layers':$L,"
      "'attn_layer_offset':$Z,'attn_layer_period':$Y,'expert_layer_offset':1,'expert_layer_period':2,'num_experts':1,"
      "'num_experts_per_tok':1,'mamba_d_conv':4,'mamba_d_state':$S,'mamba_dt_rank':$G,'mamba_expand':1,"
      "'mamba_conv_bias':true,'mamba_proj_bias':false,'num_attention_heads':$H,'num_key_value_heads':$K,'vocab_size':$"
      "V,"
      "'max_position_embeddings':4096,'rms_norm_eps':1e-5,'tie_word_embeddings':true,'intermediate_size':$F}",
      .text = { .kv_heads = 2, .layers = 8, .every = 8, .state = 16 }, .solve = 'F' },
    { "masked-diffusion", "fills in masks of a whole text in passes (LLaDA's)",
      "{'architectures':['LLaDAModelLM'],'model_type':'llada','activation_type':'silu','alibi':false,"
      "'attention_layer_norm':false,'bias_for_layer_norm':false,'block_type':'llama','d_model':$D,'embedding_size':$N,"
      "'include_bias':false,'include_qkv_bias':false,'input_emb_norm':false,'layer_norm_type':'rms',"
      "'layer_norm_with_affine':true,'mask_token_id':$M,'max_sequence_length':4096,'mlp_hidden_size':$F,'mlp_ratio':4,"
      "'n_heads':$H,'n_kv_heads':$K,'n_layers':$L,'rms_norm_eps':1e-5,'rope':true,'rope_full_precision':true,"
      "'rope_theta':10000.0,'scale_logits':false,'vocab_size':$N,'weight_tying':true,'multi_query_attention':null}",
      .text = { .kv_heads = 4 }, .solve = 'F' },
    { "block-diffusion", "fills in masks of 8 ids after 8 (SDAR's)",
      "{'architectures':['SDARForCausalLM'],'model_type':'sdar','attention_bias':false,'block_size':8,'head_dim':$E,"
      "'hidden_act':'silu','hidden_size':$D,'intermediate_size':$F,'mask_token_id':$M,'max_position_embeddings':4096,"
      "'num_attention_heads':$H,'num_hidden_layers':$L,'num_key_value_heads':$K,'rms_norm_eps':1e-6,"
      "'rope_theta':10000.0,'tie_word_embeddings':true,'vocab_size':$N}",
      .text = { .kv_heads = 4 }, .solve = 'F' },
    { "conv-window", "a convolution, then attention with a window",
      BASED ",'alt_mixer_layers':[],'alt_mixer_2_layers':[1]}" },
    { "conv-linear", "a convolution, then Taylor's linear attention",
      BASED ",'alt_mixer_layers':[1],'alt_mixer_2_layers':[]}" },
};
const int family_n_members = RG_LEN(family_members);

const char family_notes[] =
    "Members: mha, gqa, mqa, mla, cla2, cla3, window, window-global, sinks, s4d, mamba, mamba2, gated-delta,\n"
    "based, lightning, lightning-full, jamba, masked-diffusion, block-diffusion; of recall alone: conv-window,\n"
    "conv-linear.  Hours of two cores for all; two members and few tokens take minutes.";

const family_asked family_recall[] = {
    { "mha", 32, 0 },          { "mha", 64, 0 },         { "conv-window", 32, 48 },   { "conv-window", 32, 32 },
    { "conv-window", 32, 16 }, { "conv-window", 32, 8 }, { "conv-linear", 32, 16 },   { "conv-linear", 32, 8 },
    { "conv-linear", 32, 4 },  { "conv-linear", 32, 2 }, { "s4d", 32, 16 },           { "s4d", 32, 64 },
    { "s4d", 64, 64 },         { "mamba", 32, 4 },       { "mamba", 32, 16 },         { "mamba", 64, 16 },
    { "mamba2", 32, 16 },      { "mamba2", 32, 64 },     { "gated-delta", 32, 16 },   { "gated-delta", 64, 32 },
    { "lightning", 32, 0 },    { "lightning", 64, 0 },   { "lightning-full", 32, 0 }, { "jamba", 32, 16 },
};
const int family_n_recall = RG_LEN(family_recall);

const family_member *family_find(const char *name)
{
    for (int i = 0; i < family_n_members; i++)
        if (!strcmp(name, family_members[i].name))
            return &family_members[i];
    return NULL;
}

static int given(int own, int usual)
{
    return own ? own : usual;
}

family_sizes family_text_sizes(const family_member *m, int vocab)
{
    const family_sizes *t = &m->text;

    return (family_sizes){ .vocab = vocab,
                           .dim = given(t->dim, 96),
                           .layers = given(t->layers, 6),
                           .heads = given(t->heads, 4),
                           .kv_heads = given(t->kv_heads, 4),
                           .state = given(t->state, 16),
                           .window = given(t->window, 32),
                           .every = given(t->every, 1) };
}

family_sizes family_recall_sizes(const family_asked *a, int vocab)
{
    return (family_sizes){ .vocab = vocab,
                           .dim = a->dim,
                           .layers = 2,
                           .heads = 2,
                           .kv_heads = 2,
                           .free = 2 * a->dim,
                           .state = given(a->knob, 16),
                           .window = given(a->knob, 16),
                           .every = 2 };
}

/* ---- letters ----------------------------------------------------------------------------------------------------- */

static void put_kinds(const family_member *m, const family_sizes *s, rg_buf *to)
{
    for (int i = 0; i < s->layers; i++)
        rg_buf_printf(to, "%s\"%s\"", i ? "," : "[", m->kinds[i % s->every == s->every - 1]);
    rg_buf_str(to, "]");
}

static void put_layers(const family_sizes *s, int rest, rg_buf *to)
{
    rg_buf_str(to, "[");
    for (int i = rest; i < s->layers; i += 3)
        rg_buf_printf(to, "%s%d", i > rest ? "," : "", i);
    rg_buf_str(to, "]");
}

/* The number that a letter stands for. */
static int number_of(const family_sizes *s, char letter)
{
    const struct {
        char letter;
        int is;
    } all[] = {
        { 'V', s->vocab },
        { 'M', s->vocab },
        { 'N', s->vocab + 1 },
        { 'D', s->dim },
        { 'L', s->layers },
        { 'H', s->heads },
        { 'K', s->kv_heads },
        { 'E', s->dim / s->heads },
        { 'F', s->free },
        { 'S', s->state },
        { 'W', s->window },
        { 'X', 2 * (s->window - 1) },
        { 'G', (s->dim + 15) / 16 },
        { 'P', 2 * s->dim / s->heads },
        { 'Y', s->every },
        { 'Z', s->every / 2 },
    };

    for (size_t i = 0; i < RG_LEN(all); i++)
        if (all[i].letter == letter)
            return all[i].is;
    RG_ASSERT(!"a letter of the table of members stands for nothing");
    return 0;
}

void family_config(const family_member *m, const family_sizes *s, const int32_t ends[2], rg_buf *to)
{
    static const char *const keys[] = { "bos_token_id", "eos_token_id" };

    rg_buf_str(to, "{");
    for (size_t i = 0; i < RG_LEN(keys); i++)
        if (ends[i] >= 0)
            rg_buf_printf(to, "\"%s\":%d,", keys[i], ends[i]);
    for (const char *c = m->config + 1; *c; c++)
        if (*c == '\'')
            rg_buf_str(to, "\"");
        else if (*c != '$')
            rg_buf_printf(to, "%c", *c);
        else if (*++c == 'T')
            put_kinds(m, s, to);
        else if (*c == '1' || *c == '2')
            put_layers(s, *c - '0', to);
        else
            rg_buf_printf(to, "%d", number_of(s, *c));
    rg_buf_str(to, "\n");
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static bool count(const family_member *m, const family_sizes *s, const int32_t ends[2], const char *path, double *n,
                  rg_error *err)
{
    rg_buf b;
    rg_checkpoint *c;
    rg_model *model;

    rg_buf_init(&b, 1 << 16);
    family_config(m, s, ends, &b);
    if (!cli_write_file(path, &b, err))
        return false;
    c = rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, err);
    model = c ? rg_model_open(c, &(rg_model_options){ .declare_only = true, .declared_type = RG_F32 }, err) : NULL;
    *n = model ? (double)model->weights.n_parameters : 0;
    rg_model_close(model);
    rg_checkpoint_close(c);
    return model;
}

bool family_solve(const family_member *m, family_sizes *s, const int32_t ends[2], const char *path, double wanted,
                  double *got, rg_error *err)
{
    int *at = m->solve == 'F' ? &s->free : m->solve == 'S' ? &s->state : &s->dim;
    const int step = m->solve == 'D' ? s->heads : 4;
    int low = 1, high = 4096 / step; /* in steps: as many parameters at least, at most */

    while (low < high) {
        const int middle = (low + high) / 2;

        *at = middle * step;
        if (!count(m, s, ends, path, got, err))
            return false;
        if (*got < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    double above;
    *at = low * step;
    if (!count(m, s, ends, path, &above, err))
        return false;
    if (low > 1) { /* the nearer one */
        *at = (low - 1) * step;
        if (!count(m, s, ends, path, got, err))
            return false;
        if (wanted - *got < above - wanted)
            return true;
        *at = low * step;
    }
    return count(m, s, ends, path, got, err);
}
