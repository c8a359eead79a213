// The list of item tables, and the detail of the open one.

const rateHistory = new History();

const itemTableColumns = [
  {
    id: 'name', label: 'Table', sort: (table) => table.name,
    make: () => nameCell((table) => table.name,
        (table) => `${table.sampler} → ${table.remover}${table.closed ? ', closed' : ''}`),
  },
  {
    id: 'items', label: 'Items', isNumber: true, sort: (table) => table.size,
    make: () => fillCell((table) => table.size, (table) => table.max_size),
  },
  {
    id: 'bytes', label: 'Data', isNumber: true, sort: (table) => table.bytes,
    hint: 'Bytes of the chunks that items refer to; a chunk counts once per item',
    make: () => textCell((table) => bytesText(table.bytes)),
  },
  {
    id: 'inserts', label: 'Inserts/s', isNumber: true, sort: (table) => table.rates[0],
    make: () => sparkCell(0, 'inserts', (table) => rateHistory.of(`table ${table.name}`)),
  },
  {
    id: 'samples', label: 'Samples/s', isNumber: true, sort: (table) => table.rates[1],
    make: () => sparkCell(1, 'samples', (table) => rateHistory.of(`table ${table.name}`)),
  },
  {
    id: 'limiter', label: 'Limiter', hint: 'The cursor between its bounds, or the items towards the minimum size',
    make: () => {
      const track = new LimiterTrack('small');
      return {node: track.node, update: (table) => track.update(table)};
    },
  },
  {
    id: 'waiting', label: 'Waiting', sort: (table) => table.waiting_inserts + table.waiting_samples, isNumber: false,
    make: () => waitCell(waitSummary),
  },
];

const part = (title, ...children) => element('section', {class: 'part'}, element('h3', {}, title), ...children);

// Everything about one table of items.
class ItemTableDetail {
  constructor(table, getWaiters) {
    this.getWaiters = getWaiters;
    this.limiter = new LimiterView();
    this.chart = new RateChart(['inserts', 'samples']);
    this.age = new Histogram('Age', durationText);
    this.priority = new Histogram('Priority', numberText);
    this.timesSampled = new Histogram('Times sampled', countText);
    this.counters = new TermList();
    this.waited = new TermList();
    this.settings = new TermList();
    const look = element('button', {type: 'button', class: 'primary', onclick: () => itemsDialog.show(table.name)},
        'Look at items');
    this.node = element('div', {class: 'detail-grid'},
        element('div', {class: 'detail-head'}, element('h2', {dir: 'auto'}, nameText(table.name)), look),
        part('Limiter', this.limiter.node),
        part('Rates', this.chart.node),
        element('section', {class: 'part wide'}, element('h3', {}, 'Distributions'),
            element('div', {class: 'histograms'}, this.age.node, this.priority.node, this.timesSampled.node)),
        element('div', {class: 'part-row wide'},
            part('Since the start', this.counters.node), part('Time waited', this.waited.node),
            part('Settings', this.settings.node)));
  }

  update(table) {
    this.limiter.update(table, this.getWaiters());
    this.chart.update(rateHistory.of(`table ${table.name}`), rateHistory.now, table.rates);
    this.age.update(table.age_histogram);
    this.priority.update(table.priority_histogram);
    this.timesSampled.update(table.times_sampled_histogram);
    const ratio = table.inserts > 0 ? numberText(Number((table.samples / table.inserts).toPrecision(3))) : UNKNOWN;
    const unlessZero = (count) => (count > 0 ? countText(count) : null);
    this.counters.update([
      ['Inserts', countText(table.inserts)], ['Samples', countText(table.samples)], ['Samples per insert', ratio],
      ['Priority updates', countText(table.priority_updates)], ['Evicted', countText(table.evictions)],
      ['Sampled often enough', unlessZero(table.expirations)], ['Too old', unlessZero(table.aged_out)],
      ['Deleted by clients', unlessZero(table.explicit_deletes)], ['Unknown keys', unlessZero(table.unknown_keys)],
      ['Episodes', unlessZero(table.episodes)],
      ['Leases', table.leases_granted > 0
          ? `${countText(table.leased_items)} now, ${countText(table.leases_acknowledged)} acknowledged, ${
              countText(table.leases_expired)} expired` : null],
    ]);
    const waits = [];
    for (const kind of ['insert', 'sample']) {
      for (const [reason, seconds] of Object.entries(table.wait_seconds?.[kind] ?? {})) {
        const title = `${kind === 'insert' ? 'Inserts' : 'Samples'}: ${reasonText(reason)}`;
        if (seconds > 0) waits.push([title, durationText(seconds)]);
      }
    }
    if (table.longest_wait_seconds > 0) waits.push(['Longest wait now', durationText(table.longest_wait_seconds)]);
    this.waited.update(waits.length > 0 ? waits : [['All calls', 'never waited']]);
    const limiter = table.rate_limiter;
    const hasBounds = isBounded(limiter.min_diff) || isBounded(limiter.max_diff);
    this.settings.update([
      ['Sampler', cleanText(table.sampler)], ['Remover', cleanText(table.remover)], ['Max size', boundText(table.max_size)],
      ['Max times sampled', isKnown(table.max_times_sampled) ? countText(table.max_times_sampled) : null],
      ['Max bytes', isKnown(table.max_bytes) ? bytesText(table.max_bytes) : null],
      ['Max age', isKnown(table.max_age_seconds) ? durationText(table.max_age_seconds) : null],
      ['Min size to sample', countText(limiter.min_size_to_sample)],
      ['Samples per insert', hasBounds ? numberText(limiter.samples_per_insert) : 'any', 'What the limiter keeps'],
      ['Layout', table.layout === 'any' ? 'any' : null],
      ['Signature', table.signature ? cleanText(table.signature, 300) : null, cleanText(table.signature ?? '', 2000)],
    ]);
  }
}
