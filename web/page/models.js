// models.js -- the models that the server has, what they can do, and the one that is chosen.
import { $, el } from './dom.js';
import { json } from './api.js';

let list = [];

function remembered() {
  try { return localStorage.getItem('ridge.model') || ''; } catch { return ''; }
}

export const models = {
  chosen: () => $('model').value || undefined,
  // What the chosen model can do: words as in /v1/models; nothing is known before the list is there.
  can: word => !!list.find(m => m.id === models.chosen())?.capabilities?.includes(word),
  chats: () => models.can('completion') && list.find(m => m.id === models.chosen())?.meta?.chat_template !== false,
  known: () => list.length > 0,

  // Read the list.  False: it is as it was.  Throws what the server refused.
  async load() {
    const now = (await json('/v1/models')).data, was = models.chosen() || remembered();
    if (JSON.stringify(now) === JSON.stringify(list)) return false;
    list = now;
    $('model').replaceChildren(...now.map(m => el('option', { value: m.id, textContent: m.id })));
    if (now.some(m => m.id === was)) $('model').value = was;
    return true;
  },

  start(changed) {
    $('model').addEventListener('change', () => {
      try { localStorage.setItem('ridge.model', $('model').value); } catch { /* the browser keeps nothing */ }
      changed();
    });
  },
};
