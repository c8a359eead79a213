// Puts the page together: the header, the dialogs, and what happens with each update.

// --- The theme: that of the system, or the reader's choice, which the browser keeps. ---

const THEME_KEY = 'reverb-theme';

function applyTheme(theme) {
  if (theme === 'light' || theme === 'dark') {
    document.documentElement.dataset.theme = theme;
  } else {
    delete document.documentElement.dataset.theme;
  }
  for (const button of document.querySelectorAll('[data-set-theme]')) {
    setAttribute(button, 'aria-pressed', String(button.dataset.setTheme === (theme ?? 'system')));
  }
}

function keptTheme() {
  try {
    return localStorage.getItem(THEME_KEY);
  } catch {
    return null;  // the browser forbids storage
  }
}

function chooseTheme(theme) {
  applyTheme(theme);
  try {
    if (theme === 'system') {
      localStorage.removeItem(THEME_KEY);
    } else {
      localStorage.setItem(THEME_KEY, theme);
    }
  } catch {
    // The choice lasts as long as the page.
  }
}

// --- The token. ---

class TokenDialog {
  constructor() {
    this.dialog = byId('token');
    this.input = byId('token-input');
    byId('token-form').addEventListener('submit', (event) => {
      event.preventDefault();
      const value = this.input.value.trim();
      // Headers hold visible ASCII only; anything else would fail before it is sent.
      if (!/^[\x21-\x7e]+$/.test(value)) {
        setText(byId('token-reason'), 'A token consists of letters, digits and punctuation, without spaces.');
        return;
      }
      token.set(value);
      this.input.value = '';
      this.dialog.close();
      stream.start();
    });
    byId('token-cancel').addEventListener('click', () => this.dialog.close());
  }

  ask(reason) {
    setText(byId('token-reason'), reason);
    if (!this.dialog.open) this.dialog.showModal();
    this.input.focus();
  }
}

// --- The state of the connection. ---

const banner = byId('banner');
const pill = byId('state');
let state = {kind: 'connecting'};
let lastUpdateAt = null;
let isPaused = false;

const isRetrying = ({kind}) => kind === 'disconnected' || kind === 'unready';

function setState(next) {
  if (isRetrying(next) && state.kind === 'live') rateHistory.breakLines();
  const isNew = next.kind !== state.kind;
  state = next;
  showState();
  if (isNew && next.kind === 'unauthorized') tokenDialog.ask(next.reason);
}

// Shows the state in the header, and anything that needs attention above the content.
function showState() {
  const words = {
    connecting: 'Connecting', live: isPaused ? 'Paused' : 'Live', disconnected: 'Disconnected', unready: 'Not ready',
    unauthorized: 'Token needed', forbidden: 'Not permitted',
  };
  setText(pill, words[state.kind]);
  setAttribute(pill, 'data-kind', state.kind === 'live' && isPaused ? 'paused' : state.kind);
  setClass(document.body, 'stale', lastUpdateAt !== null && state.kind !== 'live');
  setHidden(byId('retry'), !isRetrying(state));
  setHidden(byId('change-token'), state.kind !== 'unauthorized' && state.kind !== 'forbidden');
  setHidden(byId('forget-token'), !token.get());

  let text = '';
  if (isRetrying(state)) {
    text = state.reason + (lastUpdateAt === null ? '' : ' What you see is from the last update.');
  } else if (state.kind === 'unauthorized' || state.kind === 'forbidden') {
    text = state.reason;
  } else if (state.kind === 'live' && latest && latest.ready === false) {
    text = `The server is not ready: ${cleanText(latest.not_ready_reason, 400) || 'it does not say why'}`;
  }
  setHidden(banner, text === '');
  setText(byId('banner-text'), text);
  showTimes();
}

// The parts of the state that change with time alone.
function showTimes() {
  let text = '';
  if (isRetrying(state)) {
    const seconds = state.retryAt === null ? null : Math.max(0, Math.ceil((state.retryAt - Date.now()) / 1000));
    text = seconds === null ? '' : seconds > 0 ? `Next attempt in ${seconds} s.` : 'Connecting…';
    if (lastUpdateAt !== null) text += ` Last update ${durationText(Math.round((Date.now() - lastUpdateAt) / 1000))} ago.`;
  }
  setText(byId('banner-time'), text);
}

// --- Updates. ---

let latest = null;
let hasChosen = false;  // whether the reader, or the address, has chosen a table to open

const waitersOfLatest = () => latest?.waiters ?? [];

// Keeps the open table in the address, so that it can be bookmarked.
function rememberOpen(kind, other) {
  return (name) => {
    hasChosen = true;
    if (name !== null && other().open !== null) other().setOpen(null);
    const hash = name === null ? '' : `#${kind}=${encodeURIComponent(name)}`;
    window.history.replaceState(null, '', hash || window.location.pathname + window.location.search);
  };
}

const tables = new LiveTable({
  label: 'Tables', noun: 'table', columns: itemTableColumns, keyOf: (table) => table.name, searchText: (table) => table.name,
  makeDetail: (table) => new ItemTableDetail(table, waitersOfLatest), onOpen: rememberOpen('table', () => rowTables),
});
const rowTables = new LiveTable({
  label: 'Row tables', noun: 'row table', columns: rowTableColumns, keyOf: (table) => table.name,
  searchText: (table) => table.name, makeDetail: (table) => new RowTableDetail(table),
  onOpen: rememberOpen('rows', () => tables),
});
const clients = new LiveTable({
  label: 'Clients', noun: 'client', columns: clientColumns, keyOf: (client) => client.key,
  searchText: (client) => `${client.name} ${client.address} ${client.transport}`, most: 15,
});
const overview = new Overview();
const itemsDialog = new ItemsDialog();
const tokenDialog = new TokenDialog();

function openFromAddress() {
  const match = /^#(table|rows)=(.*)$/.exec(window.location.hash);
  if (!match) return;
  let name = match[2];
  try {
    name = decodeURIComponent(name);
  } catch {
    return;  // not an address that this page made
  }
  hasChosen = true;
  if (match[1] === 'table') tables.open = name;
  if (match[1] === 'rows') rowTables.open = name;
}

function receive(info) {
  info.tables ??= [];
  info.row_tables ??= [];
  info.waiters ??= [];
  rateHistory.add(info);
  latest = info;
  lastUpdateAt = Date.now();
  if (!isPaused) show(info);
  showState();
}

function show(info) {
  // Small servers show their first table at once.
  if (!hasChosen && info.tables.length > 0 && info.tables.length + info.row_tables.length <= 4) {
    const waiting = info.tables.find((table) => waitSummary(table) !== '');
    tables.open = (waiting ?? info.tables[0]).name;
    hasChosen = true;
  }
  const address = cleanText(info.address, 80);
  setText(byId('address'), address);
  document.title = `${address} – Reverb`;
  setText(byId('uptime'), `up ${durationText(Math.floor(info.uptime_seconds ?? info.now_seconds - info.started_seconds))}`);
  const build = info.build ?? {};
  setText(byId('version'), cleanText(info.server ?? '', 60) || `reverb ${cleanText(build.version, 30)}`);
  setAttribute(byId('version'), 'title', build.commit ? `commit ${cleanText(build.commit, 60)}` : '');
  overview.update(info);
  tables.update(info.tables);
  rowTables.update(info.row_tables);
  const listed = info.clients ?? [];
  clients.update(numberClients(listed));
  setText(byId('tables-count'), info.tables.length > 0 ? countText(info.tables.length) : '');
  setText(byId('row-tables-count'), countText(info.row_tables.length));
  const others = (info.clients_total ?? listed.length) - listed.length;
  setText(byId('clients-count'), others > 0 ? `${countText(listed.length)} of ${countText(info.clients_total)}`
                                            : countText(listed.length));
  setHidden(byId('row-tables'), info.row_tables.length === 0);
  setHidden(byId('tables'), info.tables.length === 0 && info.row_tables.length > 0);
  setHidden(byId('content'), false);
  setHidden(byId('placeholder'), true);
}

byId('tables').querySelector('.section-head').append(tables.search);
byId('tables').append(tables.node);
byId('row-tables').querySelector('.section-head').append(rowTables.search);
byId('row-tables').append(rowTables.node);
byId('clients').querySelector('.section-head').append(clients.search);
byId('clients').append(clients.node);

for (const button of document.querySelectorAll('[data-set-theme]')) {
  button.addEventListener('click', () => chooseTheme(button.dataset.setTheme));
}
applyTheme(keptTheme());

byId('pause').addEventListener('click', () => {
  isPaused = !isPaused;
  setAttribute(byId('pause'), 'aria-pressed', String(isPaused));
  if (!isPaused && latest) show(latest);
  showState();
});
byId('retry').addEventListener('click', () => stream.retryNow());
byId('change-token').addEventListener('click', () => tokenDialog.ask(state.reason ?? ''));
byId('forget-token').addEventListener('click', () => {
  token.set(null);
  stream.start();
});
document.addEventListener('keydown', (event) => {
  // Dialogs handle Escape themselves; a filter is cleared before a table is closed.
  if (event.key !== 'Escape' || document.querySelector('dialog[open]')) return;
  if (event.target.matches('input[type=search]') && event.target.value !== '') return;
  if (!tables.close()) rowTables.close();
});

openFromAddress();
const stream = new Stream({interval: 1, onInfo: receive, onState: setState});
showState();
stream.start();
setInterval(showTimes, 1000);
