// markdown.js -- what a model writes, as elements.  Two walls: HTML in the text is shown as text and never parsed, and
// what marked makes goes through DOMPurify, which lets only the elements of Markdown through.
import { marked } from '/vendor/marked.js';
import '/vendor/purify.js';
import { copy, el } from './dom.js';

const escape = text => text.replace(/[&<>"']/g, c => `&#${c.charCodeAt(0)};`);

marked.use({
  gfm: true,
  breaks: true,
  renderer: {
    html: token => token.block ? `<p>${escape(token.raw)}</p>` : escape(token.raw),
    image: token => `<a href="${escape(token.href)}">${escape(token.text || token.href)}</a>`, // nothing is loaded
    checkbox: token => token.checked ? '☑ ' : '☐ ',
  },
});

const allowed = {
  ALLOWED_TAGS: ['p', 'br', 'hr', 'em', 'strong', 'del', 'code', 'pre', 'a', 'blockquote', 'ul', 'ol', 'li', 'h1', 'h2', 'h3', 'h4',
    'h5', 'h6', 'table', 'thead', 'tbody', 'tr', 'th', 'td'],
  ALLOWED_ATTR: ['href', 'title', 'start', 'align', 'class'],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

// A block of code under a line with its language and a button that copies it.
function dress(pre) {
  const code = pre.querySelector('code') || pre;
  const language = /^language-(\S+)/.exec(code.className)?.[1] || 'text';
  const button = el('button', { type: 'button', className: 'small', textContent: 'Copy' });
  button.onclick = () => copy(code.textContent, button);
  pre.tabIndex = 0; // it scrolls
  const box = el('div', { className: 'code' }, el('div', { className: 'bar' }, el('span', { textContent: language }), button));
  pre.replaceWith(box);
  box.append(pre);
}

// A fragment for the document.
export function render(text) {
  const out = window.DOMPurify.sanitize(marked.parse(text), allowed);
  for (const a of out.querySelectorAll('a')) {
    a.target = '_blank';
    a.rel = 'noopener noreferrer';
  }
  for (const e of out.querySelectorAll('[class]')) if (e.tagName !== 'CODE') e.removeAttribute('class');
  out.querySelectorAll('pre').forEach(dress);
  return out;
}
