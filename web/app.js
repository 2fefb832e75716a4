// The page: what is on it, and which parts the model at hand can use.  Each part is a module in page/.
import { $, note } from './page/dom.js';
import { json } from './page/api.js';
import * as chat from './page/chat.js';
import * as compare from './page/compare.js';
import * as complete from './page/complete.js';
import * as live from './page/live.js';
import { models } from './page/models.js';
import { showStatus } from './page/plan.js';
import { settings } from './page/settings.js';
import * as timeline from './page/timeline.js';

// ---- tabs, by mouse and by arrow keys ----

const tabs = [...document.querySelectorAll('[role=tab]')];

function show(tab) {
  for (const t of tabs) {
    const is = t === tab;
    t.setAttribute('aria-selected', is);
    t.tabIndex = is ? 0 : -1;
    $(t.getAttribute('aria-controls')).hidden = !is;
  }
  if (tab.id === 'tab-live' && models.known()) live.look().catch(e => note(e.message, true));
}

function turn(tab, step) {
  const seen = tabs.filter(t => !t.hidden), next = seen[(seen.indexOf(tab) + step + seen.length) % seen.length];
  show(next);
  next.focus();
}

for (const tab of tabs) {
  tab.addEventListener('click', () => show(tab));
  tab.addEventListener('keydown', e => {
    if (e.key === 'ArrowRight') turn(tab, 1);
    if (e.key === 'ArrowLeft') turn(tab, -1);
  });
}

// Only what the chosen model can do is offered; a model of embeddings has no chat.
function offer() {
  const can = { chat: models.can('completion'), complete: models.can('completion'), embed: models.can('embedding'), rerank: models.can('rerank') };
  for (const [name, is] of Object.entries(can)) $('tab-' + name).hidden = !is;
  $('no-template').hidden = models.chats();
  $('chat').hidden = !models.chats();
  $('climb').hidden = !can.complete;
  const shown = tabs.find(t => t.getAttribute('aria-selected') === 'true');
  if (shown.hidden || !models.chats() && shown.id === 'tab-chat') {
    const order = models.chats() ? ['chat'] : ['complete', 'embed', 'rerank', 'plan'];
    show($('tab-' + order.find(name => !$('tab-' + name).hidden)));
  }
}

// ---- what the server says of itself, again and again ----

async function look() {
  try {
    const status = await json('/status?' + models.query());
    showStatus(status);
    if ((!models.known() || status.plan && models.wasClosed()) && await models.load()) offer();
    $('state').classList.remove('bad');
  } catch (e) {
    if (e.status !== 503) { // 503: it is loading, and says so in its status
      $('state').textContent = e.status === 401 ? 'This server wants an API key: see Settings.' : e.message;
      $('state').classList.add('bad');
    }
  }
  setTimeout(look, document.hidden ? 5000 : 1000);
}

// Models come and go.
async function lookForModels() {
  try {
    if (models.known() && await models.load()) offer();
  } catch { /* said by look() */ }
  setTimeout(lookForModels, 15000);
}

// ---- keys for the whole page ----

document.addEventListener('keydown', e => {
  if (e.key === 'Escape') {
    if (chat.stop() || complete.stop()) e.preventDefault();
  } else if (e.altKey && !e.ctrlKey && e.code === 'KeyN') {
    e.preventDefault();
    show($('tab-chat'));
    chat.newChat();
  } else if (e.altKey && !e.ctrlKey && /^Digit[1-6]$/.test(e.code)) {
    const tab = tabs.filter(t => !t.hidden)[Number(e.code.at(-1)) - 1];
    if (tab) { e.preventDefault(); show(tab); tab.focus(); }
  }
});

settings.show($('fields'), name => { if (name === 'key') models.load().then(changed => { if (changed) offer(); }, () => {}); });
$('reset').addEventListener('click', () => settings.reset());
const wide = matchMedia('(min-width: 50rem)'); // room for the list of conversations beside the chat
wide.addEventListener('change', () => { $('side').open = wide.matches; });
$('side').open = wide.matches;
models.start(offer);
complete.start();
compare.start();
live.start();
timeline.start();
chat.start();
look();
lookForModels();
