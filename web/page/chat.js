// chat.js -- the chat: conversations at the side, their messages, and the one answer that is being written.
import { $, copy, el, note, percent, time } from './dom.js';
import { Refusal, stream } from './api.js';
import { models } from './models.js';
import { render } from './markdown.js';
import { settings } from './settings.js';
import * as store from './store.js';
import { add, isEmpty, keep, messagesFor, newAnswer, newTalk, openCalls, touch } from './talk.js';
import { showTrace } from './timeline.js';

let talks = [], talk = newTalk();
let running = null; // { abort, talk, answer } of what is being answered
let drawing = false;

// ---- the list of conversations ----

function drawList() {
  $('talks').replaceChildren(...talks.map(t => el('li', {},
    el('button', { type: 'button', className: 'talk', textContent: t.title, title: t.title, onclick: () => choose(t),
      ondblclick: e => rename(t, e.target.parentElement), attr: t === talk ? { 'aria-current': 'true' } : {},
      onkeydown: e => {
        if (e.key === 'F2') rename(t, e.target.parentElement);
        else if (e.key === 'Delete') drop(t);
        else return;
        e.preventDefault();
      } }),
    el('button', { type: 'button', className: 'small', textContent: '✎', title: 'Rename (F2)', attr: { 'aria-label': 'Rename ' + t.title },
      onclick: e => rename(t, e.target.parentElement) }),
    el('button', { type: 'button', className: 'small', textContent: '✕', title: 'Delete (Delete)', attr: { 'aria-label': 'Delete ' + t.title },
      onclick: () => drop(t) }))));
}

async function saveTalk(t) {
  touch(t);
  if (!talks.includes(t)) talks.unshift(t);
  talks.sort((a, b) => b.updated - a.updated);
  drawList();
  try {
    await store.put(t);
  } catch {
    note('The browser could not keep this conversation.', true);
  }
}

function choose(t) {
  talk = t;
  drawList();
  drawTalk();
  $('side').open = $('side').open && matchMedia('(min-width: 50rem)').matches;
  $('say').focus();
}

function rename(t, item) {
  const input = el('input', { value: t.title, attr: { 'aria-label': 'New title' } });
  const end = ok => {
    if (ok && input.value.trim()) {
      t.title = input.value.trim();
      t.named = true;
      store.put(t);
    }
    input.onblur = null;
    drawList();
  };
  input.onblur = () => end(true);
  input.onkeydown = e => { if (e.key === 'Enter' || e.key === 'Escape') { e.stopPropagation(); end(e.key === 'Enter'); } };
  item.replaceChildren(input);
  input.focus();
  input.select();
}

function drop(t) {
  if (running?.talk === t) running.abort.abort();
  talks = talks.filter(other => other !== t);
  store.remove(t.id);
  if (t === talk) choose(talks[0] || newTalk()); else drawList();
  note(`“${t.title}” is deleted.`, false, { label: 'Undo', run: () => { talks.push(t); saveTalk(t).then(() => choose(t)); note(''); } });
}

export function newChat() {
  choose(newTalk());
}

// ---- messages ----

const button = (label, onclick) => el('button', { type: 'button', className: 'small', textContent: label, onclick });

function drawReasoning(m, open) {
  return m.reasoning ? el('details', { className: 'thought', open },
    el('summary', { textContent: m.content ? 'Reasoning' : 'Thinking …' }), el('div', { textContent: m.reasoning })) : null;
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

// A call of a tool; the result is typed by the person, as long as there is none.
function drawCall(call, open) {
  const box = el('details', { className: 'call', open: true },
    el('summary', {}, 'Calls ', el('code', { textContent: call.function.name })),
    el('pre', { textContent: pretty(call.function.arguments), tabIndex: 0 }));
  if (open) box.append(el('label', {}, 'Result of ' + call.function.name, el('textarea', { rows: 2, className: 'result', attr: { 'data-call': call.id } })));
  return box;
}

function drawCut(m, last) {
  if (!m.cut) return null;
  const why = m.cut === 'length' ? 'Cut: the limit of tokens was reached.' : m.cut === 'stopped' ? 'Stopped before its end.' : 'Broken off: ' + m.cut;
  return el('p', { className: 'cut' }, why, ' ', last && !m.tool_calls.length ? button('Continue', goOn) : null);
}

function drawFigures(m) {
  const f = m.figures;
  if (!f) return null;
  const cached = f.cached ? ` (${f.cached} cached)` : '';
  const drafts = f.drafted ? `, ${percent(f.accepted / f.drafted)} of drafts accepted` : '';
  const rate = f.s > 0 ? ` in ${time(f.s)}: ${(f.output / f.s).toFixed(0)} tokens/s` : '';
  return el('span', { className: 'figures', textContent: `${f.prompt} prompt tokens${cached}, ${f.output}${rate}${drafts}` });
}

function drawButtons(m, i, last) {
  const bar = el('div', { className: 'tools' }, button('Copy', e => copy(m.content, e.target)));
  if (m.role !== 'tool') bar.append(button('Edit', () => edit(i)));
  if (m.role === 'assistant' && last) bar.append(button('Regenerate', regenerate));
  if (m.request) bar.append(button('Time', () => showTrace(m.request)));
  const figures = drawFigures(m);
  if (figures) bar.append(figures);
  return bar;
}

const who = { user: 'you', assistant: 'model', tool: 'result of the call' };

function drawMessage(m, i) {
  const last = i === talk.messages.length - 1, writing = running?.answer === m, open = new Set(writing ? [] : openCalls(talk));
  const turn = el('article', { className: 'turn ' + m.role, attr: { 'aria-label': who[m.role], 'aria-busy': writing } });
  turn.append(el('span', { className: 'who', textContent: who[m.role] }));
  if (m.role === 'assistant') {
    turn.append(...[drawReasoning(m, writing && !m.content), el('div', { className: 'words' }, render(m.content)),
      ...m.tool_calls.map(c => drawCall(c, open.has(c)))].filter(Boolean));
    if (open.size && m.tool_calls.some(c => open.has(c))) turn.append(button('Send results', sendResults));
    const cut = drawCut(m, last);
    if (cut) turn.append(cut);
  } else {
    turn.append(el('div', { className: 'words plain', textContent: m.content }));
  }
  if (!writing) turn.append(drawButtons(m, i, last));
  return turn;
}

function drawTalk() {
  const list = talk.messages.map(drawMessage);
  if (!list.length) list.push(el('p', { className: 'empty', textContent: 'Nothing has been said yet.' }));
  $('talk').replaceChildren(...list);
  $('talk').scrollTop = $('talk').scrollHeight;
  drawSend();
}

function drawSend() {
  $('send').textContent = running ? 'Stop' : 'Send';
}

// Draw the answer that is being written, at most once a frame; longer ones more seldom.
function drawAnswer() {
  if (drawing) return;
  drawing = true;
  setTimeout(() => requestAnimationFrame(() => {
    drawing = false;
    if (!running || running.talk !== talk) return;
    const box = $('talk'), at = talk.messages.indexOf(running.answer), old = box.children[at];
    const follow = box.scrollHeight - box.scrollTop - box.clientHeight < 60, folded = old?.querySelector('.thought')?.open === false;
    const turn = drawMessage(running.answer, at);
    if (folded && turn.querySelector('.thought')) turn.querySelector('.thought').open = false;
    if (old) old.replaceWith(turn); else box.append(turn);
    if (follow) box.scrollTop = box.scrollHeight;
  }), running?.answer.content.length > 20000 ? 250 : 0);
}

// ---- asking ----

function figuresOf(end, seconds) {
  const u = end.usage, t = end.timings;
  return u && { prompt: u.prompt_tokens, cached: u.prompt_tokens_details?.cached_tokens || 0, output: u.completion_tokens, s: seconds,
    drafted: t?.draft_n || 0, accepted: t?.draft_n_accepted || 0 };
}

// Ask for an answer to the talk; `answer` is the message that it is added to: a new one, or one that goes on.  If nothing
// came, the talk is left as `before` has it, and restore() gives back what the person typed.
async function ask(answer, before, restore, extra = {}) {
  const mine = talk, began = performance.now(), had = answer.content.length;
  const body = { model: models.chosen(), messages: messagesFor(mine, settings.get('system')), ...extra };
  let problem = null, end = null;
  if (mine.messages.at(-1) !== answer) mine.messages.push(answer);
  running = { abort: new AbortController(), talk: mine, answer };
  answer.cut = '';
  note('');
  drawTalk();
  try {
    const tools = settings.json('tools');
    Object.assign(body, settings.fields({ chat: true }), tools ? { tools } : {});
    end = await stream('/v1/chat/completions', body, running.abort.signal, chunk => {
      if (chunk.choices[0]) add(answer, chunk.choices[0]);
      drawAnswer();
    });
  } catch (e) {
    problem = e;
  }
  running = null;
  const stopped = problem?.name === 'AbortError', nothing = isEmpty(answer) || answer.content.length === had && had > 0;
  if (problem && nothing) {
    mine.messages = before;
    restore();
  } else {
    if (problem) answer.cut = stopped ? 'stopped' : problem.message;
    if (end) Object.assign(answer, { request: end.id, figures: figuresOf(end, (performance.now() - began) / 1000) });
    if (talks.includes(mine) || !before.length) await saveTalk(mine);
  }
  if (mine === talk) drawTalk(); else drawSend();
  tell(problem, answer);
  if (end) showTrace(end.id, true);
}

function tell(problem, answer) {
  if (problem?.name === 'AbortError') note('Stopped.');
  else if (problem) note(problem.message, true);
  else note(answer.cut === 'length' ? 'The answer was cut: the limit of tokens was reached.' : 'The answer is there.');
  if (problem instanceof Refusal && problem.status === 401) { $('settings').open = true; $('key').focus(); }
}

function send(text) {
  const before = keep(talk);
  talk.messages.push({ role: 'user', content: text });
  $('say').value = '';
  ask(newAnswer(), before, () => { $('say').value ||= text; });
}

function regenerate() {
  const before = keep(talk);
  if (running) return;
  talk.messages.pop();
  ask(newAnswer(), before, () => {});
}

// Let the model go on with its cut answer.
function goOn() {
  const before = keep(talk);
  if (running) return;
  ask(talk.messages.at(-1), before, () => {}, { continue_final_message: true, add_generation_prompt: false });
}

function sendResults() {
  const before = keep(talk), fields = [...$('talk').querySelectorAll('.result')];
  if (running) return;
  for (const f of fields) talk.messages.push({ role: 'tool', tool_call_id: f.dataset.call, content: f.value });
  ask(newAnswer(), before, () => {});
}

// Change a message.  The person's is then asked again, and what came after it goes; the model's is only changed.
function edit(i) {
  const m = talk.messages[i], turn = $('talk').children[i], mine = m.role === 'user';
  if (running) return;
  const area = el('textarea', { value: m.content, rows: Math.min(12, m.content.split('\n').length + 1), attr: { 'aria-label': 'Message' } });
  const finish = () => {
    const before = keep(talk);
    if (area.value === m.content && !mine) return drawTalk();
    m.content = area.value;
    if (!mine) return saveTalk(talk).then(drawTalk);
    talk.messages.length = i + 1;
    ask(newAnswer(), before, () => {});
  };
  area.onkeydown = e => {
    if (e.key === 'Escape') { e.stopPropagation(); drawTalk(); }
    if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) finish();
  };
  turn.replaceChildren(area, el('div', { className: 'buttons' },
    el('button', { type: 'button', textContent: mine ? 'Send again' : 'Keep', onclick: finish }),
    el('button', { type: 'button', className: 'quiet', textContent: 'Cancel', onclick: drawTalk })));
  area.focus();
}

// ---- start ----

export function stop() {
  running?.abort.abort();
  return running !== null;
}

export async function start() {
  $('chat').addEventListener('submit', e => {
    const text = $('say').value;
    e.preventDefault();
    if (running) stop(); else if (text.trim()) send(text);
  });
  $('say').addEventListener('keydown', e => {
    if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) {
      e.preventDefault();
      if (!running) $('chat').requestSubmit();
    } else if (e.key === 'ArrowUp' && !$('say').value && !running) {
      const i = talk.messages.findLastIndex(m => m.role === 'user');
      if (i >= 0) { e.preventDefault(); edit(i); }
    }
  });
  $('new').addEventListener('click', newChat);
  talks = talks.concat(await store.open()); // something may have been said already
  if (talks.length && !talk.messages.length) talk = talks[0];
  drawList();
  drawTalk();
  if (!store.keeps()) note('This browser keeps no conversations: they are lost when the page is closed.');
}
