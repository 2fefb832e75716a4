// store.js -- where conversations are kept: IndexedDB of this browser.  Without it (private windows of some browsers)
// they last as long as the page.

let db = null;

const done = request => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});
const talks = mode => db.transaction('talks', mode).objectStore('talks');

// All that are kept, the latest first.
export async function open() {
  try {
    const request = indexedDB.open('ridge', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('talks', { keyPath: 'id' });
    db = await done(request);
    return (await done(talks('readonly').getAll())).sort((a, b) => b.updated - a.updated);
  } catch {
    db = null;
    return [];
  }
}

export const put = async talk => { if (db) await done(talks('readwrite').put(structuredClone(talk))); };
export const remove = async id => { if (db) await done(talks('readwrite').delete(id)); };
export const keeps = () => db !== null;
