// The page: chat and completion with streaming, gauges and the plan.  Whatever a model writes goes in as text, never as HTML.
'use strict';
const $ = id => document.getElementById(id);
const history = [];
let running = null; // the AbortController of what is being answered
let before = null;  // the text before the last completion

function note(text, bad) {
  $('note').textContent = text;
  $('note').className = bad ? 'bad' : '';
}

function headers() {
  const h = { 'Content-Type': 'application/json' };
  if ($('key').value) h.Authorization = 'Bearer ' + $('key').value;
  return h;
}

function sampling() {
  const o = { stream: true, stream_options: { include_usage: true } };
  for (const name of ['temperature', 'top_p', 'max_tokens', 'seed']) {
    const v = $(name).value;
    if (v !== '') o[name] = Number(v);
  }
  return o;
}

// POST and call got(document) for every event of the stream.  Resolves with the usage.
async function stream(path, body, signal, got) {
  const reply = await fetch(path, { method: 'POST', headers: headers(), body: JSON.stringify(body), signal });
  if (!reply.ok) {
    const e = await reply.json().catch(() => null);
    throw new Error(e && e.error ? e.error.message : 'The server said ' + reply.status + '.');
  }
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '', usage = null;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return usage;
    text += value;
    for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
      const data = text.slice(0, end).replace(/^data: /, '');
      if (data === '[DONE]') continue;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      usage = event.usage || usage;
      if (event.choices.length) got(event.choices[0]);
    }
  }
}

// One at a time; the button that started it stops it.
async function run(button, label, work) {
  if (running) return running.abort();
  const started = performance.now();
  running = new AbortController();
  button.textContent = 'Stop';
  note('');
  try {
    const usage = await work(running.signal);
    const s = (performance.now() - started) / 1000;
    if (usage) note(`${usage.prompt_tokens} prompt tokens (${usage.prompt_tokens_details.cached_tokens} cached), ` +
                    `${usage.completion_tokens} in ${s.toFixed(2)} s: ${(usage.completion_tokens / s).toFixed(0)} tokens/s`);
  } catch (e) {
    if (e.name === 'AbortError') note('Stopped.'); else note(e.message, true);
  } finally {
    running = null;
    button.textContent = label;
  }
}

function addTurn(role) {
  const turn = document.createElement('div'), who = document.createElement('span');
  const thought = document.createElement('div'), words = document.createElement('div');
  const empty = $('talk').querySelector('.empty');
  if (empty) empty.remove();
  turn.className = 'turn ' + role;
  who.className = 'who';
  who.textContent = role === 'user' ? 'you' : 'model';
  thought.className = 'thought';
  turn.append(who, thought, words);
  $('talk').append(turn);
  return { thought, words };
}

function follow() {
  $('talk').scrollTop = $('talk').scrollHeight;
}

function clearChat() {
  history.length = 0;
  const p = document.createElement('p');
  p.className = 'empty';
  p.textContent = 'Nothing has been said yet.';
  $('talk').replaceChildren(p);
}

$('chat').addEventListener('submit', e => {
  e.preventDefault();
  const button = e.target.querySelector('[type=submit]'), said = $('say').value;
  if (!running && !said.trim()) return;
  run(button, 'Send', async signal => {
    const messages = $('system').value ? [{ role: 'system', content: $('system').value }] : [];
    history.push({ role: 'user', content: said });
    addTurn('user').words.textContent = said;
    $('say').value = '';
    const turn = addTurn('assistant'), answer = { role: 'assistant', content: '' };
    follow();
    try {
      return await stream('/v1/chat/completions', { messages: messages.concat(history), ...sampling() }, signal, c => {
        const atEnd = $('talk').scrollHeight - $('talk').scrollTop - $('talk').clientHeight < 40;
        turn.thought.textContent += c.delta.reasoning_content || '';
        answer.content += c.delta.content || '';
        turn.words.textContent = answer.content;
        if (atEnd) follow();
      });
    } finally {
      history.push(answer);
    }
  });
});

$('say').addEventListener('keydown', e => {
  if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) {
    e.preventDefault();
    if (!running) $('chat').requestSubmit();
  }
});

$('clear').addEventListener('click', () => {
  if (running) running.abort();
  clearChat();
  $('say').focus();
});

$('complete').addEventListener('submit', e => {
  e.preventDefault();
  const button = e.target.querySelector('[type=submit]');
  run(button, 'Complete', async signal => {
    before = $('text').value;
    return await stream('/v1/completions', { prompt: before, ...sampling() }, signal, c => {
      $('text').value += c.text;
      $('text').scrollTop = $('text').scrollHeight;
    });
  });
});

$('text').addEventListener('keydown', e => {
  if (e.key === 'Enter' && e.ctrlKey) $('complete').requestSubmit();
});

$('undo').addEventListener('click', () => {
  if (before !== null && !running) $('text').value = before;
});

// Tabs, by mouse and by arrow keys.
const tabs = [...document.querySelectorAll('[role=tab]')];
function show(tab) {
  for (const t of tabs) {
    const is = t === tab;
    t.setAttribute('aria-selected', is);
    t.tabIndex = is ? 0 : -1;
    $(t.getAttribute('aria-controls')).hidden = !is;
  }
}
tabs.forEach((tab, i) => {
  tab.addEventListener('click', () => show(tab));
  tab.addEventListener('keydown', e => {
    const step = e.key === 'ArrowRight' ? 1 : e.key === 'ArrowLeft' ? -1 : 0;
    if (!step) return;
    const next = tabs[(i + step + tabs.length) % tabs.length];
    show(next);
    next.focus();
  });
});

const bytes = n => n >= 1e9 ? (n / 1e9).toFixed(2) + ' GB' : (n / 1e6).toFixed(1) + ' MB';
const percent = v => (100 * v).toFixed(0) + ' %';
const rows = [
  ['Model', s => s.model], ['Architecture', s => s.plan.architecture],
  ['Parameters', s => (s.plan.parameters / 1e6).toFixed(1) + ' million'], ['Weights', s => bytes(s.plan.weight_bytes)],
  ['Context', s => s.plan.context + ' tokens'], ['Sequences’ state', s => bytes(s.plan.state_bytes) + ' in ' + s.plan.kv_type],
  ['Each sequence keeps', s => `${s.plan.position_bytes} bytes a position, ${s.plan.sequence_bytes} besides`],
  ['Arithmetic', s => s.plan.recipe + ', ' + s.plan.isa + ', ' + s.plan.threads + ' threads'],
  ['Drafts', s => s.plan.draft === 'none' ? 'none' :
    `${s.plan.draft}: ${s.accepted_tokens} of ${s.drafted_tokens} tokens accepted`],
  ['Step, median', s => s.step_s ? '≤ ' + (1e3 * s.step_s).toFixed(2) + ' ms' : 'none yet'],
  ['First token, median', s => s.ttft_s ? '≤ ' + (1e3 * s.ttft_s).toFixed(0) + ' ms' : 'none yet'],
  ['Version', s => s.version],
];

const bounds = { weights: 'reading weights', kv: 'reading K/V', compute: 'arithmetic' };
const ms = s => (1e3 * s).toPrecision(3) + ' ms';

// What is expected of this model on this machine, as it was at the start: it does not change while the server runs.
function showForecast(plan) {
  const first = plan.forecast[0], list = [];
  if (!first || !$('forecast').hidden) return;
  $('forecast-of').textContent = `Predicted on this machine, after ${plan.forecast_context} tokens each; ` +
    `a prompt of so many, alone: first token after ${ms(first.ttft_s)}`;
  for (const f of plan.forecast) {
    const tr = document.createElement('tr');
    for (const text of [f.batch, bytes(f.weight_bytes), bytes(f.state_bytes), bytes(f.activation_bytes), ms(f.step_s), ms(f.limit_s),
                        f.tokens_per_s.toFixed(f.tokens_per_s < 100 ? 1 : 0), bounds[f.bound]]) {
      const td = document.createElement('td');
      td.textContent = text;
      tr.append(td);
    }
    list.push(tr);
  }
  $('forecast-rows').replaceChildren(...list);
  $('forecast').hidden = false;
}

function showStatus(s) {
  $('model').textContent = s.model + (s.state === 'ready' ? '' : ' (' + s.state + ')');
  $('g-rate').textContent = s.tokens_per_s.toFixed(s.tokens_per_s < 100 ? 1 : 0);
  $('g-batch').textContent = s.batch.toFixed(1);
  $('g-running').textContent = s.running;
  $('g-waiting').textContent = s.waiting;
  $('g-state').textContent = percent(s.state_used);
  $('m-state').value = s.state_used;
  $('g-roofline').textContent = percent(s.roofline);
  $('m-roofline').value = s.roofline;
  if (!s.plan) return;
  const list = [];
  for (const [name, value] of rows) {
    const dt = document.createElement('dt'), dd = document.createElement('dd');
    dt.textContent = name;
    dd.textContent = value(s);
    list.push(dt, dd);
  }
  $('plan').replaceChildren(...list);
  showForecast(s.plan);
}

async function look() {
  try {
    const reply = await fetch('/status', { headers: headers() });
    if (reply.ok) showStatus(await reply.json());
    else if (reply.status === 401) $('model').textContent = 'This server wants an API key: see Settings.';
  } catch (e) {
    $('model').textContent = 'The server does not answer.';
  }
  setTimeout(look, document.hidden ? 5000 : 1000);
}

clearChat();
look();
