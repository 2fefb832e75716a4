// dom.js -- making and finding elements.

export const $ = id => document.getElementById(id);

// An element with properties (onclick and the like too), attributes under `attr`, and children: elements or texts.
export function el(tag, props = {}, ...children) {
  const e = document.createElement(tag), { attr, ...rest } = props;
  Object.assign(e, rest);
  for (const [name, value] of Object.entries(attr || {})) e.setAttribute(name, value);
  e.append(...children.filter(c => c !== null && c !== undefined));
  return e;
}

// The same in SVG, where everything is an attribute.
export function svg(tag, attr = {}, ...children) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attr)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

// One line for the person: what happened.  action: { label, run } adds a button.
export function note(text, bad = false, action = null) {
  $('note').className = bad ? 'bad' : '';
  $('note').replaceChildren(text);
  if (action) $('note').append(' ', el('button', { type: 'button', className: 'small', textContent: action.label, onclick: action.run }));
}

export async function copy(text, button) {
  const was = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // no permission, or no secure context
    const area = el('textarea', { value: text });
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  button.textContent = 'Copied';
  setTimeout(() => { button.textContent = was; }, 1200);
}

// Hand a text to the person as a file.
export function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  el('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

export const bytes = n => n >= 1e9 ? (n / 1e9).toFixed(2) + ' GB' : n >= 1e6 ? (n / 1e6).toFixed(1) + ' MB' : (n / 1e3).toFixed(1) + ' kB';
export const time = s => s >= 1 ? s.toFixed(2) + ' s' : s >= 1e-3 ? (1e3 * s).toPrecision(3) + ' ms' : (1e6 * s).toPrecision(3) + ' µs';
// A share that is not nothing never reads as 0.
export const percent = v => (v === 0 || v >= 0.1 ? (100 * v).toFixed(0) : (100 * v).toPrecision(1)) + ' %';
// 1.2e11 -> "120 G"
export function big(n) {
  const at = n > 0 ? Math.min(4, Math.max(0, Math.floor(Math.log10(n) / 3 + 1e-9))) : 0;
  return Number((n / 1000 ** at).toPrecision(3)) + ' ' + ['', 'k', 'M', 'G', 'T'][at];
}
