// A dialog with single items or rows of a table, page by page.

const ITEMS_PER_PAGE = 10;
const VALUES_PER_COLUMN = 24;

const isInteger = (dtype) => /^u?int\d+$/.test(dtype);

// Draws the last frame of a column on a canvas of its own size; the style sheet enlarges small ones.
function imageCanvas(image) {
  const {width, height, channels} = image;
  const bytes = Uint8Array.from(atob(image.data), (character) => character.charCodeAt(0));
  if (!(width > 0 && height > 0 && [1, 3, 4].includes(channels) && bytes.length === width * height * channels)) return null;
  const pixels = new Uint8ClampedArray(4 * width * height);
  for (let i = 0; i < width * height; ++i) {
    const from = i * channels;
    pixels[4 * i] = bytes[from];
    pixels[4 * i + 1] = bytes[channels === 1 ? from : from + 1];
    pixels[4 * i + 2] = bytes[channels === 1 ? from : from + 2];
    pixels[4 * i + 3] = channels === 4 ? bytes[from + 3] : 255;
  }
  const canvas = element('canvas', {width: String(width), height: String(height), role: 'img', class: 'frame'});
  canvas.getContext('2d').putImageData(new ImageData(pixels, width, height), 0, 0);
  // Small images grow by a whole factor, to about 160 pixels.
  const factor = Math.max(1, Math.floor(160 / Math.max(width, height)));
  canvas.style.width = `${width * factor}px`;
  return canvas;
}

function valueText(value) {
  if (typeof value === 'number') return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(7)));
  return cleanText(value, 80);
}

// Shows a column: its name, dtype and shape, and a picture, a number of tokens, or numbers.
function columnView(column) {
  const shape = Array.isArray(column.shape) ? column.shape : [];
  const size = shape.reduce((product, dim) => product * dim, 1);
  const values = column.first_values ?? [];
  const content = element('div', {class: 'content'});
  let canvas = null;
  try {
    canvas = column.image ? imageCanvas(column.image) : null;
  } catch {
    // Not base64: the numbers are shown.
  }
  if (canvas) {
    const {width, height, channels} = column.image;
    const frames = size / (width * height * channels);
    const caption = `${width} × ${height}, ${channels === 1 ? 'grey' : channels === 3 ? 'RGB' : 'RGBA'}${
        frames > 1 ? `; the last of ${countText(frames)} frames` : ''}`;
    canvas.setAttribute('aria-label', `${cleanText(column.name, 80)}: ${caption}`);
    content.append(element('figure', {class: 'picture'}, canvas, element('figcaption', {class: 'muted'}, caption)));
  } else {
    // A sequence of integers, such as tokens; an item of one step has a first dimension of 1.
    const dims = shape.length > 1 && shape[0] === 1 ? shape.slice(1) : shape;
    if (isInteger(column.dtype) && dims.length === 1 && dims[0] > 1) content.append(chip(counted(dims[0], 'value')));
    const text = values.map(valueText).join(column.dtype === 'string' ? ' · ' : ' ');
    content.append(element('span', {class: 'numbers', dir: 'auto'}, text || (size === 0 ? 'empty' : UNKNOWN)));
    const left = size - values.length;
    if (left > 0) content.append(element('span', {class: 'muted'}, ` … ${countText(left)} more`));
  }
  return element('div', {class: 'column'},
      element('div', {class: 'column-name'}, element('b', {dir: 'auto'}, nameText(column.name, 80)),
          element('span', {class: 'muted'}, `${cleanText(column.dtype, 20)}[${shape.join(', ')}]`)), content);
}

function chip(text, className = '') {
  return element('span', {class: `chip ${className}`, dir: 'auto'}, text);
}

function itemView(item, kind) {
  const head = element('div', {class: 'item-head'}, element('b', {class: 'item-key', dir: 'auto'}, cleanText(item.key, 300)));
  if (kind === 'rows') {
    if (item.group !== null && item.group !== undefined) head.append(chip(`group ${cleanText(item.group, 80)}`));
    head.append(chip(`version ${countText(item.version)}`));
    for (const state of ['open', 'requeued', 'stale']) if (item[state]) head.append(chip(state, 'state'));
    for (const consumer of item.leased_by ?? []) head.append(chip(`leased by ${cleanText(consumer, 60)}`, 'state'));
    for (const consumer of item.consumed_by ?? []) head.append(chip(`consumed by ${cleanText(consumer, 60)}`));
    for (const [name, value] of Object.entries(item.tags ?? {}).slice(0, 40)) {
      head.append(chip(`${cleanText(name, 60)} = ${valueText(value)}`, 'tag'));
    }
  } else {
    head.append(chip(`priority ${numberText(item.priority)}`), chip(`sampled ${counted(item.times_sampled, 'time')}`),
        chip(`age ${durationText(item.age_seconds)}`));
  }
  const columns = item.columns ?? [];
  const most = 60;
  return element('li', {class: 'item'}, head, ...columns.slice(0, most).map(columnView),
      columns.length > most ? element('p', {class: 'muted'}, `and ${counted(columns.length - most, 'other column')}`) : null);
}

class ItemsDialog {
  constructor() {
    this.dialog = byId('items');
    this.list = byId('items-list');
    this.status = byId('items-status');
    this.previous = byId('items-previous');
    this.next = byId('items-next');
    this.controller = null;
    byId('items-close').addEventListener('click', () => this.dialog.close());
    byId('items-reload').addEventListener('click', () => this.load());
    this.previous.addEventListener('click', () => this.move(-1));
    this.next.addEventListener('click', () => this.move(1));
    this.dialog.addEventListener('close', () => {
      this.controller?.abort();
      this.list.replaceChildren();
    });
    // A click beside the dialog closes it.
    this.dialog.addEventListener('click', (event) => {
      if (event.target === this.dialog) this.dialog.close();
    });
  }

  show(table) {
    this.table = table;
    this.starts = [null];  // the keys after which the pages begin, up to the next one
    this.page = 0;
    setText(byId('items-title'), nameText(table));
    this.dialog.showModal();
    this.load();
  }

  move(distance) {
    this.page += distance;
    this.load();
  }

  async load() {
    this.controller?.abort();
    const controller = new AbortController();
    this.controller = controller;
    this.previous.disabled = true;
    this.next.disabled = true;
    setText(this.status, 'Loading…');
    const after = this.starts[this.page];
    const query = new URLSearchParams({limit: ITEMS_PER_PAGE, values: VALUES_PER_COLUMN, images: 1});
    if (after !== null) query.set('after', after);
    try {
      const reply = await requestJson(`api/v1/tables/${encodeURIComponent(this.table)}/items?${query}`, controller.signal);
      if (this.controller === controller) this.fill(reply);
    } catch (error) {
      if (controller.signal.aborted) return;
      this.list.replaceChildren();
      setText(this.status, error instanceof RequestError ? error.message
                                                         : `The items could not be shown: ${cleanText(error.message)}`);
      this.previous.disabled = this.page === 0;
      if (error.status === 401) tokenDialog.ask(error.message);
    }
  }

  fill(reply) {
    const {items, next, total, kind} = reply;
    this.list.replaceChildren(...items.map((item) => itemView(item, kind)));
    this.list.scrollTop = 0;
    this.starts.length = this.page + 1;
    if (next !== null && next !== undefined) this.starts.push(next);
    const first = this.page * ITEMS_PER_PAGE + 1;
    const noun = kind === 'rows' ? 'row' : 'item';
    const none = this.page === 0 ? `The table has no ${noun}s.` : `There are no further ${noun}s.`;
    setText(this.status, items.length === 0 ? none
        : `${countText(first)} to ${countText(first + items.length - 1)} of ${counted(total, noun)}`);
    this.previous.disabled = this.page === 0;
    this.next.disabled = this.starts.length <= this.page + 1;
  }
}
