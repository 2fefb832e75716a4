// compare.js -- models that make embeddings or scores instead of answers: how alike texts are, and which document suits a
// query best.
import { $, el, note } from './dom.js';
import { json } from './api.js';
import { models } from './models.js';

const lines = id => $(id).value.split('\n').map(l => l.trim()).filter(Boolean);

function cosine(a, b) {
  let ab = 0, aa = 0, bb = 0;
  a.forEach((v, i) => { ab += v * b[i]; aa += v * v; bb += b[i] * b[i]; });
  return aa && bb ? ab / Math.sqrt(aa * bb) : 0;
}

const cell = (tag, textContent, attr = {}) => el(tag, { textContent, attr });

// Every text with every other.
function drawAlike(texts, vectors) {
  const head = el('tr', {}, cell('th', 'Cosine similarity'), ...texts.map((_, i) => cell('th', i + 1, { scope: 'col' })));
  const rows = texts.map((text, i) => el('tr', {}, cell('th', `${i + 1}  ${text.slice(0, 60)}`, { scope: 'row' }), ...vectors.map((v, k) => {
    const alike = cosine(vectors[i], v), td = cell('td', alike.toFixed(3));
    td.style.setProperty('--share', Math.max(0, alike));
    return td;
  })));
  const first = [...vectors[0].slice(0, 8)].map(v => v.toFixed(3)).join(', ');
  $('alike').replaceChildren(el('table', {}, el('thead', {}, head), el('tbody', {}, ...rows)),
    el('p', { className: 'means', textContent: `${vectors[0].length} numbers each; the first text’s begin with ${first}` }));
}

async function embed() {
  const texts = lines('texts');
  if (!texts.length) return note('Write at least one text, each on a line of its own.', true);
  note('');
  try {
    const reply = await json('/v1/embeddings', { model: models.chosen(), input: texts });
    drawAlike(texts, reply.data.map(d => d.embedding));
    note(`${reply.usage.prompt_tokens} tokens.`);
  } catch (e) {
    note(e.message, true);
  }
}

async function rank() {
  const documents = lines('documents'), query = $('query').value.trim();
  if (!query || !documents.length) return note('Write a query, and documents, each on a line of its own.', true);
  note('');
  try {
    const { results } = await json('/v1/rerank', { model: models.chosen(), query, documents });
    $('ranks').replaceChildren(el('table', {}, el('thead', {}, el('tr', {}, cell('th', 'Document', { scope: 'col' }), cell('th', 'Score', { scope: 'col' }))),
      el('tbody', {}, ...results.map(r => el('tr', {}, cell('th', documents[r.index], { scope: 'row' }), cell('td', r.relevance_score.toFixed(4)))))));
  } catch (e) {
    note(e.message, true);
  }
}

export function start() {
  $('embed').addEventListener('submit', e => { e.preventDefault(); embed(); });
  $('rerank').addEventListener('submit', e => { e.preventDefault(); rank(); });
}
