// models.js -- the models that the server has, what they can do, and the one that is chosen.
import { $, el } from './dom.js';
import { json } from './api.js';

let list = [];

const one = () => list.find(m => m.id === models.chosen());

function remembered() {
  try { return localStorage.getItem('ridge.model') || ''; } catch { return ''; }
}

export const models = {
  chosen: () => $('model').value || undefined,
  // The chosen model, as part of a path's query.
  query: () => 'model=' + encodeURIComponent(models.chosen() || ''),
  // What the chosen model can do: words as in /v1/models.  Nothing is known before the list is there; a model that the
  // server could not look into may do anything.
  can: word => !!one() && (one().capabilities?.includes(word) ?? true),
  chats: () => models.can('completion') && one().meta?.chat_template !== false,
  known: () => list.length > 0,
  // Of several, it was not loaded when the list was read: the server may know more of it now.
  wasClosed: () => one()?.loaded === false,

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
