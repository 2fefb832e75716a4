// timeline.js -- how the time of one answer was spent, as the server tells it in GET /trace/ID: waiting, prefill, and the
// steps of the engine while it was generated.
import { $, el, note, save, svg, time } from './dom.js';
import { json } from './api.js';

const WIDE = 1000, lanes = { 1: { y: 4, high: 26 }, 2: { y: 40, high: 26 } };
const kinds = { waiting: 'waiting', prefill: 'prefill', generation: 'generation', step: 'step', 'step with drafts': 'drafts' };

let last = null; // the trace that is shown

function words(spans) {
  const of = name => spans.find(s => s.name === name), steps = spans.filter(s => s.tid === 2), s = span => time(span.dur / 1e6);
  const prefill = of('prefill').args, out = of('generation').args, stepping = steps.reduce((sum, t) => sum + t.dur, 0) / 1e6;
  return [`Waited ${s(of('waiting'))}.`, `Prefill ${s(of('prefill'))}: ${prefill.prompt_tokens} tokens, ${prefill.cached_tokens} of them cached.`,
    `Generation ${s(of('generation'))}: ${out.output_tokens} tokens.`,
    `${steps.length} steps of the engine in this time took ${time(stepping)}, whoever they were for.`,
    out.drafted_tokens ? `Drafts: ${out.accepted_tokens} of ${out.drafted_tokens} tokens accepted.` : 'No drafts.'].join(' ');
}

function draw(trace) {
  const spans = trace.traceEvents.filter(e => e.ph === 'X');
  const whole = Math.max(...spans.filter(s => s.tid === 1).map(s => s.ts + s.dur), 1), x = us => WIDE * Math.min(1, us / whole);
  const picture = svg('svg', { viewBox: `0 0 ${WIDE} 90`, role: 'img', 'aria-label': words(spans), preserveAspectRatio: 'none' });
  for (const s of spans) {
    const lane = lanes[s.tid], wide = Math.max(x(s.ts + s.dur) - x(s.ts), 0.6);
    const box = svg('rect', { x: x(s.ts), y: lane.y, width: wide, height: lane.high, class: 'span ' + kinds[s.name] });
    box.append(svg('title'));
    box.firstChild.textContent = `${s.name}: ${time(s.dur / 1e6)}` + (s.args.rows ? `, ${s.args.rows} rows, ${s.args.running} running` : '') +
      (s.args.drafted_tokens ? `, ${s.args.accepted_tokens} of ${s.args.drafted_tokens} drafted tokens accepted` : '');
    picture.append(box);
  }
  $('trace').replaceChildren(picture, el('div', { className: 'legend' }, el('span', { textContent: '0' }),
    ...['waiting', 'prefill', 'generation', 'step', 'drafts'].map(k => el('span', { className: 'key ' + k, textContent: k === 'drafts' ? 'step with drafts' : k })),
    el('span', { textContent: time(whole / 1e6) })), el('p', { id: 'trace-words', textContent: words(spans) }));
  $('trace-save').disabled = false;
}

// Show the answer to the request of this id.  quiet: only draw it, for whoever looks there later.
export async function showTrace(id, quiet = false) {
  if (!id) return;
  try {
    last = { id, trace: await json('/trace/' + encodeURIComponent(id)) };
    draw(last.trace);
    if (quiet) return;
    $('tab-live').click();
    $('trace-of').scrollIntoView();
  } catch (e) {
    if (!quiet) note(e.status === 404 ? 'The server no longer knows this answer’s time: it keeps those of the latest 256.' : e.message, true);
  }
}

export function start() {
  $('trace-save').addEventListener('click', () => save(`${last.id}.trace.json`, 'application/json', JSON.stringify(last.trace)));
}
