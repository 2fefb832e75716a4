// complete.js -- going on from a text, for models with and without a chat template.
import { $, note, time } from './dom.js';
import { stream } from './api.js';
import { models } from './models.js';
import { settings } from './settings.js';
import { showTrace } from './timeline.js';

let running = null, before = null;

export function stop() {
  running?.abort();
  return running !== null;
}

async function complete() {
  const began = performance.now(), was = $('text').value;
  let cut = false;
  running = new AbortController();
  $('complete-go').textContent = 'Stop';
  note('');
  try {
    const body = { model: models.chosen(), prompt: was, max_tokens: 256, ...settings.fields({ chat: false }) };
    const end = await stream('/v1/completions', body, running.signal, chunk => {
      const choice = chunk.choices[0];
      if (!choice) return;
      before = was;
      $('text').value += choice.text;
      $('text').scrollTop = $('text').scrollHeight;
      cut ||= choice.finish_reason === 'length';
    });
    const s = (performance.now() - began) / 1000, n = end.usage?.completion_tokens || 0;
    note(`${n} tokens in ${time(s)}: ${(n / s).toFixed(0)} tokens/s.` + (cut ? ' Cut: the limit of tokens was reached. Complete goes on.' : ''));
    showTrace(end.id, true);
  } catch (e) {
    note(e.name === 'AbortError' ? 'Stopped.' : e.message, e.name !== 'AbortError');
  }
  running = null;
  $('complete-go').textContent = 'Complete';
}

export function start() {
  $('complete').addEventListener('submit', e => {
    e.preventDefault();
    if (running) stop(); else complete();
  });
  $('text').addEventListener('keydown', e => {
    if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) $('complete').requestSubmit();
  });
  $('undo').addEventListener('click', () => {
    if (before !== null && !running) $('text').value = before;
  });
}
