// The connection to the server: requests with the reader's token, and the stream of updates, which reconnects.

// A reply of the server that is not 200, or none at all (status 0).
class RequestError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const TOKEN_KEY = 'reverb-token';

// The token lives as long as the tab. A browser may forbid storage; then it lives as long as the page.
const token = {
  kept: null,
  get() {
    try {
      return sessionStorage.getItem(TOKEN_KEY) ?? this.kept;
    } catch {
      return this.kept;
    }
  },
  set(value) {
    this.kept = value || null;
    try {
      if (value) {
        sessionStorage.setItem(TOKEN_KEY, value);
      } else {
        sessionStorage.removeItem(TOKEN_KEY);
      }
    } catch {
      // It is kept above.
    }
  },
};

// Requests a path relative to the page, so that the page also works behind a proxy that adds a prefix.
async function request(path, signal) {
  const headers = {};
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  let response;
  try {
    response = await fetch(new URL(path, document.baseURI),
        {headers, signal, cache: 'no-store', credentials: 'omit', redirect: 'error'});
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new RequestError(0, 'The server does not answer.');
  }
  if (!response.ok) throw new RequestError(response.status, await errorText(response));
  return response;
}

async function errorText(response) {
  let text = '';
  try {
    text = await response.text();
    const parsed = JSON.parse(text);
    if (typeof parsed.error === 'string') text = parsed.error;
  } catch {
    // Not JSON, for example from a proxy: the text itself.
  }
  return cleanText(text, 600) || `The server answered with status ${response.status}.`;
}

// Parses JSON. Integers that a number cannot hold become strings with all their digits, where the browser gives the source.
function parseExactly(text) {
  return JSON.parse(text, (key, value, context) => {
    const isInexact = typeof value === 'number' && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? '');
    return isInexact ? context.source : value;
  });
}

async function requestJson(path, signal) {
  const response = await request(path, signal);
  try {
    return parseExactly(await response.text());
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new RequestError(0, 'The server’s answer was cut off.');
  }
}

// Splits a text/event-stream into events. Returns what belongs to an event that is not complete.
function takeEvents(text, onEvent) {
  const blocks = text.split(/\r\n\r\n|\n\n|\r\r/);
  const rest = blocks.pop();
  for (const block of blocks) {
    let name = 'message';
    const data = [];
    for (const line of block.split(/\r\n|\n|\r/)) {
      const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
      if (field === 'event') name = value;
      if (field === 'data') data.push(value);
    }
    if (data.length > 0) onEvent(name, data.join('\n'));
  }
  return rest;
}

const MIN_RETRY_SECONDS = 0.5;
const MAX_RETRY_SECONDS = 10;
// Hidden tabs disconnect after this time: each stream occupies one of the few connections that a browser opens to a server.
const HIDDEN_SECONDS = 60;

// Calls onInfo(object) for each update, and onState({kind, reason, retryAt}) when the state changes. Kinds: connecting, live,
// disconnected and unready (retries at retryAt, or when the page is visible again), unauthorized (401), forbidden (403).
class Stream {
  constructor({interval, onInfo, onState}) {
    this.interval = interval;
    this.onInfo = onInfo;
    this.onState = onState;
    this.attempts = 0;
    this.controller = null;
    this.retryTimer = null;
    this.watchdog = null;
    document.addEventListener('visibilitychange', () => this.onVisibility());
    window.addEventListener('online', () => this.retryNow());
  }

  // Connects, or connects again, for example with another token.
  start() {
    this.stop();
    this.controller = new AbortController();
    this.run(this.controller);
  }

  stop() {
    clearTimeout(this.retryTimer);
    clearTimeout(this.watchdog);
    this.retryTimer = null;
    this.controller?.abort();
    this.controller = null;
  }

  // Does not wait for the next attempt.
  retryNow() {
    if (this.retryTimer !== null) this.start();
  }

  async run(controller) {
    const isCurrent = () => this.controller === controller;
    if (this.attempts === 0) this.onState({kind: 'connecting'});
    let reason = 'The server closed the connection.';
    let kind = 'disconnected';
    try {
      this.expectData(controller);
      const response = await request(`api/v1/stream?interval=${this.interval}`, controller.signal);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const {done, value} = await reader.read();
        if (!isCurrent()) return;
        if (done) break;
        this.expectData(controller);
        rest = takeEvents(rest + value, (name, data) => {
          if (name !== 'info') return;
          const info = JSON.parse(data);
          this.attempts = 0;
          this.onState({kind: 'live'});
          this.onInfo(info);
        });
      }
    } catch (error) {
      if (!isCurrent()) return;
      if (error instanceof RequestError) {
        if (error.status === 401 || error.status === 403) {
          this.stop();
          this.onState({kind: error.status === 401 ? 'unauthorized' : 'forbidden', reason: error.message});
          return;
        }
        reason = error.message;
        // It answers that it cannot: it loads a checkpoint, or stops.
        if (error.status === 503) kind = 'unready';
      } else if (error.name === 'AbortError') {
        reason = 'The server has stopped sending updates.';
      } else if (!(error instanceof TypeError)) {
        // A TypeError is a connection that broke. Anything else is a defect of this page or of the data.
        reason = `The page could not show an update: ${cleanText(error.message)}`;
      }
    }
    if (isCurrent()) this.retryLater(kind, reason);
  }

  // Ends a connection on which nothing has arrived for long.
  expectData(controller) {
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => controller.abort(), 1000 * Math.max(8, 4 * this.interval));
  }

  retryLater(kind, reason) {
    this.stop();
    const most = Math.min(MIN_RETRY_SECONDS * 2 ** this.attempts, MAX_RETRY_SECONDS);
    const seconds = most * (0.75 + 0.25 * Math.random());  // so that many pages do not come at once
    ++this.attempts;
    this.retryTimer = setTimeout(() => this.start(), 1000 * seconds);
    this.onState({kind, reason, retryAt: Date.now() + 1000 * seconds});
  }

  onVisibility() {
    clearTimeout(this.hiddenTimer);
    if (!document.hidden) {
      if (this.isAsleep) {
        this.isAsleep = false;
        this.start();
      } else {
        this.retryNow();
      }
    } else {
      this.hiddenTimer = setTimeout(() => {
        if (this.controller === null && this.retryTimer === null) return;  // waits for a token
        this.stop();
        this.isAsleep = true;
        this.onState({kind: 'disconnected', reason: 'The page was in the background.', retryAt: null});
      }, 1000 * HIDDEN_SECONDS);
    }
  }
}
