// plan.js -- the gauges, and what is known and predicted of the model on this machine.
import { $, bytes, el, percent, time } from './dom.js';

const rows = [
  ['Model', s => s.model], ['Architecture', s => s.plan.architecture],
  ['Parameters', s => (s.plan.parameters / 1e6).toFixed(1) + ' million'], ['Weights', s => bytes(s.plan.weight_bytes)],
  ['Context', s => s.plan.context + ' tokens'], ['Sequences’ state', s => bytes(s.plan.state_bytes) + ' in ' + s.plan.kv_type],
  ['Each sequence keeps', s => `${s.plan.position_bytes} bytes a position, ${s.plan.sequence_bytes} besides`],
  ['Arithmetic', s => `${s.plan.recipe}, ${s.plan.isa}, ${s.plan.threads} threads`],
  ['Drafts', s => s.plan.draft === 'none' ? 'none' : `${s.plan.draft}: ${s.accepted_tokens} of ${s.drafted_tokens} tokens accepted`],
  ['Step, median', s => s.step_s ? '≤ ' + (1e3 * s.step_s).toFixed(2) + ' ms' : 'none yet'],
  ['First token, median', s => s.ttft_s ? '≤ ' + (1e3 * s.ttft_s).toFixed(0) + ' ms' : 'none yet'],
  ['Version', s => s.version],
];
const bounds = { weights: 'reading weights', kv: 'reading K/V', compute: 'arithmetic' };

// What is expected of this model on this machine, as it was when it was opened: it does not change while it is open.
function showForecast(plan) {
  const first = plan.forecast[0];
  if (!first || !$('forecast').hidden) return;
  $('forecast-of').textContent = `Predicted on this machine, after ${plan.forecast_context} tokens each; ` +
    `a prompt of so many, alone: first token after ${time(first.ttft_s)}`;
  $('forecast-rows').replaceChildren(...plan.forecast.map(f => el('tr', {}, ...[f.batch, bytes(f.weight_bytes), bytes(f.state_bytes),
    bytes(f.activation_bytes), time(f.step_s), time(f.limit_s), f.tokens_per_s.toFixed(f.tokens_per_s < 100 ? 1 : 0), bounds[f.bound]]
    .map(textContent => el('td', { textContent })))));
  $('forecast').hidden = false;
}

// A gauge without a value reads "–" and its bar is empty.
function gauge(name, text, share = null) {
  const meter = $('m-' + name);
  $('g-' + name).textContent = text ?? '–';
  if (meter) meter.value = share ?? 0;
}

// What the server does with the model, where that is not answering.
function stateText(s) {
  if (s.state === 'closed') return 'It is loaded when it is asked for.';
  if (s.state === 'loading') return s.step ? `Loading: ${s.step}, ${percent(s.progress)}` : 'Loading …';
  return s.state === 'ready' ? '' : s.state;
}

let shown = null; // the model of the plan that is shown

const rate = v => v.toFixed(v > 0 && v < 100 ? 1 : 0);

export function showStatus(s) {
  const measured = s.plan?.forecast.length > 0 && s.roofline > 0; // 0: no answer yet, or the machine was not measured
  $('state').textContent = stateText(s);
  gauge('rate', rate(s.tokens_per_s));
  gauge('prompt', rate(s.prompt_tokens_per_s));
  gauge('batch', rate(s.batch));
  gauge('running', s.running);
  gauge('waiting', s.waiting);
  gauge('state', s.plan ? percent(s.state_used) : null, s.state_used);
  gauge('roofline', measured ? percent(s.roofline) : null, s.roofline);
  if (s.model !== shown || !s.plan) {
    $('forecast').hidden = true;
    $('forecast-of').textContent = '';
    $('plan').replaceChildren();
    shown = s.model;
  }
  if (!s.plan) return;
  $('plan').replaceChildren(...rows.flatMap(([name, value]) => [el('dt', { textContent: name }), el('dd', { textContent: value(s) })]));
  showForecast(s.plan);
}
