// settings.js -- the settings: a table of what they are and mean, kept in the browser.  The key is kept until the tab is
// closed.
import { $, el } from './dom.js';

const number = { type: 'number' };

// name: of the request's field, unless `own` is set, which the page itself reads.
const table = [
  { name: 'temperature', label: 'Temperature', ...number, min: 0, max: 5, step: 0.1,
    means: '0: always the likeliest token. Higher: more surprising. 1: as the model was trained.' },
  { name: 'top_p', label: 'Top p', ...number, min: 0, max: 1, step: 0.01,
    means: 'Draws from the likeliest tokens that together have this probability. 1: from all.' },
  { name: 'top_k', label: 'Top k', ...number, min: -1, step: 1, means: 'Draws from this many of the likeliest tokens. -1: from all.' },
  { name: 'min_p', label: 'Min p', ...number, min: 0, max: 1, step: 0.01,
    means: 'Leaves out tokens less likely than this share of the likeliest.' },
  { name: 'presence_penalty', label: 'Presence penalty', ...number, min: -2, max: 2, step: 0.1,
    means: 'Above 0: tokens that the answer has already become less likely.' },
  { name: 'frequency_penalty', label: 'Frequency penalty', ...number, min: -2, max: 2, step: 0.1,
    means: 'The same, for each time that the token stands there.' },
  { name: 'max_tokens', label: 'Tokens at most', ...number, min: 1, step: 1,
    means: 'The answer is cut after so many. Empty: at the end of the context (completions: 256).' },
  { name: 'seed', label: 'Seed', ...number, step: 1, means: 'The same seed gives the same answer. Empty: a new one each time.' },
  { name: 'stop', label: 'Stop text', type: 'text', means: 'The answer ends before this text.' },
  { name: 'reasoning_effort', label: 'Reasoning', choices: ['none', 'low', 'medium', 'high'], chat: true,
    means: 'How much the model thinks first, if it can.' },
  { name: 'system', label: 'System message', rows: 2, own: true, means: 'Said to the model before everything else.' },
  { name: 'tools', label: 'Tools', rows: 3, own: true, json: Array.isArray, chat: true,
    means: 'Functions that the model may call: a JSON list in the form of OpenAI’s API. You type their results.' },
  { name: 'schema', label: 'Answer’s schema', rows: 3, own: true, json: v => v && typeof v === 'object',
    means: 'A JSON Schema: the answer is then JSON that fits it.' },
  { name: 'key', label: 'API key', type: 'password', own: true, secret: true, means: 'If the server wants one. Kept until this tab is closed.' },
];

const place = s => s.secret ? sessionStorage : localStorage;
const kept = s => { try { return place(s).getItem('ridge.' + s.name) || ''; } catch { return ''; } };

function field(s) {
  const attr = { 'aria-describedby': 'means-' + s.name, placeholder: s.secret || s.own ? 'none' : 'the model’s' };
  for (const name of ['type', 'min', 'max', 'step', 'rows']) if (s[name] !== undefined) attr[name] = s[name];
  if (s.secret) attr.autocomplete = 'off';
  if (s.choices) return el('select', { id: s.name, attr }, ...['', ...s.choices].map(c => el('option', { value: c, textContent: c || 'the model’s' })));
  return el(s.rows ? 'textarea' : 'input', { id: s.name, attr, spellcheck: false });
}

export const settings = {
  // The text of one; '' where nothing was set.
  get: name => $(name)?.value ?? kept(table.find(s => s.name === name)),

  set(name, text) {
    $(name).value = text;
    $(name).dispatchEvent(new Event('change'));
  },

  // Build the form.
  show(into, changed) {
    for (const s of table) {
      const input = field(s);
      input.value = kept(s);
      input.addEventListener('change', () => {
        try { place(s).setItem('ridge.' + s.name, input.value); } catch { /* the browser keeps nothing */ }
        changed(s.name);
      });
      into.append(el('div', { className: s.rows || s.secret ? 'field wide' : 'field' },
        el('label', { htmlFor: s.name, textContent: s.label }), input,
        el('span', { id: 'means-' + s.name, className: 'means', textContent: s.means })));
    }
  },

  reset() {
    for (const s of table) if (!s.secret) settings.set(s.name, '');
  },

  // The JSON of one; undefined where nothing was set.  Throws a message for the person.
  json(name) {
    const s = table.find(t => t.name === name), text = settings.get(name).trim();
    if (!text) return undefined;
    try {
      const v = JSON.parse(text);
      if (s.json(v)) return v;
    } catch { /* said below */ }
    throw new Error(`Settings: ${s.label} must be ${s.json === Array.isArray ? 'a JSON list' : 'a JSON object'}.`);
  },

  // Fields of a request.
  fields({ chat }) {
    const o = {}, schema = settings.json('schema');
    for (const s of table) {
      const v = settings.get(s.name);
      if (!s.own && v !== '' && (chat || !s.chat)) o[s.name] = s.type === 'number' ? Number(v) : v;
    }
    if (schema) o.response_format = { type: 'json_schema', json_schema: { name: 'answer', schema } };
    return o;
  },
};
