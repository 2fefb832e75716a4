// live.js -- the live roofline: every step of the engine is a dot.  To the right: more operations for each byte that is
// read.  Upward: more operations a second.  No dot can be above the roof: memory's slope, then the flat peak of arithmetic.
import { $, big, el, note, percent, svg } from './dom.js';
import { json } from './api.js';
import { models } from './models.js';

const WIDE = 760, HIGH = 420, EDGE = { left: 64, right: 16, top: 16, bottom: 44 }, DOTS = 800, EVERY_MS = 500;
const sizes = [ // by rows of a step
  { from: 1, name: '1 row' }, { from: 2, name: '2 to 7' }, { from: 8, name: '8 to 31' }, { from: 32, name: '32 and more' },
];
const sizeOf = rows => sizes.findLastIndex(s => rows >= s.from);

let dots = [], next = 0, of = null, roof = { bytes_s: 0, ops_s: 0 }, climbing = null; // of: the model of the dots

// A logarithmic scale.
const scale = (least, most, from, to) => v => from + (to - from) * Math.log(v / least) / Math.log(most / least);
const extreme = (f, list, last) => list.reduce((a, b) => f(a, b), last);

function limits() {
  const ridge = roof.bytes_s ? roof.ops_s / roof.bytes_s : 1;
  return { x0: extreme(Math.min, dots.map(d => d.x), ridge / 4) / 2, x1: extreme(Math.max, dots.map(d => d.x), ridge * 4) * 2,
    y0: extreme(Math.min, dots.map(d => d.y), (roof.ops_s || 1e9) / 100) / 2, y1: extreme(Math.max, dots.map(d => d.y), roof.ops_s || 1e9) * 2, ridge };
}

function words(x, y, text, anchor, kind = '') {
  const t = svg('text', { x, y, 'text-anchor': anchor, class: kind });
  t.textContent = text;
  return t;
}

function drawAxes(to, sx, sy, l) {
  for (let e = Math.ceil(Math.log10(l.x0)); 10 ** e <= l.x1; e++)
    to.append(svg('line', { class: 'grid', x1: sx(10 ** e), x2: sx(10 ** e), y1: EDGE.top, y2: HIGH - EDGE.bottom }),
      words(sx(10 ** e), HIGH - EDGE.bottom + 16, String(Number((10 ** e).toPrecision(1))), 'middle'));
  for (let e = Math.ceil(Math.log10(l.y0)); 10 ** e <= l.y1; e++)
    to.append(svg('line', { class: 'grid', x1: EDGE.left, x2: WIDE - EDGE.right, y1: sy(10 ** e), y2: sy(10 ** e) }),
      words(EDGE.left - 6, sy(10 ** e) + 4, big(10 ** e), 'end'));
  to.append(words((EDGE.left + WIDE) / 2, HIGH - 8, 'operations per byte', 'middle'), words(4, 12, 'operations/s', 'start'));
}

function drawRoof(to, sx, sy, l) {
  if (!roof.bytes_s || !roof.ops_s) return;
  const from = Math.max(l.x0, l.y0 / roof.bytes_s);
  to.append(svg('polyline', { class: 'roof', points: [[from, from * roof.bytes_s], [l.ridge, roof.ops_s], [l.x1, roof.ops_s]]
    .map(([x, y]) => `${sx(x)},${sy(y)}`).join(' ') }),
  svg('circle', { class: 'ridge', cx: sx(l.ridge), cy: sy(roof.ops_s), r: 4 }),
  words(sx(l.ridge) - 8, sy(roof.ops_s) - 8, 'ridge', 'end'),
  words(WIDE - EDGE.right, sy(roof.ops_s) - 8, `arithmetic: ${big(roof.ops_s)} operations/s`, 'end'),
  words(EDGE.left + 8, EDGE.top + 28, `memory: ${big(roof.bytes_s)}B/s`, 'start'));
}

function draw() {
  const l = limits(), sx = scale(l.x0, l.x1, EDGE.left, WIDE - EDGE.right), sy = scale(l.y0, l.y1, HIGH - EDGE.bottom, EDGE.top);
  const label = `Roofline with ${dots.length} steps; the table below has their means.`;
  const picture = svg('svg', { viewBox: `0 0 ${WIDE} ${HIGH}`, role: 'img', 'aria-label': label });
  drawAxes(picture, sx, sy, l);
  drawRoof(picture, sx, sy, l);
  dots.forEach((d, i) => picture.append(svg('circle', { class: 'dot size' + sizeOf(d.rows), cx: sx(d.x).toFixed(1), cy: sy(d.y).toFixed(1), r: 3,
    opacity: (0.25 + 0.75 * (i + 1) / dots.length).toFixed(2) })));
  $('roofline').replaceChildren(picture);
}

const mean = (list, f) => list.reduce((sum, d) => sum + f(d), 0) / list.length;

function drawTable() {
  const groups = new Map();
  for (const d of dots) {
    const size = 2 ** Math.floor(Math.log2(d.rows));
    groups.set(size, [...groups.get(size) || [], d]);
  }
  $('roofline-rows').replaceChildren(...[...groups].sort(([a], [b]) => a - b).map(([, list]) => {
    const ops = mean(list, d => d.y), read = mean(list, d => d.y / d.x), share = mean(list, d => d.limit);
    const of = (v, most, text) => most ? `${text} (${percent(v / most)})` : text;
    return el('tr', {}, ...[mean(list, d => d.rows).toFixed(1), list.length, mean(list, d => d.x).toPrecision(3), of(read, roof.bytes_s, big(read) + 'B/s'),
      of(ops, roof.ops_s, big(ops) + '/s'), share ? percent(share) : '–'].map(t => el('td', { textContent: t })));
  }));
}

// The dot of a step.  Steps of embedding models and of prompts are steps like any other.
const dot = s => ({ x: s.ops / s.bytes, y: s.ops / s.took_s, rows: s.rows / s.steps, limit: s.limit_s / s.took_s });

function forget(model) {
  dots = [];
  next = 0;
  of = model;
  draw();
  drawTable();
}

export async function look() {
  const model = models.chosen();
  if (model !== of) forget(model);
  const reply = await json(`/steps?after=${next}&limit=${DOTS}&${models.query()}`);
  if (model !== of) return; // another one was chosen meanwhile
  if (reply.next < next) { // another server at the same address
    forget(model);
    return look();
  }
  next = reply.next;
  roof = { bytes_s: reply.bytes_per_s, ops_s: reply.ops_per_s };
  $('roofline-no').hidden = roof.bytes_s > 0 && roof.ops_s > 0;
  if (!reply.steps.length && $('roofline').firstChild) return;
  dots = dots.concat(reply.steps.filter(s => s.bytes > 0 && s.ops > 0 && s.took_s > 0).map(dot)).slice(-DOTS);
  draw();
  drawTable();
}

// Ask for 1, 2, 4 ... 64 answers at once.
async function climb() {
  climbing = new AbortController();
  $('climb').textContent = 'Stop';
  try {
    for (let n = 1; n <= 64; n *= 2) {
      note(`${n} answer${n > 1 ? 's' : ''} at once …`);
      await json('/v1/completions', { model: models.chosen(), prompt: 'Once upon a time', n, max_tokens: 48, ignore_eos: true, temperature: 1 }, climbing.signal);
      await look();
    }
    note('Done: from 1 to 64 answers at once.');
  } catch (e) {
    note(e.name === 'AbortError' ? 'Stopped.' : e.message, e.name !== 'AbortError');
  }
  climbing = null;
  $('climb').textContent = 'From 1 to 64 answers at once';
}

export function start() {
  $('roofline-legend').append(...sizes.map((s, i) => el('span', { className: 'key size' + i, textContent: s.name })));
  $('climb').addEventListener('click', () => { if (climbing) climbing.abort(); else climb(); });
  $('roofline-clear').addEventListener('click', () => { dots = []; draw(); drawTable(); });
  setInterval(() => { if (!document.hidden && !$('pane-live').hidden && models.known()) look().catch(() => {}); }, EVERY_MS);
}
