// talk.js -- a conversation as data: what was said, what a request says of it, and what an answer adds.  No elements.
//
// A talk: { id, title, named, updated, messages }.  A message: { role, content } and, of the assistant, also reasoning,
// tool_calls, cut (why it is not whole: 'length', 'stopped', or an error's text; '' if it is), request (X-Request-Id) and
// figures (tokens and seconds).

export const newTalk = () => ({ id: crypto.randomUUID?.() || String(Math.random()), title: 'New chat', named: false, updated: Date.now(), messages: [] });
export const newAnswer = () => ({ role: 'assistant', content: '', reasoning: '', tool_calls: [], cut: '' });
export const isEmpty = m => !m.content && !m.reasoning && !m.tool_calls.length;

// A title from the first thing said, until the person gives one.
export function touch(talk) {
  const first = talk.messages.find(m => m.role === 'user');
  talk.updated = Date.now();
  if (!talk.named) talk.title = first ? first.content.trim().split('\n')[0].slice(0, 60) || 'New chat' : 'New chat';
}

function forRequest(m) {
  const o = { role: m.role, content: m.content };
  if (m.role === 'tool') o.tool_call_id = m.tool_call_id;
  if (m.reasoning) o.reasoning_content = m.reasoning;
  if (m.tool_calls?.length) o.tool_calls = m.tool_calls;
  return o;
}

// The messages of a request; the system message is a setting, not a part of the talk.
export const messagesFor = (talk, system) => (system ? [{ role: 'system', content: system }] : []).concat(talk.messages.map(forRequest));

// Add what a chunk of a stream brings to the answer.
export function add(answer, choice) {
  const d = choice.delta || {};
  answer.content += d.content || '';
  answer.reasoning += d.reasoning_content || '';
  for (const part of d.tool_calls || []) {
    const call = answer.tool_calls[part.index] ||= { id: '', type: 'function', function: { name: '', arguments: '' } };
    call.id ||= part.id || '';
    call.function.name += part.function?.name || '';
    call.function.arguments += part.function?.arguments || '';
  }
  if (choice.finish_reason === 'length') answer.cut = 'length';
}

// The calls of the last message that have no result yet.
export function openCalls(talk) {
  const at = talk.messages.findLastIndex(m => m.role === 'assistant'), known = new Set();
  for (const m of talk.messages.slice(at + 1)) if (m.role === 'tool') known.add(m.tool_call_id); else return [];
  return at < 0 ? [] : talk.messages[at].tool_calls.filter(c => !known.has(c.id));
}

// The talk as it was before an answer, so that a request that is refused can leave nothing behind.
export const keep = talk => structuredClone(talk.messages);
