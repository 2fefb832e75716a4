/* continued.h -- a conversation whose last message is left open, so that the answer goes on from its text.
 *
 * A template closes every message.  So the last message is rendered with a mark behind its text, and everything from
 * the mark on is cut off. */
#ifndef RG_API_CONTINUED_H
#define RG_API_CONTINUED_H

#include "text/chat.h"

/* Render the conversation as rg_chat_render does, up to the end of the last message's text.  That message must be an
 * assistant's, its content a text, and it must call no tool.  Where the template trims the text, blanks at its end are
 * left out.  Appends to out, which must be empty. */
bool rg_render_continued(const rg_chat *c, const json_t *conversation, int64_t now_s, rg_text *out,
                         rg_error *err) RG_MUST_CHECK;

#endif
