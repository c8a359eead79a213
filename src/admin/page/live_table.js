// A table whose rows are updated in place: sorting by column, a filter, and a detail below the row that is open.
//
//   columns     [{id, label, hint, isNumber, isOptional, sort(record), make() → {node, update(record)}}]; the first one holds
//               the name, optional ones are hidden while sort() is null for all records
//   keyOf       what identifies a record between updates
//   makeDetail  (record) → {node, update(record)} for the open row; none without it
//   searchText  what the filter looks at
class LiveTable {
  constructor({label, noun, columns, keyOf, searchText, makeDetail = null, onOpen = () => {}, most = 25}) {
    Object.assign(this, {noun, columns, keyOf, searchText, makeDetail, onOpen, most});
    this.rows = new Map();
    this.records = [];
    this.open = null;       // the key of the open row
    this.order = null;      // {column, isReversed}; null is the order of the server
    this.filter = '';
    this.showsAll = false;
    this.hasPointer = false;

    this.headings = columns.map((column) => this.makeHeading(column));
    this.body = element('tbody', {role: 'rowgroup'});
    const table = element('table', {class: 'live', role: 'table', 'aria-label': label},
        element('thead', {role: 'rowgroup'}, element('tr', {role: 'row'}, ...this.headings)), this.body);
    this.search = element('input', {
      type: 'search', placeholder: `Filter ${noun}s`, 'aria-label': `Filter ${noun}s by name`, spellcheck: 'false',
      autocomplete: 'off', oninput: () => this.setFilter(this.search.value),
    });
    this.none = element('p', {class: 'none', role: 'status'});
    this.more = element('button', {type: 'button', class: 'more', onclick: () => this.toggleAll()});
    this.node = element('div', {class: 'live-box'}, table, this.none, this.more);
    // Of many rows, only those near the screen are updated.
    this.rowOf = new WeakMap();
    this.observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const row = this.rowOf.get(entry.target);
        row.isNear = entry.isIntersecting;
        if (row.isNear) row.cells.forEach((cell) => cell.update(row.record));
      }
    }, {rootMargin: '400px'});
    // Rows do not move under the pointer.
    this.body.addEventListener('pointerenter', () => { this.hasPointer = true; });
    this.body.addEventListener('pointerleave', () => { this.hasPointer = false; });
    this.body.addEventListener('keydown', (event) => this.onKey(event));
  }

  makeHeading(column) {
    const button = element('button', {type: 'button', title: column.hint ?? null, onclick: () => this.sortBy(column)},
        column.label);
    const attributes = {role: 'columnheader', scope: 'col', class: column.isNumber ? 'number' : null, 'data-column': column.id};
    return element('th', attributes,
        column.sort ? button : element('span', {title: column.hint ?? null}, column.label));
  }

  sortBy(column) {
    const isSame = this.order?.column === column;
    // Names ascend first, numbers descend; the third click restores the order of the server.
    if (isSame && this.order.isReversed !== Boolean(column.isNumber)) {
      this.order = null;
    } else {
      this.order = {column, isReversed: isSame ? !this.order.isReversed : Boolean(column.isNumber)};
    }
    this.columns.forEach((each, i) => setAttribute(this.headings[i], 'aria-sort',
        this.order?.column === each ? (this.order.isReversed ? 'descending' : 'ascending') : null));
    this.arrange(true);
  }

  setFilter(text) {
    this.filter = text.trim().toLowerCase();
    this.arrange(true);
  }

  toggleAll() {
    this.showsAll = !this.showsAll;
    this.arrange(true);
  }

  update(records) {
    this.records = records;
    const present = new Set();
    for (const record of records) {
      const key = this.keyOf(record);
      present.add(key);
      if (!this.rows.has(key)) this.rows.set(key, this.makeRow(key));
      this.rows.get(key).record = record;
    }
    for (const key of this.rows.keys()) {
      if (present.has(key)) continue;
      this.observer.unobserve(this.rows.get(key).node);
      this.rows.delete(key);
    }
    this.arrange(false);
  }

  makeRow(key) {
    const cells = this.columns.map((column) => column.make());
    const row = {key, cells, record: null, detail: null, isNear: true};
    const nodes = cells.map((cell, i) => element('td', {
      role: 'cell', class: `cell-${this.columns[i].id}${this.columns[i].isNumber ? ' number' : ''}`,
      'data-label': this.columns[i].label,
    }, cell.node));
    row.node = element('tr', {role: 'row', class: this.makeDetail ? 'opens' : null}, ...nodes);
    if (this.makeDetail) {
      row.button = element('button', {type: 'button', class: 'opener', 'aria-expanded': 'false'});
      row.button.append(...nodes[0].childNodes);
      nodes[0].append(row.button);
      row.node.addEventListener('click', (event) => {
        // A click that selects text is not meant for the row.
        if (String(getSelection()) && !event.target.closest('button')) return;
        this.setOpen(this.open === key ? null : key);
      });
    }
    this.rowOf.set(row.node, row);
    this.observer.observe(row.node);
    return row;
  }

  // Opens the row with this key; null closes.
  setOpen(key) {
    this.open = key;
    this.onOpen(key);
    this.arrange(false);
  }

  // Returns the rows to show, in order.
  visibleRows() {
    let rows = this.records.map((record) => this.rows.get(this.keyOf(record)));
    if (this.filter) rows = rows.filter((row) => this.searchText(row.record).toLowerCase().includes(this.filter));
    if (this.order) {
      const {column, isReversed} = this.order;
      const keyed = rows.map((row) => [column.sort(row.record), row]);
      const compare = (a, b) => (typeof a === 'string' ? a.localeCompare(b, 'en', {numeric: true}) : (a ?? -1) - (b ?? -1));
      keyed.sort(([a], [b]) => (isReversed ? compare(b, a) : compare(a, b)));
      rows = keyed.map(([, row]) => row);
    }
    return rows;
  }

  arrange(isRequested) {
    let rows = this.visibleRows();
    const isHeld = !isRequested && this.order && (this.hasPointer || this.body.contains(document.activeElement));
    if (isHeld) {
      // Keeps the order that is on the screen, with new rows at the end.
      const places = new Map(Array.from(this.body.children, (node, i) => [node, i]));
      rows = rows.map((row, i) => [places.get(row.node) ?? 1e9 + i, row]).sort(([a], [b]) => a - b).map(([, row]) => row);
    }
    const total = rows.length;
    if (!this.showsAll && total > this.most) {
      const openRow = rows.slice(this.most).find((row) => row.key === this.open);
      rows = rows.slice(0, this.most);
      if (openRow) rows.push(openRow);
    }
    const nodes = [];
    for (const row of rows) {
      if (row.isNear || rows.length <= 50 || !row.node.isConnected) row.cells.forEach((cell) => cell.update(row.record));
      nodes.push(row.node);
      const isOpen = row.key === this.open;
      setClass(row.node, 'open', isOpen);
      if (row.button) setAttribute(row.button, 'aria-expanded', String(isOpen));
      if (isOpen && this.makeDetail) {
        if (!row.detail) row.detail = this.makeDetailRow(row);
        row.detail.content.update(row.record);
        nodes.push(row.detail.node);
      } else {
        row.detail = null;
      }
    }
    setChildren(this.body, nodes);
    this.columns.forEach((column, i) => {
      if (!column.isOptional) return;
      const isHidden = this.records.every((record) => (column.sort(record) ?? null) === null);
      setHidden(this.headings[i], isHidden);
      rows.forEach((row) => setHidden(row.node.children[i], isHidden));
    });
    setHidden(this.search, this.records.length <= 5);
    setHidden(this.none, total > 0);
    setText(this.none, this.records.length === 0 ? `No ${this.noun}s.` : `No ${this.noun} matches the filter.`);
    setHidden(this.more, total <= this.most);
    setText(this.more, this.showsAll ? `Show only ${this.most}` : `Show all ${countText(total)} ${this.noun}s`);
    setHidden(this.node.firstChild, this.records.length === 0);
  }

  makeDetailRow(row) {
    const content = this.makeDetail(row.record);
    const cell = element('td', {role: 'cell', colspan: String(this.columns.length)}, content.node);
    return {content, node: element('tr', {role: 'row', class: 'detail'}, cell)};
  }

  // The arrow keys move between the names.
  onKey(event) {
    if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
    if (!event.target.classList.contains('opener')) return;
    const buttons = Array.from(this.body.querySelectorAll('.opener'));
    const next = buttons[buttons.indexOf(event.target) + (event.key === 'ArrowDown' ? 1 : -1)];
    if (next) {
      event.preventDefault();
      next.focus();
    }
  }

  // Closes the open row and returns whether there was one. The focus returns to its name.
  close() {
    const row = this.rows.get(this.open);
    if (this.open === null) return false;
    this.setOpen(null);
    row?.button.focus();
    return true;
  }
}

// Cells of a LiveTable.

// A cell with one text: text(record), and a longer one on hover.
function textCell(text, title = null) {
  const node = element('span', {dir: 'auto'});
  return {
    node,
    update(record) {
      setText(node, text(record));
      if (title) setAttribute(node, 'title', title(record));
    },
  };
}

// A name with a line of small text below it.
function nameCell(name, note) {
  const nameNode = element('span', {class: 'name', dir: 'auto'});
  const noteNode = element('span', {class: 'note'});
  return {
    node: element('span', {class: 'name-box'}, nameNode, noteNode),
    update(record) {
      setText(nameNode, nameText(name(record)));
      setAttribute(nameNode, 'title', cleanText(name(record), 1000));
      setText(noteNode, cleanText(note(record)));
    },
  };
}

// A number of things beside their maximum, with a bar.
function fillCell(count, most) {
  const value = element('span', {class: 'value'});
  const of = element('span', {class: 'muted'});
  const bar = element('i');
  const box = element('span', {class: 'fill-bar', 'aria-hidden': 'true'}, bar);
  return {
    node: element('span', {class: 'fill-box'}, element('span', {}, value, ' ', of), box),
    update(record) {
      const [n, max] = [count(record), most(record)];
      const isBound = isKnown(max) && max < 1e15;
      setText(value, countText(n));
      setText(of, isBound ? `of ${countText(max)}` : '');
      setPercent(bar, 'width', isBound && max > 0 ? n / max : 0);
    },
  };
}

function sparkCell(line, className, series) {
  const spark = new Sparkline(line, className);
  return {
    node: spark.node,
    update(record) {
      spark.update(series(record), rateHistory.now, record.rates[line]);
    },
  };
}

// What waits, in words; a dash if nothing does.
function waitCell(summary) {
  const node = element('span', {dir: 'auto'});
  return {
    node,
    update(record) {
      const text = summary(record);
      setText(node, text || 'nothing');
      setClass(node, 'wait', text !== '' && hasLongWait(record));
      setClass(node, 'muted', text === '');
    },
  };
}
