// The list of row tables, and the detail of the open one.

// Returns a text for each kind of call that waits: "1 claim waits: …".
function rowWaits(table, most = 400) {
  return [['write', table.waiting_writes, table.write_reason], ['claim', table.waiting_claims, table.claim_reason],
          ['reservation', table.waiting_reservations, table.reservation_reason]]
      .filter(([, count]) => count > 0)
      .map(([kind, count, reason]) => `${counted(count, kind)} ${count === 1 ? 'waits' : 'wait'}: ${cleanText(reason, most)}`);
}

const rowTableColumns = [
  {
    id: 'name', label: 'Row table', sort: (table) => table.name,
    make: () => nameCell((table) => table.name, (table) => `version ${countText(table.version)}${
        table.settings.group_size > 0 ? `, groups of ${countText(table.settings.group_size)}` : ''}`),
  },
  {
    id: 'items', label: 'Rows', isNumber: true, sort: (table) => table.rows,
    make: () => fillCell((table) => table.rows, (table) => table.settings.max_rows),
  },
  {
    id: 'bytes', label: 'Data', isNumber: true, sort: (table) => table.bytes,
    make: () => textCell((table) => bytesText(table.bytes)),
  },
  {
    id: 'inserts', label: 'Created/s', isNumber: true, sort: (table) => table.rates[0],
    make: () => sparkCell(0, 'inserts', (table) => rateHistory.of(`rows ${table.name}`)),
  },
  {
    id: 'samples', label: 'Acked/s', isNumber: true, sort: (table) => table.rates[1], hint: 'Rows that consumers acknowledged',
    make: () => sparkCell(1, 'samples', (table) => rateHistory.of(`rows ${table.name}`)),
  },
  {
    id: 'states', label: 'States',
    make: () => textCell((table) => `${countText(table.open)} open, ${countText(leasedRows(table))} leased, ${
        countText(table.stale)} stale`),
  },
  {
    id: 'waiting', label: 'Waiting', sort: (table) => table.waiting_writes + table.waiting_claims + table.waiting_reservations,
    make: () => waitCell((table) => rowWaits(table).join('; ')),
  },
];

const leasedRows = (table) => table.consumers.reduce((sum, consumer) => sum + consumer.leased, 0);

// The rows of a table as one consumer sees them: ready for it, leased by it, open, stale, and others, which it has consumed or
// which lack a column that it needs.
class ConsumerBars {
  constructor() {
    this.node = element('div', {class: 'consumers'});
    this.bars = new Map();
  }

  update(table) {
    const nodes = [];
    for (const consumer of table.consumers) {
      // Every table has this consumer, for rows that were requeued.
      if (consumer.name === 'resume' && consumer.ready === 0 && consumer.leased === 0) continue;
      if (!this.bars.has(consumer.name)) {
        const bar = new StackedBar(countText);
        const consumed = element('span', {class: 'muted'});
        const head = element('div', {class: 'consumer-head'}, element('b', {dir: 'auto'}, nameText(consumer.name)), consumed);
        this.bars.set(consumer.name, {bar, consumed, node: element('div', {class: 'consumer'}, head, bar.node)});
      }
      const {bar, consumed, node} = this.bars.get(consumer.name);
      setText(consumed, `${countText(consumer.consumed)} consumed in total`);
      const known = consumer.ready + consumer.leased + table.open + table.stale;
      bar.update([
        {name: 'ready', value: consumer.ready, className: 'ready',
         title: 'Rows that the last claim of this consumer could take'},
        {name: 'leased', value: consumer.leased, className: 'leased', title: 'Claimed and not yet acknowledged'},
        {name: 'open', value: table.open, className: 'opened', title: 'Still being written'},
        {name: 'stale', value: table.stale, className: 'stale', title: 'Older than max_lag versions'},
        {name: 'other', value: Math.max(0, table.rows - known), className: 'other',
         title: 'Consumed already, in a group that is not complete, or without a column that the claim needs'},
      ], Math.max(table.rows, known));
      nodes.push(node);
    }
    setChildren(this.node, nodes);
  }
}

class RowTableDetail {
  constructor(table) {
    this.waits = new Lines('waiters');
    this.flow = element('p', {class: 'muted'}, 'Nothing waits.');
    this.consumers = new ConsumerBars();
    this.chart = new RateChart(['created', 'acknowledged']);
    this.counters = new TermList();
    this.leases = new TermList();
    this.settings = new TermList();
    const look = element('button', {type: 'button', class: 'primary', onclick: () => itemsDialog.show(table.name)},
        'Look at rows');
    this.node = element('div', {class: 'detail-grid'},
        element('div', {class: 'detail-head'}, element('h2', {dir: 'auto'}, nameText(table.name)), look),
        part('Rows by consumer', this.consumers.node),
        element('div', {class: 'part-column'}, part('Waiting', this.flow, this.waits.node), part('Rates', this.chart.node)),
        element('div', {class: 'part-row wide'},
            part('Since the start', this.counters.node), part('Claims', this.leases.node),
            part('Settings', this.settings.node)));
  }

  update(table) {
    const waits = rowWaits(table);
    setHidden(this.flow, waits.length > 0);
    if (waits.length > 0 && table.longest_wait_seconds > 0) {
      waits.push(`the longest for ${durationText(table.longest_wait_seconds)}`);
    }
    this.waits.update(waits);
    this.consumers.update(table);
    this.chart.update(rateHistory.of(`rows ${table.name}`), rateHistory.now, table.rates);
    const {settings} = table;
    this.counters.update([
      ['Created', countText(table.created)], ['Updated', countText(table.updated)],
      ['Consumed by all', countText(table.consumed)], ['Dropped as stale', countText(table.dropped_stale)],
      ['Deleted', countText(table.deleted)], ['Writes aborted', countText(table.refused)],
    ]);
    this.leases.update([
      ['Leases now', countText(table.leases)], ['Reserved now', countText(table.running)],
      ['Claimed', countText(table.claimed)], ['Acknowledged', countText(table.acknowledged)],
      ['Released', countText(table.released)], ['Expired', countText(table.expired)],
    ]);
    const {staleness} = settings;
    this.settings.update([
      ['Version', countText(table.version)], ['Max rows', boundText(settings.max_rows)],
      ['Groups', settings.group_size > 0
          ? `${countText(table.groups)} of ${counted(settings.group_size, 'row')}, ${
              countText(table.complete_groups)} complete` : 'none'],
      ['Order', cleanText(settings.order)],
      ['Max lag', staleness ? `${countText(staleness.max_lag)}, then ${cleanText(staleness.when_stale)}` : 'any'],
      ['Rows per version', staleness?.batch > 0 ? countText(staleness.batch) : null],
      ['Max reserved', settings.max_running > 0 ? countText(settings.max_running) : null],
      ['Consumed rows', settings.drop_consumed ? 'are dropped' : 'are kept'],
      ['State of the caller', table.state_bytes > 0 ? bytesText(table.state_bytes) : null],
    ]);
  }
}
