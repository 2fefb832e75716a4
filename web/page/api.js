// api.js -- talking with the server: one function for documents, one for streams.
import { settings } from './settings.js';

// What the server refused, or that it was not there.
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status; // 0: it did not answer
  }
}

async function ask(path, body, signal) {
  const headers = {}, key = settings.get('key');
  if (body) headers['Content-Type'] = 'application/json';
  if (key) headers.Authorization = 'Bearer ' + key;
  let reply;
  try {
    reply = await fetch(path, { method: body ? 'POST' : 'GET', headers, body: body && JSON.stringify(body), signal });
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new Refusal(0, 'The server does not answer.');
  }
  if (reply.ok) return reply;
  const e = await reply.json().catch(() => null);
  throw new Refusal(reply.status, e?.error?.message || `The server said ${reply.status}.`);
}

// GET without a body, POST with one.
export async function json(path, body = null, signal = undefined) {
  return (await ask(path, body, signal)).json();
}

// POST and call got(chunk) for every chunk of the stream.  Resolves at its end with the request's id, the usage and the
// timings.
export async function stream(path, body, signal, got) {
  const reply = await ask(path, { ...body, stream: true, stream_options: { include_usage: true } }, signal);
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  const end = { id: reply.headers.get('X-Request-Id'), usage: null, timings: null };
  for (let text = ''; ;) {
    const { value, done } = await reader.read();
    if (done) return end;
    text += value;
    for (let at; (at = text.indexOf('\n\n')) >= 0; text = text.slice(at + 2)) {
      const line = text.slice(0, at);
      if (!line.startsWith('data: ') || line === 'data: [DONE]') continue; // a comment only says that it goes on
      const chunk = JSON.parse(line.slice(6));
      if (chunk.error) throw new Refusal(200, chunk.error.message);
      end.usage = chunk.usage || end.usage;
      end.timings = chunk.timings || end.timings;
      got(chunk);
    }
  }
}
